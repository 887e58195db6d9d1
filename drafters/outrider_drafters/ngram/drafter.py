"""The drafter `ngram`: what followed the last few tokens before is likely to follow them again.

Prompt lookup decoding (Saxena 2023) with an incremental index, several continuations as a tree, and a draft length that
follows from how often such matches held in this text. Beside the text's own prompt and output it can copy from what earlier
requests said, as SuffixDecoding does (Oliaro et al. 2024), and from a file, as REST does (He et al. 2023).
"""

from collections.abc import Sequence
from typing import ClassVar, Protocol, Self

from pydantic import Field, model_validator

from outrider import (
    Capabilities,
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
from outrider_drafters.ngram.belief import MatchBelief
from outrider_drafters.ngram.corpus import read_corpus
from outrider_drafters.ngram.index import Match, NgramIndex, Pick, Tail
from outrider_drafters.ngram.store import SMALLEST, NgramStore
from outrider_drafters.ngram.tree import draft


class NgramOptions(DrafterOptions):
    """Options of `ngram`."""

    min_n: int = Field(default=2, ge=1, le=16, description="shortest match")
    max_n: int = Field(default=6, ge=1, le=16, description="longest match that is looked for")
    draft_tokens: int = Field(default=31, ge=1, le=256, description="longest draft")
    nodes: int = Field(default=31, ge=1, le=256, description="most nodes of a tree")
    pick: Pick = Field(default="all", description="the occurrence that is copied: recent, longest, or all as a tree")
    branching: int = Field(default=3, ge=1, le=16, description="most different continuations of one match")
    store: int = Field(default=0, ge=0, description="most tokens of earlier requests that are kept")
    corpus: str | None = Field(default=None, description="file of text, or of JSON lines, that is copied from too")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.min_n > self.max_n:
            raise ValueError(f"min_n = {self.min_n} is more than max_n = {self.max_n}")
        if self.pick != "all" and "branching" in self.model_fields_set:
            raise ValueError(f"branching is for pick = 'all'; pick = '{self.pick}' copies one continuation")
        if 0 < self.store < SMALLEST:
            raise ValueError(f"store = {self.store}: give 0 for none, or at least {SMALLEST} tokens")
        return self

    def index(self) -> NgramIndex:
        """Return an empty index."""
        return NgramIndex(self.min_n, self.max_n, self.pick, self.branching)


class Source(Protocol):
    """A text that can be copied from."""

    def match(self, tail: Tail) -> Match | None:
        """Look for what a text ends with."""
        ...


class Row:
    """What the drafter holds of one row.

    Args:
        ids: the prompt; grows as the row does.
        index: for the text, empty.
        others: what can be copied from beside the text itself.
    """

    def __init__(self, ids: TokenView, index: NgramIndex, others: Sequence[Source]) -> None:
        self.index = index
        self._ids = ids
        self.index.extend(ids)
        self._sources: list[tuple[Source, MatchBelief]] = [(one, MatchBelief()) for one in (index, *others)]

    def look(self) -> tuple[Match, MatchBelief] | None:
        """Return the longest match and how to trust its source; of equally long ones that of the first source."""
        best: tuple[Match, MatchBelief] | None = None
        tail = self.index.tail
        for source, belief in self._sources:
            match = source.match(tail)
            if match is not None and (best is None or match.length > best[0].length):
                best = match, belief
        return best

    def observe(self, tokens: Sequence[int]) -> None:
        """Learn from new tokens whether matches held, drafted or not, and take them into the index."""
        for token in tokens:
            found = self.look()
            if found is not None:
                match, belief = found
                belief.learn(match, match.rank(token))
            self.index.append(token)

    def truncate(self, length: int) -> None:
        """Take back what is beyond `length`, and take in what the row holds in its place; costs no more than that."""
        self.index.truncate(length)
        self.index.extend(self._ids[len(self.index) :])


class Ngram(RowDrafter[NgramOptions]):
    """Copies what followed the same n-gram earlier in the prompt and the output."""

    name: ClassVar[str] = "ngram"
    requires_api: ClassVar[tuple[int, int]] = (0, 1)
    Options: ClassVar[type[DrafterOptions]] = NgramOptions
    weighs_nodes: ClassVar[bool] = True
    capabilities: ClassVar[Capabilities] = Capabilities(trees=True)

    def __init__(self, target: TargetInfo, options: NgramOptions) -> None:
        super().__init__(target, options)
        self._rows: dict[int, Row] = {}
        self._store = NgramStore(options.store, options.index) if options.store else None
        self._others: list[Source] = [self._store] if self._store is not None else []
        if options.corpus is not None:
            shape = options.min_n, options.max_n, options.pick, options.branching
            self._others.append(read_corpus(options.corpus, target, *shape))

    def begin(self, rows: Sequence[RowStart]) -> None:
        """Index the prompts."""
        for start in rows:
            self._rows[start.row] = Row(start.ids, self.options.index(), self._others)

    def observe(self, batch: OutcomeBatch) -> None:
        """Index what was committed."""
        for outcome in batch.rows:
            self._rows[outcome.row].observe(outcome.tokens)

    def truncate(self, row: int, length: int) -> None:
        """Forget what is beyond `length`; the turn's prompt that follows is taken in."""
        self._rows[row].truncate(length)

    def end(self, rows: Sequence[int]) -> None:
        """Drop the rows; the store, where there is one, keeps their texts."""
        for row in rows:
            ended = self._rows.pop(row, None)
            if ended is not None and self._store is not None:
                self._store.add(ended.index.ids)

    def propose_row(self, view: DraftView) -> DraftTree:
        """Propose the continuations of the longest match, as many nodes as are worth their cost."""
        found = self._rows[view.row].look()
        if found is None:
            return DraftTree()
        match, belief = found
        paths = match.paths(min(self.options.draft_tokens, view.max_depth))
        return draft(match, paths, belief, min(self.options.nodes, view.max_nodes), view.cost)


@hookimpl
def register_drafters(register):  # type: ignore[no-untyped-def]
    """Register `ngram`."""
    register(Ngram)
