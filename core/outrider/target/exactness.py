"""Is a tier exact on this model, here? Each check asks the untouched model, and raises with what it saw.

- repeat: does the same forward give the same twice?
- plain: are plain steps those of `generate`, and those what reading the same text at once gives?
- path alone: are a tree node's logits those of its path run alone?
- swap: with the same shapes and other tokens wherever a node may not look, are its logits the same? In half precision bit for
  bit: an error there is as large with a correct mask as with a leak. And does an ancestor's change change them?
- holes: does it matter where in the cache a token lies?
- together: does it matter what other rows and nodes are in the forward?
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from outrider.draft.batch import TreeBatch
from outrider.draft.contract import MAX_NODES
from outrider.draft.tree import DraftTree
from outrider.errors import ModelError, PlainDiffersError
from outrider.target import compat
from outrider.target.masked import MaskedTier
from outrider.target.model import PREFILL_CHUNK, Target
from outrider.target.tier import Opening

# Two branches with a fork in each; the path 1-3 is not a prefix of the nodes, so that its commit moves rows.
_PARENTS: Final = (-1, -1, 0, 1, 0, 3)
_PATH: Final = (1, 3)
_SWAPS: Final = ((0, 2, 4), (1, 5), (2,))
_STEPS: Final = 2
_MEASURED: Final = 4
_GENERATED: Final = 8
_STEPPED: Final = 3
_ROWS_SHORTER: Final = (0, 2, 5)
NODES: Final = len(_PARENTS)

_TOLERANCE: Final = 2e-4  # parts of many models run in float32 whatever their dtype
# Root mean squares in half precision: real models' rounding was seen to make up to 0.09, states that are lost 0.2 and more.
_ROUNDING: Final = 3.0
_LEAST_ROUNDING: Final = 0.05


@dataclass(frozen=True, slots=True)
class Ruler:
    """How far apart two sets of logits are, in standard deviations, and how far rounding may bring them.

    In float32 and float64 the largest difference counts. In half precision rounding makes large single differences, so the root
    mean square does, against that of reading a text at once instead of token by token.

    Args:
        half: whether the model runs in half precision.
        allowed: the most that rounding may make.
    """

    half: bool
    allowed: float

    @classmethod
    def of(cls, target: Target, committed: Sequence[int], context: Mapping[str, Any] | None = None) -> "Ruler":
        """Make the ruler of a model; in half precision its rounding is measured on a text."""
        if not is_half(target):
            return cls(False, _TOLERANCE)
        context = compat.encode(target.model, list(committed)) if context is None else context
        read = max(1, len(committed) - _MEASURED)
        tokens = list(committed[read:])
        stepped = _stepped(target, committed[:read], tokens, context)
        whole = torch.tensor([[*committed[:-1]]], device=target.info.device)
        rounding = _rms(target.tier.caller.alone(whole, context, len(tokens)), stepped)
        return cls(True, _ROUNDING * max(rounding, _LEAST_ROUNDING))

    def measure(self, logits: torch.Tensor, others: torch.Tensor) -> float:
        """Return how far apart they are."""
        if self.half:
            return _rms(logits, others)
        return float((logits.double() - others.double()).abs().max()) / max(float(others.std()), 1e-9)

    def check(self, logits: torch.Tensor, others: torch.Tensor, what: str) -> float:
        """Return how far apart they are.

        Raises:
            ModelError: too far, with what differs from what.
        """
        error = self.measure(logits, others)
        if not error <= self.allowed:
            raise ModelError(f"{what} by {error:.1e} standard deviations")
        return error


def _rms(logits: torch.Tensor, others: torch.Tensor) -> float:
    difference = (logits.double() - others.double()).square().mean().sqrt()
    return float(difference) / max(float(others.double().std()), 1e-9)


def is_half(target: Target) -> bool:
    """Say whether a model runs in half precision, where rounding is as large as many a fault."""
    return target.model.dtype not in (torch.float32, torch.float64)


def check_repeats(target: Target, ids: Sequence[int]) -> None:
    """Run the same text twice.

    Raises:
        ModelError: the model gives no logits, or not the same.
    """
    context, whole = compat.encode(target.model, list(ids)), torch.tensor([list(ids)], device=target.info.device)
    first, second = (target.tier.caller.alone(whole, context, 1) for _ in range(2))
    if not torch.equal(first, second):
        raise ModelError("two equal forwards differ: dropout is on in a layer, or something in it is random")


def check_trees(
    target: Target, committed: Sequence[int], ruler: Ruler | None = None, steps: int = _STEPS, most: int = 8
) -> float | None:
    """Verify small trees after a context, with a commit and a further step.

    Args:
        target: the model, with the tier in question.
        committed: the context's ids, two or more.
        ruler: of the model, where it is known.
        steps: trees, one after another.
        most: paths of a tree that are run alone, the longest first.

    Returns:
        The largest error of a path alone, in standard deviations of the logits; None in half precision.

    Raises:
        ModelError: a node's logits aren't those of its path, with the test that failed.
    """
    vocab, committed = vocabulary(target), list(committed)
    generator = torch.Generator().manual_seed(len(committed))
    spare = torch.randint(0, vocab, (steps * (NODES + 1),), generator=generator).tolist()
    context = compat.encode(target.model, committed)
    ruler = ruler or Ruler.of(target, committed, context)
    cache = target.open(1, Opening(len(committed) + len(spare) + NODES, contexts=[context]))
    target.prefill(cache, [committed[:-1]], chunk=_chunk(len(committed)))
    worst = 0.0
    for _ in range(steps):
        tree = _apart(spare[:NODES], vocab)
        logits = _score(target, cache, committed, tree)
        if not ruler.half or steps == _STEPS:
            worst = max(worst, _check_alone(target, ruler, context, committed, tree, logits, most))
        for changed in _SWAPS:
            target.tier.rollback(cache, NODES)
            _check_swap(target, ruler, cache, committed, tree, logits, changed)
        target.tier.rollback(cache, NODES)
        _score(target, cache, committed, tree)
        target.commit(cache, NODES, [_PATH])
        committed = [*committed, *[tree.tokens[node] for node in _PATH], spare[NODES]]
        spare = spare[NODES + 1 :]
    return None if ruler.half else worst


def check_plain(target: Target, ids: Sequence[int], ruler: Ruler | None = None, count: int = _GENERATED) -> None:
    """Compare plain steps with those of `generate`, and these with reading their text at once.

    Raises:
        PlainDiffersError: plain steps are not those of `generate`.
        ModelError: the model's text depends on how many tokens a forward holds.
    """
    new, expected = compat.greedy(target.model, list(ids), count)
    context = compat.encode(target.model, list(ids))
    start = compat.start_ids(target.model) or list(ids)
    ruler = ruler or Ruler.of(target, [*start, *new], context)
    error = ruler.measure(_stepped(target, start, new[:_STEPPED], context), expected[:_STEPPED])
    if not error <= ruler.allowed:
        raise PlainDiffersError(f"plain steps differ from generate's by {error:.1e} standard deviations")
    whole = torch.tensor([[*start, *new[:-1]]], device=target.info.device)
    alone = target.tier.caller.alone(whole, context, len(new))
    ruler.check(
        alone,
        expected,
        "the text depends on how many tokens a forward holds: generate's own steps differ from reading it at once",
    )


def check_holes(target: Target, committed: Sequence[int], ruler: Ruler, count: int) -> None:
    """Verify a tree behind a context with `count` holes after it, as shorter rows of a batch and wide trees leave them.

    Raises:
        ModelError: it matters where in the cache a token lies.
    """
    if not isinstance(target.tier, MaskedTier):
        return
    tree = _apart(_spare(target, NODES), vocabulary(target))
    found = []
    for holes in (0, count):
        cache = target.open(1, Opening(len(committed) + NODES + count + 1, whole=True))
        target.prefill(cache, [committed[:-1]])
        if holes:
            cache.add_holes(holes)
        found.append(_score(target, cache, committed, tree))
    ruler.check(found[1], found[0], "where in the cache a token lies changes a node's logits")


def check_together(target: Target, committed: Sequence[int], ruler: Ruler) -> None:
    """Verify three rows of different lengths in one step, one of them with as many nodes as a step may hold.

    Raises:
        ModelError: other rows or nodes change a node's logits.
    """
    vocab = vocabulary(target)
    tree = _apart(_spare(target, NODES), vocab)
    others = [token for token in range(vocab) if token not in tree.tokens[:2]][: MAX_NODES - NODES]
    wide = DraftTree((*tree.tokens, *others), (*_PARENTS, *[-1] * len(others)))
    rows = [list(committed[: len(committed) - shorter]) for shorter in _ROWS_SHORTER if len(committed) - shorter > 1]
    contexts = [compat.encode(target.model, row) for row in rows]
    cache = target.open(len(rows), Opening(len(committed) + MAX_NODES + 1, contexts=contexts))
    target.prefill(cache, [row[:-1] for row in rows])
    trees = [wide, *[tree] * (len(rows) - 1)]
    together = target.forward(cache, [row[-1] for row in rows], TreeBatch.pack(trees)).logits
    for at, row in enumerate(rows):
        single = target.open(1, Opening(len(row) + NODES + 1, contexts=[contexts[at]]))
        target.prefill(single, [row[:-1]])
        alone = _score(target, single, row, tree)
        ruler.check(together[at, : 1 + NODES], alone, "other rows and nodes in a forward change a node's logits")


def vocabulary(target: Target) -> int:
    """Return how many ids may be fed."""
    embeddings: Any = target.model.get_input_embeddings()
    return min(target.info.vocab_size, int(embeddings.weight.shape[0]))


def _spare(target: Target, count: int) -> list[int]:
    ids: list[int] = torch.randint(0, vocabulary(target), (count,), generator=torch.Generator().manual_seed(9)).tolist()
    return ids


def _chunk(length: int) -> int:
    """Choose a chunk so that a short context is read in two, since reading on is what a prefill does with a long one."""
    return min(PREFILL_CHUNK, max(1, length // 2))


def _stepped(target: Target, start: Sequence[int], new: Sequence[int], context: Mapping[str, Any]) -> torch.Tensor:
    """Return the logits that lead to every token of `new` `[tokens, vocab]`, a plain step each."""
    cache = target.open(1, Opening(len(start) + len(new) + 1, contexts=[context]))
    found = [target.prefill(cache, [start])[0]]
    for token in new[:-1]:
        found.append(target.forward(cache, [token], TreeBatch.pack([DraftTree()])).logits[0, 0])
        target.commit(cache, 0, [[]])
    return torch.stack(found)


def _apart(tokens: Sequence[int], vocab: int, moving: Sequence[int] = range(NODES)) -> DraftTree:
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


def _check_alone(
    target: Target,
    ruler: Ruler,
    context: Mapping[str, Any],
    committed: list[int],
    tree: DraftTree,
    logits: torch.Tensor,
    most: int,
) -> float:
    worst = 0.0
    leaves = sorted(set(range(len(tree))) - set(tree.parents), key=lambda leaf: -len(tree.path(leaf)))
    for leaf in leaves[:most]:
        path = tree.path(leaf)
        ids = torch.tensor([committed + [tree.tokens[node] for node in path]], device=target.info.device)
        rows = [0, *[node + 1 for node in path]]
        alone = target.tier.caller.alone(ids, context, len(rows))
        worst = max(worst, ruler.check(logits[rows], alone, "a tree node's logits differ from its path's alone"))
    return worst


def _check_swap(
    target: Target,
    ruler: Ruler,
    cache: Any,
    committed: Sequence[int],
    tree: DraftTree,
    logits: torch.Tensor,
    changed: Sequence[int],
) -> None:
    """Change some nodes' tokens: they and what hangs below them must notice, and nobody else may."""
    vocab = vocabulary(target)
    tolerance = 0.0 if ruler.half else ruler.allowed * float(logits.std())
    moved = [token + vocab // 2 if node in changed else token for node, token in enumerate(tree.tokens)]
    swapped = _score(target, cache, committed, _apart(moved, vocab, changed))
    for node in range(-1, len(tree)):
        concerned = not set(tree.path(node)).isdisjoint(changed)
        # Where path-alone was checked, what is below its tolerance is rounding: experts' batches vary with their tokens.
        same = float((swapped[node + 1] - logits[node + 1]).abs().max()) <= tolerance
        if same == concerned:
            fault = "don't depend on its ancestors" if concerned else "depend on tokens that are not its ancestors"
            raise ModelError(f"a tree node's logits {fault}")
