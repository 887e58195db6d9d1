"""The probe: which tier verifies draft trees of this model exactly? Asked of the model itself, never of a list of names.

Against the untouched model, before and after a commit that moves rows:

- plain: are the logits of plain steps those of `generate`? In float32 and float64.
- path alone: are every node's logits those of its path run alone? In float32 and float64 only, since a half-precision error
  is as large with a correct mask as with a leak.
- swap: with the same shapes and other tokens wherever a node may not look, are its logits the same? In half precision bit for
  bit; it is the test that tells there.
- swap of an ancestor: do its logits change?
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from outrider.draft.batch import TreeBatch
from outrider.draft.tree import DraftTree
from outrider.errors import ModelError, OutriderError, first_line
from outrider.target import compat
from outrider.target.masked import MaskedTier
from outrider.target.model import Target
from outrider.target.paths import PathTier, ReplayTier
from outrider.target.thresholds import thresholds
from outrider.target.tier import Opening, Tier

TIERS: Final[tuple[type[Tier[Any]], ...]] = (MaskedTier, PathTier, ReplayTier)
"""Tried in this order: the first that is exact serves."""

# Two branches with a fork in each; the path 1-3 is not a prefix of the nodes, so that its commit moves rows.
_PARENTS: Final = (-1, -1, 0, 1, 0, 3)
_PATH: Final = (1, 3)
_SWAPS: Final = ((0, 2, 4), (1, 5), (2,))
_STEPS: Final = 2
_CONTEXT: Final = 9
_TO_CROSS: Final = 512
_PLAIN_STEPS: Final = 3
_ATTENTION_KINDS: Final = {"full_attention", "sliding_attention", "chunked_attention"}
_LEAST_VOCABULARY: Final = 5
_TOLERANCE: Final = {torch.float64: 2e-4, torch.float32: 2e-4}


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What the probe found.

    Args:
        tier: what serves the model.
        error: largest difference between a node's logits and its path's alone, over the logits' standard deviation; None
            in half precision, where only the swap test is made.
        context: length of the context that trees were verified after.
        refused: why each tier before it can't serve.
    """

    tier: Tier[Any]
    error: float | None
    context: int
    refused: Mapping[str, str]


def check_supported(target: Target) -> None:
    """Refuse what is known before any forward.

    Raises:
        ModelError: with the reason and what would work.
    """
    model = target.model
    kind = type(model).__name__
    if target.tier.caller.names.cache is None:
        raise ModelError(f"{kind}.forward takes no key-value cache, so nothing drafted could be kept")
    if target.info.vocab_size < _LEAST_VOCABULARY:
        raise ModelError(
            f"{kind} has {target.info.vocab_size} tokens; at least {_LEAST_VOCABULARY} are needed to probe it"
        )
    if model.generation_config is None:
        raise ModelError(f"{kind} has no generation_config, so what plain decoding means for it is not known")


def probe(target: Target) -> ProbeResult:
    """Find the first tier that is exact on this model, and let it serve the target.

    Raises:
        ModelError: there is none, with the test that each failed.
    """
    check_supported(target)
    target.open(1)  # refuses a model in training mode
    config = target.model.config.get_text_config(decoder=True)
    context = max([_CONTEXT, *(one + 3 for one in thresholds(config) if one <= _TO_CROSS)])
    ids = torch.randint(0, target.info.vocab_size, (context,), generator=torch.Generator().manual_seed(0)).tolist()
    refused: dict[str, str] = {}
    for kind in TIERS:
        target.tier = tier = kind(target.tier.caller, target.info.device)
        try:
            if reason := tier.refusal():
                raise ModelError(reason)
            error = check_trees(target, ids)
            _check_plain(target, ids[:_CONTEXT])
            return ProbeResult(tier, error, context, refused)
        except OutriderError as error:
            refused[kind.name] = str(error)
        except Exception as error:
            kinds = sorted(set(getattr(config, "layer_types", None) or ()) - _ATTENTION_KINDS)
            layers = f", with layers of kind {', '.join(kinds)}" if kinds else ""
            refused[kind.name] = f"its forward failed{layers}: {first_line(error)}"
    reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
    raise ModelError(f"{type(target.model).__name__} can't be verified exactly ({reasons})")


def check_trees(target: Target, committed: Sequence[int]) -> float | None:
    """Verify small trees after a context, with a commit and a further step.

    Args:
        target: the model, with the tier in question.
        committed: the context's ids, two or more.

    Returns:
        The largest error of a path alone, as in `ProbeResult`.

    Raises:
        ModelError: a node's logits aren't those of its path, with the test that failed.
    """
    vocab, nodes = target.info.vocab_size, len(_PARENTS)
    generator = torch.Generator().manual_seed(len(committed))
    spare = torch.randint(0, vocab, (_STEPS * (nodes + 1),), generator=generator).tolist()
    committed = list(committed)
    context = compat.encode(target.model, committed)
    cache = target.open(1, Opening(len(committed) + len(spare) + nodes, contexts=[context]))
    target.prefill(cache, [committed[:-1]], chunk=max(1, len(committed) // 2))  # the second chunk reads on
    worst: float | None = None
    for _ in range(_STEPS):
        tree = _apart(spare[:nodes], vocab)
        logits = _score(target, cache, committed, tree)
        worst = _check_alone(target, context, committed, tree, logits, worst)
        for changed in _SWAPS:
            target.tier.rollback(cache, nodes)
            _check_swap(target, cache, committed, tree, logits, changed)
        target.tier.rollback(cache, nodes)
        _score(target, cache, committed, tree)
        target.commit(cache, nodes, [_PATH])
        committed = [*committed, *[tree.tokens[node] for node in _PATH], spare[nodes]]
        spare = spare[nodes + 1 :]
    return worst


def _apart(tokens: Sequence[int], vocab: int, moving: Sequence[int] = range(len(_PARENTS))) -> DraftTree:
    """Lay tokens out as the probe's tree; of equal siblings those that may move take the next free token."""
    found = list(tokens)
    for node in moving:
        siblings = [other for other in range(len(found)) if _PARENTS[other] == _PARENTS[node] and other != node]
        taken = {found[other] for other in siblings if other not in moving or other < node}
        found[node] %= vocab
        while found[node] in taken:
            found[node] = (found[node] + 1) % vocab
    return DraftTree(tuple(found), _PARENTS)


def _score(target: Target, cache: Any, committed: Sequence[int], tree: DraftTree) -> torch.Tensor:
    return target.forward(cache, committed[-1:], TreeBatch.pack([tree])).logits[0]


def _check_plain(target: Target, ids: list[int]) -> None:
    """Compare plain steps with those of the untouched model's own `generate`."""
    tolerance = _tolerance(target)
    if tolerance is None:
        return
    new, expected = compat.greedy(target.model, ids, _PLAIN_STEPS)
    context = compat.encode(target.model, ids)
    text = [*(compat.start_ids(target.model) or ids), *new]
    start = len(text) - len(new)
    cache = target.open(1, Opening(len(text) + 1, contexts=[context]))
    found = [target.prefill(cache, [text[:start]])[0]]
    for place in range(start, len(text) - 1):
        found.append(target.forward(cache, [text[place]], TreeBatch.pack([DraftTree()])).logits[0, 0])
        target.commit(cache, 0, [[]])
    error = float((torch.stack(found).double() - expected.double()).abs().max()) / max(float(expected.std()), 1e-9)
    if not error <= tolerance:
        raise ModelError(f"plain steps differ from generate's by {error:.1e} standard deviations")


def _check_alone(
    target: Target,
    context: Mapping[str, Any],
    committed: list[int],
    tree: DraftTree,
    logits: torch.Tensor,
    worst: float | None,
) -> float | None:
    tolerance = _tolerance(target)
    if tolerance is None:
        return None
    worst = worst or 0.0
    leaves = set(range(len(tree))) - set(tree.parents)
    for leaf in sorted(leaves):
        path = tree.path(leaf)
        ids = torch.tensor([committed + [tree.tokens[node] for node in path]], device=target.info.device)
        alone = target.tier.caller.alone(ids, context)[0]
        rows = [0, *[node + 1 for node in path]]
        error = (logits[rows] - alone[-len(rows) :]).abs().max().item() / max(alone.std().item(), 1e-9)
        if not error <= tolerance:
            raise ModelError(f"a tree node's logits differ from its path's alone by {error:.1e} standard deviations")
        worst = max(worst, error)
    return worst


def _check_swap(
    target: Target,
    cache: Any,
    committed: Sequence[int],
    tree: DraftTree,
    logits: torch.Tensor,
    changed: Sequence[int],
) -> None:
    """Change some nodes' tokens: they and what hangs below them must notice, and nobody else may."""
    vocab = target.info.vocab_size
    tolerance = (_tolerance(target) or 0.0) * float(logits.std())
    moved = [token + vocab // 2 if node in changed else token for node, token in enumerate(tree.tokens)]
    swapped = _score(target, cache, committed, _apart(moved, vocab, changed))
    for node in range(-1, len(tree)):
        concerned = not set(tree.path(node)).isdisjoint(changed)
        # Where path-alone was checked, what is below its tolerance is rounding: experts' batches vary with their tokens.
        same = float((swapped[node + 1] - logits[node + 1]).abs().max()) <= tolerance
        if same == concerned:
            fault = "don't depend on its ancestors" if concerned else "depend on tokens that are not its ancestors"
            raise ModelError(f"a tree node's logits {fault}")


def _tolerance(target: Target) -> float | None:
    """Return the error that rounding may make, in standard deviations; None where it is as large as a leak's.

    Parts of many models run in float32 whatever their dtype.
    """
    return _TOLERANCE.get(target.model.dtype)
