"""The drafter `recycling`: candidates that earlier forwards of the target left unused are tried again.

Token recycling (Luo et al. 2024, arXiv:2408.08696): a matrix of every token's likeliest successors, rewritten from the logits
of all nodes of every step, accepted or not, and a tree of a fixed shape that is read out of it.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Self

import torch
from pydantic import Field, model_validator

from outrider import (
    MAX_NODES,
    Capabilities,
    Choices,
    DraftBatch,
    Drafter,
    DrafterOptions,
    DraftView,
    InputError,
    Needs,
    Outcome,
    OutcomeBatch,
    RowStart,
    TargetInfo,
    TreeBatch,
    hookimpl,
)
from outrider_recycling.shape import static_tree
from outrider_recycling.successors import UNKNOWN, Successors


class RecyclingOptions(DrafterOptions):
    """Options of `recycling`."""

    successors: int = Field(default=8, ge=1, le=64, description="how many of a token's likeliest successors are kept")
    depth: int = Field(default=6, ge=1, le=MAX_NODES, description="longest draft")
    nodes: int = Field(default=24, ge=1, le=MAX_NODES, description="most nodes of the tree")
    tree: str | None = Field(default=None, description="a file of paths of ranks, in place of the derived tree")
    coupled: bool = Field(default=True, description="choose with the target's own noise where it draws by it")
    keep: bool = Field(default=False, description="go on from request to request, and share among the rows of a batch")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        given = {"depth", "nodes"} & self.model_fields_set
        if self.tree is not None and given:
            raise ValueError(f"{min(given)} is for the derived tree, and tree = '{self.tree}' has its own")
        return self


class Recycling(Drafter[RecyclingOptions]):
    """Tries again what the target thought likely after the same tokens before."""

    name: ClassVar[str] = "recycling"
    requires_api: ClassVar[tuple[int, int]] = (0, 1)
    Options: ClassVar[type[DrafterOptions]] = RecyclingOptions
    capabilities: ClassVar[Capabilities] = Capabilities(trees=True, coupled=True)
    expected_failures: Mapping[str, str] = MappingProxyType(
        dict.fromkeys(("accepted-trunk", "accepted-side-branch"), "it learns from what was drafted and rejected, too")
    )

    def __init__(self, target: TargetInfo, options: RecyclingOptions) -> None:
        super().__init__(target, options)
        self._count = min(options.successors, target.vocab_size)
        self._choices = self._shape()
        self._device = torch.device("cpu" if target.device.type == "meta" else target.device)
        self._kept = self._fresh() if options.keep else None
        self._rows: dict[int, Successors] = {}

    def _shape(self) -> Choices:
        options = self.options
        if options.tree is None:
            return static_tree(options.depth, self._count, options.nodes)
        choices = Choices.read(options.tree)
        if choices.ranks > self._count:
            raise InputError(
                f"drafter 'recycling': the tree '{options.tree}' takes rank {choices.ranks - 1}, and {self._count} successors "
                f"are kept; successors = {choices.ranks} keeps enough"
            )
        return choices

    def _fresh(self) -> Successors:
        return Successors(self.target.vocab_size, self._count, self._device)

    def needs(self) -> Needs:
        """Ask for the logits of all nodes."""
        return Needs(logits=True)

    def begin(self, rows: Sequence[RowStart]) -> None:
        """Start with nothing, or with what is kept."""
        for start in rows:
            self._rows[start.row] = self._kept or self._fresh()

    def observe(self, batch: OutcomeBatch) -> None:
        """Take in what the target says after every token that it scored."""
        for outcome in batch.rows:
            if outcome.features is not None and outcome.features.logits is not None:
                self._learn(outcome, outcome.features.logits)

    def _learn(self, outcome: Outcome, logits: torch.Tensor) -> None:
        tokens, worth = _scored(outcome, len(logits))
        scored = torch.tensor([tokens, worth], dtype=torch.long).to(self._device, non_blocking=True)
        self._rows[outcome.row].learn(scored[0], logits.to(self._device), scored[1])

    def end(self, rows: Sequence[int]) -> None:
        """Drop the rows."""
        for row in rows:
            self._rows.pop(row, None)

    def propose(self, batch: DraftBatch) -> TreeBatch:
        """Fill the static tree from the matrix, for all rows level by level."""
        views = batch.rows
        coupled = self.options.coupled and views[0].noise(1, torch.zeros(1, dtype=torch.long)) is not None
        roots = torch.tensor([[view.ids[-1]] for view in views], dtype=torch.long).to(self._device, non_blocking=True)

        def candidates(depth: int, above: torch.Tensor | None) -> torch.Tensor:
            parents = roots if above is None else above
            return torch.stack(
                [self._ranked(view, depth, own, coupled) for view, own in zip(views, parents, strict=True)]
            )

        return self._choices.trees(views, candidates, self._device, coupled=coupled)

    def _ranked(self, view: DraftView, depth: int, parents: torch.Tensor, coupled: bool) -> torch.Tensor:
        """Return the successors `[nodes, ranks]` of tokens `[nodes]`, those first that are the likeliest to be the target's."""
        ids, logits = self._rows[view.row].of(parents)
        noise = view.noise(depth, ids.clamp(min=0)) if coupled else None
        if noise is not None:
            scores = view.law(logits).double().log() + noise
            # Where nothing is known, or nothing is a number, there is no law.
            scores = scores.masked_fill((ids == UNKNOWN) | scores.isnan(), -torch.inf)
            values, order = scores.sort(dim=-1, descending=True, stable=True)
            ids = ids.gather(1, order).masked_fill(values == -torch.inf, UNKNOWN)
        return ids[:, : self._choices.ranks]


def _scored(outcome: Outcome, count: int) -> tuple[list[int], list[int]]:
    """Return the tokens that `count` rows of logits follow, and their worth: of committed ones more than of others."""
    features, ids = outcome.features, outcome.ids
    if features is None or not features.kept:
        return [], []
    committed = {row: ids[features.first + at] for at, row in enumerate(features.kept)}
    if not outcome.tokens and features.first + len(committed) < len(ids):
        return [], []  # how a prompt is cut must not matter, so that only its end counts
    if count < len(committed):  # a piece of the prompt, of which only the last token's are there
        return [ids[features.first + len(committed) - 1]], [0]
    tokens = [ids[features.first], *outcome.tree.tokens]
    tokens += [committed[row] for row in range(len(tokens), count)]  # what others proposed beside it
    return tokens, [row + count * (row in committed) for row in range(count)]


@hookimpl
def register_drafters(register):  # type: ignore[no-untyped-def]
    """Register `recycling`."""
    register(Recycling)
