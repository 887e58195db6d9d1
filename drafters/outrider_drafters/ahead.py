"""What drafters that make logits have in common: rows that sit out, the draft's laws, and scores that are learned."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from pydantic import Field

from outrider import (
    DraftBatch,
    Drafter,
    DrafterOptions,
    DraftTree,
    DraftView,
    Expansion,
    Guess,
    Law,
    Outcome,
    Shape,
    Sharpness,
    TargetInfo,
    TreeBatch,
)


class AheadOptions(DrafterOptions):
    """Options of how tokens are chosen by logits."""

    temperature: float | None = Field(default=None, gt=0.0, description="of the draft; by default the target's")
    coupled: bool = Field(default=True, description="choose with the target's own noise where it draws by it")


class Ahead(Drafter[Any]):
    """Chooses tokens by logits of its own."""

    def __init__(self, target: TargetInfo, options: Any) -> None:
        super().__init__(target, options)
        self._sharpness = Sharpness()
        self._scores: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}

    def end(self, rows: Sequence[int]) -> None:
        """Drop the rows' scores."""
        for row in rows:
            self._scores.pop(row, None)

    def _learn(self, outcome: Outcome) -> None:
        """Learn how well coupled scores tell the target's draws."""
        known = self._scores.pop(outcome.row, None)
        if known is not None and outcome.tokens:
            self._sharpness.learn(known[0], outcome.tokens[0], known[1])

    def _law(self, view: DraftView, logits: torch.Tensor) -> torch.Tensor:
        """Return the laws `[count, draft vocab]` of logits, at the draft's temperature or warped as the target's."""
        heat: float | None = self.options.temperature
        return view.law(logits) if heat is None else (logits.double() / heat).softmax(-1)

    def _expand(
        self,
        views: Sequence[DraftView],
        shape: Shape,
        logits: torch.Tensor,
        guess: Guess,
        id_map: torch.Tensor | None,
        law: Law | None = None,
    ) -> TreeBatch:
        """Grow dynamic trees; the first level's coupled scores are kept until the target's draw is known."""
        expansion = Expansion(views, shape, law or self._law, self._sharpness, id_map)
        trees = expansion.grow(logits, guess)
        if expansion.first is not None:
            self._scores |= {view.row: (scores, id_map) for view, scores in zip(views, expansion.first, strict=True)}
        return trees


def draft_where(batch: DraftBatch, ready: Sequence[bool], draft: Callable[[list[DraftView]], TreeBatch]) -> TreeBatch:
    """Draft for the rows that are ready; the others get an empty tree."""
    places = [at for at, one in enumerate(ready) if one]
    if not places:
        return TreeBatch.pack([DraftTree()] * len(ready))
    return draft([batch.rows[at] for at in places]).among(places, len(ready))
