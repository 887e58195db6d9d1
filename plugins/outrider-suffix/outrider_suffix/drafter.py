"""The drafter `suffix`: what followed the text's last tokens before, as far as it is likely to follow again.

SuffixDecoding (Oliaro et al. 2024, arXiv:2411.04975): suffix trees of bounded depth over the text itself and, on request, over
earlier outputs; the longer the match, the longer the draft.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Self

import torch
from pydantic import Field, model_validator

from outrider import (
    MAX_NODES,
    Capabilities,
    DrafterOptions,
    DraftTree,
    DraftView,
    OutcomeBatch,
    RowDrafter,
    RowStart,
    TargetInfo,
    best_size,
    hookimpl,
)
from outrider_suffix.growth import Draft, Match, Rule, best_draft, grow
from outrider_suffix.store import OutputStore
from outrider_suffix.suffixes import SuffixTree

SMALLEST = 64


class SuffixOptions(DrafterOptions):
    """Options of `suffix`."""

    max_n: int = Field(default=32, ge=2, le=128, description="longest string that is counted")
    nodes: int = Field(default=31, ge=1, le=MAX_NODES, description="most nodes of a draft")
    factor: float = Field(default=4.0, gt=0.0, description="most nodes of a draft for every token of its match")
    least: float = Field(default=0.1, ge=0.0, lt=1.0, description="least chance of a node")
    tree: bool = Field(default=True, description="draft trees; else chains")
    coupled: bool = Field(default=True, description="choose with the target's own noise where it draws by it")
    store: int = Field(default=0, ge=0, description="most tokens of earlier outputs that are kept")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if 0 < self.store < SMALLEST:
            raise ValueError(f"store = {self.store}: give 0 for none, or at least {SMALLEST} tokens")
        return self


class Row:
    """What the drafter holds of one row.

    Args:
        start: the row.
        depth: of its tree.
    """

    def __init__(self, start: RowStart, depth: int) -> None:
        self.tree = SuffixTree(depth)
        self.tree.extend(start.ids)
        self._ids = start.ids
        self._answer = len(start.ids)

    @property
    def output(self) -> list[int]:
        """What the row has said after its last prompt."""
        return list(self.tree.ids[self._answer :])

    def truncate(self, length: int) -> None:
        """Go on from the first `length` ids, with the next turn's prompt."""
        self.tree.truncate(length)
        self.tree.extend(self._ids[len(self.tree) :])
        self._answer = len(self.tree)


class Suffix(RowDrafter[SuffixOptions]):
    """Copies the likeliest continuations of the longest strings that the text ends with."""

    name: ClassVar[str] = "suffix"
    requires_api: ClassVar[tuple[int, int]] = (0, 1)
    Options: ClassVar[type[DrafterOptions]] = SuffixOptions
    weighs_nodes: ClassVar[bool] = True
    capabilities: ClassVar[Capabilities] = Capabilities(trees=True, coupled=True)

    def __init__(self, target: TargetInfo, options: SuffixOptions) -> None:
        super().__init__(target, options)
        self._rows: dict[int, Row] = {}
        self._store = OutputStore(options.store, options.max_n) if options.store else None

    def begin(self, rows: Sequence[RowStart]) -> None:
        """Count the prompts."""
        for start in rows:
            self._rows[start.row] = Row(start, self.options.max_n)

    def observe(self, batch: OutcomeBatch) -> None:
        """Count what was committed."""
        for outcome in batch.rows:
            self._rows[outcome.row].tree.extend(outcome.tokens)

    def truncate(self, row: int, length: int) -> None:
        """Forget what is beyond `length`; the store keeps what was said."""
        self._keep(self._rows[row])
        self._rows[row].truncate(length)

    def end(self, rows: Sequence[int]) -> None:
        """Drop the rows; the store, where there is one, keeps what they said."""
        for row in rows:
            ended = self._rows.pop(row, None)
            if ended is not None:
                self._keep(ended)

    def propose_row(self, view: DraftView) -> DraftTree:
        """Propose the draft that promises the most tokens, as many nodes as are worth their cost."""
        options = self.options
        rule = Rule(min(options.nodes, view.max_nodes), view.max_depth, options.factor, options.least, options.tree)
        draft = best_draft(self._matches(view.row), rule)
        if draft is None:
            return DraftTree()
        coupled = False
        if options.coupled and view.noise(1, torch.zeros(1, dtype=torch.long)) is not None:
            # The noise tells which of several continuations the target draws, so that unlikely ones count too.
            draft, coupled = self._regrow(draft, replace(rule, least=0.0), view)
        return draft.first(best_size(draft.chances, view.cost), coupled=coupled)

    def _matches(self, row: int) -> list[list[Match]]:
        tree = self._rows[row].tree
        found = [[Match(tree, node, length) for length, node in enumerate(tree.ends, 1)]]
        if self._store is not None:
            tail = tree.tail(self.options.max_n)
            for other in self._store.trees:
                found += [[Match(other, node, length) for length, node in enumerate(other.find(tail), 1)]]
        return found

    def _regrow(self, draft: Draft, rule: Rule, view: DraftView) -> tuple[Draft, bool]:
        """Grow a draft by log q + noise: what is largest is the likeliest to be the target's own draw.

        Returns:
            The draft, and whether there was anything to choose by the noise.
        """
        chosen = False

        def shares(depth: int, tokens: list[int], known: list[float]) -> list[float]:
            nonlocal chosen
            chosen = chosen or len(tokens) > 1
            noise = view.noise(depth, torch.tensor(tokens, dtype=torch.long)) if len(tokens) > 1 else None
            if noise is None:
                return known
            chances = (torch.tensor(known, dtype=torch.float64).log() + noise.cpu()).softmax(-1) * sum(known)
            found: list[float] = chances.tolist()
            return found

        return grow(draft.match, rule, shares), chosen

    def _keep(self, row: Row) -> None:
        if self._store is not None and row.output:
            self._store.add(row.output)


@hookimpl
def register_drafters(register):  # type: ignore[no-untyped-def]
    """Register `suffix`."""
    register(Suffix)
