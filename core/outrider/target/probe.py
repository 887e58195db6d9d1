"""The probe: does this model verify a draft tree exactly? Asked of the model itself, never of a list of names.

Three questions, before and after a commit that moves rows:

- path alone: are every node's logits those of its path run alone on the untouched model? In float32 and float64 only,
  since a half-precision error is as large with a correct mask as with a leak.
- swap: with the same shapes and other tokens wherever a node may not look, are its logits the same? In half precision bit for
  bit; it is the test that tells there.
- swap of an ancestor: do its logits change?
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from outrider.draft.batch import TreeBatch
from outrider.draft.tree import DraftTree
from outrider.errors import ModelError, OutriderError, first_line
from outrider.target.attention import MASKED_IMPLEMENTATIONS
from outrider.target.cache import RowCache
from outrider.target.compat import ForwardNames
from outrider.target.model import Target

# Two branches with a fork in each; the path 1-3 is not a prefix of the nodes, so that its commit moves rows.
_PARENTS: Final = (-1, -1, 0, 1, 0, 3)
_PATH: Final = (1, 3)
_SWAPS: Final = ((0, 2, 4), (1, 5), (2,))
_STEPS: Final = 2
_CONTEXT: Final = 9
_WINDOW_NAMES: Final = ("sliding_window", "attention_chunk_size", "window_size")
_WINDOW_TO_CROSS: Final = 512
_ATTENTION_KINDS: Final = {"full_attention", "sliding_attention", "chunked_attention"}
_LEAST_VOCABULARY: Final = 5
_TOLERANCE: Final = {torch.float64: 1e-9, torch.float32: 2e-4}


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What the probe measured.

    Args:
        error: largest difference between a node's logits and its path's alone, over the logits' standard deviation; None
            in half precision, where only the swap test is made.
        steps: number of tree forwards that were checked.
    """

    error: float | None
    steps: int


def check_supported(target: Target) -> None:
    """Refuse what is known before any forward.

    Raises:
        ModelError: with the reason and what would work.
    """
    model, names = target.model, ForwardNames.of(target.model)
    config: Any = model.config
    kind = type(model).__name__
    if config.is_encoder_decoder:
        raise ModelError(f"{kind} is an encoder-decoder; only causal language models are served")
    if names.cache is None:
        raise ModelError(f"{kind}.forward takes no key-value cache, so nothing drafted could be kept")
    if not names.positions:
        raise ModelError(f"{kind}.forward takes no position_ids, so the branches of a tree can't share positions")
    others = set(getattr(config.get_text_config(), "layer_types", None) or ()) - _ATTENTION_KINDS
    if others:
        raise ModelError(
            f"{kind} has layers of kind {', '.join(sorted(others))}; only full, sliding and chunked attention is served, whose "
            f"state can be taken back row by row"
        )
    if target.info.vocab_size < _LEAST_VOCABULARY:
        raise ModelError(
            f"{kind} has {target.info.vocab_size} tokens; at least {_LEAST_VOCABULARY} are needed to probe it"
        )
    if model.generation_config is None:
        raise ModelError(f"{kind} has no generation_config, so what plain decoding means for it is not known")
    attention = config.get_text_config()._attn_implementation
    if attention not in MASKED_IMPLEMENTATIONS:
        raise ModelError(
            f"{kind} runs attention '{attention}', which takes no tree mask; "
            f"load it with attn_implementation={' or '.join(repr(name) for name in MASKED_IMPLEMENTATIONS)}"
        )


def probe(target: Target) -> ProbeResult:
    """Verify small trees on the model and compare.

    Raises:
        ModelError: the model can't be served exactly, with the test that it failed.
    """
    check_supported(target)
    try:
        return _probe(target)
    except OutriderError:
        raise
    except Exception as error:
        raise ModelError(f"{type(target.model).__name__} can't run a tree draft: {first_line(error)}") from error


def _probe(target: Target) -> ProbeResult:
    vocab, nodes = target.info.vocab_size, len(_PARENTS)
    context = _context_length(target.model.config.get_text_config())
    needed = context + _STEPS * (nodes + 1)
    ids = torch.randint(0, vocab, (needed,), generator=torch.Generator().manual_seed(0)).tolist()
    committed, spare = ids[:context], ids[context:]
    cache = target.open(1, needed + nodes)
    target.prefill(cache, torch.tensor([committed[:-1]], device=target.info.device))
    worst: float | None = None
    for _ in range(_STEPS):
        tree = _apart(spare[:nodes], vocab)
        logits = _score(target, cache, committed, tree)
        worst = _check_alone(target, committed, tree, logits, worst)
        for changed in _SWAPS:
            cache.keep(len(committed) - 1, [[]])
            _check_swap(target, cache, committed, tree, logits, changed)
        cache.keep(len(committed) - 1, [[]])
        _score(target, cache, committed, tree)
        target.commit(cache, nodes, [_PATH])
        committed = [*committed, *[tree.tokens[node] for node in _PATH], spare[nodes]]
        spare = spare[nodes + 1 :]
    return ProbeResult(worst, _STEPS)


def _context_length(config: Any) -> int:
    """Choose a context that passes the config's windows, where they are short enough to pass."""
    windows = [getattr(config, name, None) for name in _WINDOW_NAMES]
    short = [window for window in windows if isinstance(window, int) and 0 < window <= _WINDOW_TO_CROSS]
    return max(_CONTEXT, max(short, default=0) + 3)


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


def _score(target: Target, cache: RowCache, committed: Sequence[int], tree: DraftTree) -> torch.Tensor:
    device = target.info.device
    roots = torch.tensor([committed[-1]], device=device)
    lengths = torch.tensor([len(committed) - 1], device=device)
    return target.forward(cache, roots, lengths, TreeBatch.pack([tree]))[0]


@torch.no_grad()
def _check_alone(
    target: Target, committed: list[int], tree: DraftTree, logits: torch.Tensor, worst: float | None
) -> float | None:
    tolerance = _tolerance(target)
    if tolerance is None:
        return None
    model: Any = target.model
    worst = worst or 0.0
    leaves = set(range(len(tree))) - set(tree.parents)
    for leaf in sorted(leaves):
        path = tree.path(leaf)
        alone = model(torch.tensor([committed + [tree.tokens[node] for node in path]], device=logits.device)).logits[0]
        rows = [0, *[node + 1 for node in path]]
        error = (logits[rows] - alone[-len(rows) :]).abs().max().item() / max(alone.std().item(), 1e-9)
        if not error <= tolerance:
            raise ModelError(
                f"{type(model).__name__} can't be verified exactly: a tree node's logits differ from its path's alone "
                f"by {error:.1e} standard deviations ({tolerance:.0e} allowed)"
            )
        worst = max(worst, error)
    return worst


def _check_swap(
    target: Target,
    cache: RowCache,
    committed: Sequence[int],
    tree: DraftTree,
    logits: torch.Tensor,
    changed: Sequence[int],
) -> None:
    """Change some nodes' tokens: they and what hangs below them must notice, and nobody else may."""
    vocab, kind = target.info.vocab_size, type(target.model).__name__
    tolerance = (_tolerance(target) or 0.0) * float(logits.std())
    moved = [token + vocab // 2 if node in changed else token for node, token in enumerate(tree.tokens)]
    swapped = _score(target, cache, committed, _apart(moved, vocab, changed))
    for node in range(-1, len(tree)):
        concerned = not set(tree.path(node)).isdisjoint(changed)
        # Where path-alone was checked, what is below its tolerance is rounding: experts' batches vary with their tokens.
        same = float((swapped[node + 1] - logits[node + 1]).abs().max()) <= tolerance
        if same == concerned:
            fault = "don't depend on its ancestors" if concerned else "depend on tokens that are not its ancestors"
            raise ModelError(f"{kind} can't be verified exactly: a tree node's logits {fault}")


def _tolerance(target: Target) -> float | None:
    """Return the error that rounding may make, in standard deviations; None where it is as large as a leak's."""
    dtype, config = target.model.dtype, target.model.config.get_text_config()
    if dtype is torch.float64 and config._attn_implementation == "eager":
        dtype = torch.float32  # eager softmax runs in float32 whatever the model's dtype
    return _TOLERANCE.get(dtype)
