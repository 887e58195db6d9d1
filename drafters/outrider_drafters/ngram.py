"""The drafter `ngram`: what followed the last few tokens before is likely to follow them again.

Prompt lookup decoding (Saxena 2023) with an incremental index, several continuations as a tree, and a draft length that
follows from how often such matches held in this text.
"""

from collections.abc import Sequence
from typing import ClassVar, Self

from pydantic import Field, model_validator

from outrider import (
    DrafterOptions,
    DraftTree,
    DraftView,
    OutcomeBatch,
    RowDrafter,
    RowStart,
    TargetInfo,
    TokenView,
    hookimpl,
)
from outrider.draft.cost import best_size
from outrider_drafters.ngram_belief import MatchBelief
from outrider_drafters.ngram_index import NgramIndex, continuation


class NgramOptions(DrafterOptions):
    """Options of `ngram`."""

    min_n: int = Field(default=2, ge=1, le=16, description="shortest match")
    max_n: int = Field(default=6, ge=1, le=16, description="longest match that is looked for")
    draft_tokens: int = Field(default=31, ge=1, le=256, description="longest draft")
    nodes: int = Field(default=31, ge=1, le=256, description="most nodes of a tree")
    branching: int = Field(default=3, ge=1, le=16, description="most different continuations of one match")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_n > self.max_n:
            raise ValueError(f"min_n = {self.min_n} is more than max_n = {self.max_n}")
        return self


class Row:
    """What the drafter holds of one row."""

    def __init__(self, ids: TokenView, options: NgramOptions) -> None:
        self.ids = ids
        self.belief = MatchBelief()
        self._options = options
        self.restart(len(ids))

    def restart(self, length: int) -> None:
        """Index the first `length` ids anew."""
        self.index = NgramIndex(self._options.min_n, self._options.max_n, self._options.branching)
        self.index.extend(self.ids, length)

    def observe(self, tokens: Sequence[int]) -> None:
        """Learn from new tokens whether matches held, drafted or not, and take them into the index."""
        for position in range(len(self.ids) - len(tokens), len(self.ids)):
            match = self.index.match(self.ids, position)
            if match is not None:
                self.belief.learn(match, match.rank(self.ids, self.ids[position]))
            self.index.extend(self.ids, position + 1)


class Ngram(RowDrafter[NgramOptions]):
    """Copies what followed the same n-gram earlier in the prompt and the output."""

    name: ClassVar[str] = "ngram"
    requires_api: ClassVar[tuple[int, int]] = (0, 1)
    Options: ClassVar[type[DrafterOptions]] = NgramOptions

    def __init__(self, target: TargetInfo, options: NgramOptions) -> None:
        super().__init__(target, options)
        self._rows: dict[int, Row] = {}

    def begin(self, rows: Sequence[RowStart]) -> None:
        """Index the prompts."""
        for start in rows:
            self._rows[start.row] = Row(start.ids, self.options)

    def observe(self, batch: OutcomeBatch) -> None:
        """Index what was committed."""
        for outcome in batch.rows:
            self._rows[outcome.row].observe(outcome.tokens)

    def truncate(self, row: int, length: int) -> None:
        """Forget what is beyond `length`, and index the turn's prompt that follows."""
        if length < self._rows[row].index.length:
            self._rows[row].restart(length)
        self._rows[row].index.extend(self._rows[row].ids)

    def end(self, rows: Sequence[int]) -> None:
        """Drop the rows' indexes."""
        for row in rows:
            self._rows.pop(row, None)

    def propose_row(self, view: DraftView) -> DraftTree:
        """Propose the continuations of the longest match, as many nodes as are worth their cost."""
        row = self._rows[view.row]
        match = row.index.match(view.ids, len(view.ids))
        if match is None:
            return DraftTree()
        depth = min(self.options.draft_tokens, view.max_depth)
        chances: dict[tuple[int, ...], float] = {}
        for rank, position in enumerate(match.positions):
            path = continuation(view.ids, position, depth)
            chance = row.belief.first(match, rank)
            for step in range(1, depth + 1):
                chances[path[:step]] = chance
                chance *= row.belief.next(match.length + step)
        likely = sorted(chances, key=lambda path: (-chances[path], len(path)))
        room = min(self.options.nodes, view.max_nodes)
        size = best_size([chances[path] for path in likely[:room]])
        return DraftTree.from_paths(likely[:size])


@hookimpl
def register_drafters(register):  # type: ignore[no-untyped-def]
    """Register `ngram`."""
    register(Ngram)
