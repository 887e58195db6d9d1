"""The probe: which tier verifies draft trees of this model exactly? Asked of the model itself, never of a list of names.

Against the untouched model, before and after a commit that moves rows:

- plain: are the logits of plain steps those of `generate`, and those what reading its text at once gives? In float32 and
  float64.
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
from outrider.target.model import PREFILL_CHUNK, Target
from outrider.target.paths import PathTier, ReplayTier
from outrider.target.thresholds import choices, thresholds
from outrider.target.tier import Opening, Tier
from outrider.target.trust import BEYOND, ProbeResult, Trust

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
_GENERATED: Final = 8
_ROOM: Final = 2 * (len(_PARENTS) + 1)
_ATTENTION_KINDS: Final = {"full_attention", "sliding_attention", "chunked_attention"}
_LEAST_VOCABULARY: Final = 5
# In half precision: how much further than reading at once a tree may be from plain steps, and the least rounding to expect.
_ROUNDING: Final = 4.0
_LEAST_ROUNDING: Final = 0.05
_TOLERANCE: Final = {torch.float64: 2e-4, torch.float32: 2e-4}


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
    longest = min((one for one in (target.info.max_positions, *choices(config)) if one), default=None)
    named = [one for one in thresholds(config) if longest is None or one < longest]
    context = max([_CONTEXT, *(one + BEYOND for one in named if one <= _TO_CROSS)])
    found = _first_exact(target, context)
    limit = min(choices(config), default=None)
    pending = [one for one in named if one + BEYOND > context]
    if found.tier is None and named and context > _CONTEXT and named[0] >= _CONTEXT + _ROOM:
        # What is not exact beyond a window may be exact within it.
        found, limit, pending = _first_exact(target, _CONTEXT), min(named[0], limit or named[0]), []
    if found.tier is None:
        by_reason: dict[str, list[str]] = {}
        for name, reason in found.refused.items():
            by_reason.setdefault(reason, []).append(name)
        reasons = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in by_reason.items())
        raise ModelError(f"{type(target.model).__name__} can't be verified exactly ({reasons})")
    target.trust = Trust(pending, check_here, limit)
    target.probed = ProbeResult(found.tier, found.error, found.context, found.refused)
    return target.probed


@dataclass(frozen=True, slots=True)
class _Found:
    tier: str | None
    error: float | None
    context: int
    refused: Mapping[str, str]


def _first_exact(target: Target, context: int) -> _Found:
    """Try the tiers after a context of this length; the first that is exact stays with the target."""
    ids = torch.randint(0, target.info.vocab_size, (context,), generator=torch.Generator().manual_seed(0)).tolist()
    refused: dict[str, str] = {}
    for kind in TIERS:
        target.tier = tier = kind(target.tier.caller, target.info.device)
        try:
            if reason := tier.refusal():
                raise ModelError(reason)
            error = check_trees(target, ids)
            _check_plain(target, ids[:_CONTEXT])
            return _Found(kind.name, error, context, refused)
        except OutriderError as error:
            refused[kind.name] = str(error)
        except Exception as error:
            refused[kind.name] = f"its forward failed{_strange_layers(target)}: {first_line(error)}"
    return _Found(None, None, context, refused)


def _strange_layers(target: Target) -> str:
    config = target.model.config.get_text_config(decoder=True)
    kinds = sorted(set(getattr(config, "layer_types", None) or ()) - _ATTENTION_KINDS)
    return f", with layers of kind {', '.join(kinds)}" if kinds else ""


def _chunk(length: int) -> int:
    """Choose a chunk so that a short context is read in two, since reading on is what a prefill does with a long one."""
    return min(PREFILL_CHUNK, max(1, length // 2))


def check_here(target: Target, committed: Sequence[int]) -> None:
    """Verify a small tree after a context that may be long, with as few forwards over all of it as it takes: two.

    Raises:
        ModelError: as `check_trees`.
    """
    check_trees(target, committed, steps=1, most=1)


def check_trees(target: Target, committed: Sequence[int], steps: int = _STEPS, most: int = 8) -> float | None:
    """Verify small trees after a context, with a commit and a further step.

    Args:
        target: the model, with the tier in question.
        committed: the context's ids, two or more.
        steps: trees, one after another.
        most: paths of a tree that are run alone, the longest first.

    Returns:
        The largest error of a path alone, as in `ProbeResult`.

    Raises:
        ModelError: a node's logits aren't those of its path, with the test that failed.
    """
    vocab, nodes = target.info.vocab_size, len(_PARENTS)
    generator = torch.Generator().manual_seed(len(committed))
    spare = torch.randint(0, vocab, (steps * (nodes + 1),), generator=generator).tolist()
    committed = list(committed)
    context = compat.encode(target.model, committed)
    cache = target.open(1, Opening(len(committed) + len(spare) + nodes, contexts=[context]))
    target.prefill(cache, [committed[:-1]], chunk=_chunk(len(committed)))
    worst: float | None = None
    for _ in range(steps):
        tree = _apart(spare[:nodes], vocab)
        logits = _score(target, cache, committed, tree)
        worst = _check_alone(target, context, committed, tree, logits, worst, most)
        for changed in _SWAPS:
            target.tier.rollback(cache, nodes)
            _check_swap(target, cache, committed, tree, logits, changed)
        if worst is None:
            _check_against_steps(target, context, committed, tree, logits)
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
    """Compare plain steps with those of the untouched model's own `generate`, and these with reading their text at once."""
    tolerance = _tolerance(target)
    if tolerance is None:
        return
    new, expected = compat.greedy(target.model, ids, _GENERATED)
    context = compat.encode(target.model, ids)
    text = [*(compat.start_ids(target.model) or ids), *new]
    start = len(text) - len(new)
    cache = target.open(1, Opening(len(text) + 1, contexts=[context]))
    found = [target.prefill(cache, [text[:start]])[0]]
    for place in range(start, start + _PLAIN_STEPS - 1):
        found.append(target.forward(cache, [text[place]], TreeBatch.pack([DraftTree()])).logits[0, 0])
        target.commit(cache, 0, [[]])
    error = _apart_by(torch.stack(found), expected[:_PLAIN_STEPS])
    if not error <= tolerance:
        raise ModelError(f"plain steps differ from generate's by {error:.1e} standard deviations")
    whole = torch.tensor([text[:-1]], device=target.info.device)
    error = _apart_by(target.tier.caller.alone(whole, context, len(new)), expected)
    if not error <= tolerance:
        raise ModelError(
            f"generate's own steps differ from reading the same text at once by {error:.1e} standard deviations, so the "
            f"model's text depends on how many tokens a forward holds"
        )


def _apart_by(logits: torch.Tensor, others: torch.Tensor) -> float:
    """Return the largest difference, in standard deviations."""
    return float((logits.double() - others.double()).abs().max()) / max(float(others.std()), 1e-9)


def _check_alone(
    target: Target,
    context: Mapping[str, Any],
    committed: list[int],
    tree: DraftTree,
    logits: torch.Tensor,
    worst: float | None,
    most: int,
) -> float | None:
    tolerance = _tolerance(target)
    if tolerance is None:
        return None
    worst = worst or 0.0
    leaves = sorted(set(range(len(tree))) - set(tree.parents), key=lambda leaf: -len(tree.path(leaf)))
    for leaf in leaves[:most]:
        path = tree.path(leaf)
        ids = torch.tensor([committed + [tree.tokens[node] for node in path]], device=target.info.device)
        rows = [0, *[node + 1 for node in path]]
        alone = target.tier.caller.alone(ids, context, len(rows))
        error = _apart_by(logits[rows], alone)
        if not error <= tolerance:
            raise ModelError(f"a tree node's logits differ from its path's alone by {error:.1e} standard deviations")
        worst = max(worst, error)
    return worst


def _check_against_steps(
    target: Target, context: Mapping[str, Any], committed: list[int], tree: DraftTree, logits: torch.Tensor
) -> None:
    """In half precision, compare a path with plain steps, as far apart as reading it at once is from them by rounding.

    It tells where a state is lost between forwards, which other branches' tokens can't show.
    """
    path = max((tree.path(node) for node in range(len(tree))), key=len)
    tokens = [committed[-1], *[tree.tokens[node] for node in path]]
    cache = target.open(1, Opening(len(committed) + len(tokens) + 1, contexts=[context]))
    target.prefill(cache, [committed[:-1]], chunk=_chunk(len(committed)))
    found = []
    for token in tokens:
        found.append(target.forward(cache, [token], TreeBatch.pack([DraftTree()])).logits[0, 0])
        target.commit(cache, 0, [[]])
    stepped = torch.stack(found).float()
    ids = torch.tensor([committed + tokens[1:]], device=target.info.device)
    rounding = float((target.tier.caller.alone(ids, context, len(tokens)).float() - stepped).abs().max())
    error = float((logits[[0, *[node + 1 for node in path]]].float() - stepped).abs().max())
    if not error <= _ROUNDING * max(rounding, _LEAST_ROUNDING * float(stepped.std())):
        raise ModelError(
            f"a tree node's logits differ from plain steps' by {error:.1e}, where rounding makes {rounding:.1e}"
        )


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
