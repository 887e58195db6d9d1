"""What drafters with a causal model of their own have in common: it follows the texts, and trees grow from its logits."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from pydantic import Field

from outrider import (
    DraftBatch,
    DraftView,
    Follower,
    InputError,
    OutcomeBatch,
    RowStart,
    Shape,
    Target,
    TargetInfo,
    TreeBatch,
    draw_trees,
)
from outrider_drafters.ahead import Ahead, AheadOptions, draft_where
from outrider_drafters.vocabulary.intersection import Intersection


class FollowingOptions(AheadOptions):
    """Options of how a drafter's own model drafts."""

    draft_tokens: int = Field(default=4, ge=1, le=63, description="longest draft")
    branching: int = Field(default=1, ge=1, le=16, description="tokens below every node that goes on")
    nodes: int = Field(
        default=0,
        ge=0,
        le=64,
        description="nodes of a dynamic tree; 0 for a chain with siblings, of which the first goes on",
    )
    confidence: float = Field(default=0.0, ge=0.0, lt=1.0, description="stop below this chance of the draft so far")


class Following(Ahead):
    """Lets a causal model guess what comes next: greedily, coupled to the target's noise, or drawn."""

    def __init__(self, target: TargetInfo, options: Any) -> None:
        super().__init__(target, options)
        self._model = self._load()
        self._follower = Follower(self._model)
        if options.nodes and not self._follower.trees:
            raise InputError(
                f"drafter '{self.name}': {type(self._model.model).__name__} reads chains only (tier {self._model.tier.name}); "
                f"leave out nodes"
            )
        self._shared = min(target.vocab_size, self._model.info.vocab_size)

    @abstractmethod
    def _load(self) -> Target:
        """Return the model that drafts."""

    def begin(self, rows: Sequence[RowStart]) -> None:
        """Open a cache for the rows."""
        self._follower.begin([start.row for start in rows])

    def observe(self, batch: OutcomeBatch) -> None:
        """Learn how well coupled scores tell the target's draws."""
        for outcome in batch.rows:
            self._learn(outcome)

    def truncate(self, row: int, length: int) -> None:
        """Go on from the first `length` ids."""
        self._follower.forget(row, length)

    def end(self, rows: Sequence[int]) -> None:
        """Drop the rows' caches."""
        super().end(rows)
        self._follower.end(rows)

    def propose(self, batch: DraftBatch) -> TreeBatch:
        """Propose trees of the model's tokens; nothing where a text is too long for it."""
        texts = {view.row: self._text(view) for view in batch.rows}

        def draft(views: Sequence[DraftView]) -> TreeBatch:
            rows = [view.row for view in views]
            return self._grow(views, self._follower.read(rows, [texts[row] for row in rows]))

        return draft_where(batch, [self._room(view, texts[view.row]) for view in batch.rows], draft)

    def _text(self, view: DraftView) -> Sequence[int]:
        """Return what the model reads of a row; nothing for a row that pauses."""
        return view.ids

    def _grow(self, views: Sequence[DraftView], logits: torch.Tensor, common: Intersection | None = None) -> TreeBatch:
        """Grow trees from the model's logits after the texts, of all tokens or of those in common."""
        ids = None if common is None else common.id_map

        def law(view: DraftView, logits: torch.Tensor) -> torch.Tensor:
            return self._law(view, logits[..., : self._shared] if common is None else common.restrict(logits))

        def guess(tokens: torch.Tensor, parents: torch.Tensor | None) -> torch.Tensor:
            return self._follower.guess(tokens if common is None else common.draft_ids[tokens], parents)

        if views[0].wants_q:
            return draw_trees(views, self._shape(), law, logits, guess, ids)
        return self._expand(views, self._shape(), logits, guess, ids, law)

    def _shape(self) -> Shape:
        options = self.options
        beams = options.branching if options.nodes else 1
        most = options.nodes or options.draft_tokens * options.branching
        return Shape(options.draft_tokens, options.branching, beams, most, options.confidence, options.coupled)

    def _room(self, view: DraftView, text: Sequence[int]) -> bool:
        # All rows are read as deep as the deepest of them, whatever room each of them has.
        longest, depth = self._model.info.max_positions, self.options.draft_tokens
        return view.max_depth > 0 and len(text) > 0 and (longest is None or len(text) + depth <= longest)
