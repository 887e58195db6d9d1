"""Drawing draft trees from a drafter's laws, for the rules that compare them with the target's.

Length and shape are decided from the prefix and the laws before anything is drawn, and what was drawn is kept (Leviathan et al.
2022, arXiv:2211.17192, section 2.3; siblings without replacement as in Yang et al. 2024, arXiv:2401.06706).
"""

from collections.abc import Sequence

import torch

from outrider.draft.batch import TreeBatch
from outrider.draft.choices import Choices, Ranks
from outrider.draft.contract import DraftView
from outrider.draft.expansion import Guess, Law, Shape
from outrider.draft.laws import DraftLaws
from outrider.draft.tree import ROOT, DraftTree


class Drawn:
    """A row's draft in the making: a trunk, with siblings beside every token of it."""

    def __init__(self, view: DraftView, shape: Shape) -> None:
        self._view, self._shape = view, shape
        self._tokens: list[int] = []
        self._parents: list[int] = []
        self._q_rows: list[int] = []
        self._laws: list[torch.Tensor] = []
        self._trunk, self._chance = ROOT, 1.0
        self._over = False

    @property
    def going(self) -> bool:
        """Whether it may grow another level."""
        return self._room > 0 and not self._over and len(self._laws) < min(self._shape.depth, self._view.max_depth)

    @property
    def _room(self) -> int:
        return min(self._view.max_nodes, self._shape.nodes) - len(self._tokens)

    def grow(self, law: torch.Tensor) -> int:
        """Draw a level from the law `[draft vocab]`; returns the draft id that goes on."""
        if self._shape.confidence:
            self._chance *= float(law.max())
        self._over = self._over or self._chance < self._shape.confidence
        if not self.going:
            return 0
        drawn = self._view.draw(law, min(self._shape.branching, self._room), len(self._laws) + 1)
        if not drawn:  # a model whose numbers are none gives no law
            self._over = True
            return 0
        self._q_rows += [len(self._laws)] * len(drawn)
        self._parents += [self._trunk] * len(drawn)
        self._trunk = len(self._tokens)
        self._tokens += drawn
        self._laws.append(law)
        return drawn[0]

    def tree(self, id_map: torch.Tensor | None) -> DraftTree:
        """Return the draft."""
        if not self._tokens:
            return DraftTree()
        tokens = self._tokens if id_map is None else id_map[self._tokens].tolist()
        return DraftTree(
            tuple(tokens), tuple(self._parents), tuple(self._q_rows), DraftLaws(torch.stack(self._laws), id_map)
        )


def draw_trees(
    views: Sequence[DraftView],
    shape: Shape,
    law: Law,
    logits: torch.Tensor,
    guess: Guess,
    id_map: torch.Tensor | None = None,
) -> TreeBatch:
    """Draw a tree for every row: at every level `branching` tokens without replacement, of which the first goes on.

    The last level has as many as there is room for.

    Args:
        views: the rows.
        shape: how the trees grow; a trunk is the only one of its `beams`.
        law: makes laws of the drafter's logits.
        logits: `[rows, draft vocab]` after the texts.
        guess: reads the trunks' tokens.
        id_map: as in `DraftLaws`.
    """
    drafts = [Drawn(view, shape) for view in views]
    while any(draft.going for draft in drafts):
        laws = [law(view, row[None])[0].double() for view, row in zip(views, logits, strict=True)]
        trunk = [draft.grow(own / own.sum()) if draft.going else 0 for draft, own in zip(drafts, laws, strict=True)]
        if any(draft.going for draft in drafts):
            logits = guess(torch.tensor(trunk, device=logits.device)[:, None], None)[:, 0]
    return TreeBatch.pack([draft.tree(id_map) for draft in drafts])


def draw_choices(
    views: Sequence[DraftView], choices: Choices, laws: Sequence[torch.Tensor], id_map: torch.Tensor | None = None
) -> TreeBatch:
    """Draw a tree of a fixed shape for every row, from laws that hang on the depth alone: siblings without replacement.

    Args:
        views: the rows.
        choices: the shape; of a path only the number of siblings counts, since the first drawn is no better than the last.
        laws: for every row the laws `[depth, draft vocab]`, float64, each one's sum 1.
        id_map: as in `DraftLaws`.
    """
    return TreeBatch.pack([_draw(view, choices, own, id_map) for view, own in zip(views, laws, strict=True)])


def _draw(view: DraftView, choices: Choices, laws: torch.Tensor, id_map: torch.Tensor | None) -> DraftTree:
    if not bool(laws.isfinite().all()):  # heads whose numbers are none give no laws
        return DraftTree()
    shape = choices.within(view.max_depth, view.max_nodes)
    below: dict[Ranks, list[Ranks]] = {}
    for path in sorted(shape.paths):
        below.setdefault(path[:-1], []).append(path)
    nodes: dict[Ranks, int] = {(): ROOT}
    tokens: list[int] = []
    parents: list[int] = []
    q_rows: list[int] = []
    for index, (above, children) in enumerate(below.items(), 1):
        if above not in nodes:  # its law held fewer tokens
            continue
        drawn = view.draw(laws[len(above)], len(children), index)
        nodes |= {path: at for at, path in enumerate(children[: len(drawn)], len(tokens))}
        tokens += drawn
        parents += [nodes[above]] * len(drawn)
        q_rows += [len(above)] * len(drawn)
    if not tokens:
        return DraftTree()
    tokens = tokens if id_map is None else id_map[tokens].tolist()
    return DraftTree(tuple(tokens), tuple(parents), tuple(q_rows), DraftLaws(laws, id_map))
