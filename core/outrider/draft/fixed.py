"""Trees of a fixed shape, grown level by level: the static trees of EAGLE (Li et al. 2024, arXiv:2401.15077, section 3.3)."""

from collections.abc import Sequence

import torch

from outrider.draft.batch import TreeBatch
from outrider.draft.choices import Choices, Ranks
from outrider.draft.contract import DraftView
from outrider.draft.expansion import Guess, Law, raw_scores
from outrider.draft.tree import ROOT


def grow_choices(
    views: Sequence[DraftView],
    choices: Choices,
    law: Law,
    logits: torch.Tensor,
    guess: Guess,
    id_map: torch.Tensor | None = None,
    *,
    coupled: bool = True,
) -> TreeBatch:
    """Grow trees of one shape; only nodes with children are read.

    Args:
        views: the rows, at least one with room.
        choices: the shape, cut to the room that there is.
        law: makes laws of the drafter's logits.
        logits: `[rows, draft vocab]` after the texts.
        guess: reads a level's nodes.
        id_map: `[draft vocab]` int64, the target's id of every draft id; None where they are the same.
        coupled: whether the target's noise is used where it is offered.
    """
    shape = choices.within(max(view.max_depth for view in views), max(view.max_nodes for view in views))
    levels = [sorted(path for path in shape.paths if len(path) == depth) for depth in range(1, shape.depth + 1)]
    grown = {path[:-1] for path in shape.paths}
    fed: dict[Ranks, int] = {(): ROOT}
    drawn = False

    def ranked(depth: int, scored: torch.Tensor) -> torch.Tensor:
        """Return the candidates `[rows, count, ranks]` by logits `[rows, count, draft vocab]`."""
        nonlocal drawn
        found = []
        for view, own in zip(views, scored, strict=True):
            raw, noisy = raw_scores(view, law(view, own).double(), depth, id_map, coupled=coupled)
            drawn = drawn or noisy
            values, tokens = raw.topk(min(shape.ranks, raw.shape[-1]))
            found.append(tokens.masked_fill(values == -torch.inf, -1))
        padded = shape.ranks - found[0].shape[-1]
        return torch.nn.functional.pad(torch.stack(found), (0, padded), value=-1)

    def candidates(depth: int, above: torch.Tensor | None) -> torch.Tensor:
        if above is None:
            return ranked(depth, logits[:, None])
        level = levels[depth - 2]
        which = [at for at, path in enumerate(level) if path in grown]
        below = torch.tensor([fed[level[at][:-1]] for at in which], device=above.device)
        for at in which:
            fed[level[at]] = len(fed) - 1
        own = ranked(depth, guess(above[:, which], below.expand(len(above), -1)))
        whole = own.new_full((len(above), len(level), own.shape[2]), -1)
        whole[:, which] = own
        return whole

    trees = shape.trees(views, candidates, logits.device, id_map)
    return TreeBatch(trees.tokens, trees.parents, coupled=drawn)
