"""The drafters `eagle` and `eagle3`: a small layer that goes on from the target's own features.

EAGLE (Li et al. 2024, arXiv:2401.15077), EAGLE-2's dynamic trees (arXiv:2406.16858) and EAGLE-3 (Li et al. 2025,
arXiv:2503.01840).
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import Field

from outrider import (
    MAX_NODES,
    Capabilities,
    Choices,
    DraftBatch,
    DrafterOptions,
    DraftView,
    Groups,
    HeadsExport,
    HeadsFolder,
    HeadsReport,
    InputError,
    Needs,
    OutcomeBatch,
    RowCache,
    RowStart,
    Shape,
    TargetInfo,
    Trainee,
    TrainStart,
    TreeBatch,
    draw_trees,
    find_heads,
    grow_choices,
    hookimpl,
)
from outrider_drafters.ahead import Ahead, AheadOptions, draft_where
from outrider_drafters.eagle.config import Method
from outrider_drafters.eagle.export import export_eagle
from outrider_drafters.eagle.layer import EagleLayer, load_layer
from outrider_drafters.eagle.reader import EagleGroup, Pairs
from outrider_drafters.eagle.report import inspect_eagle
from outrider_drafters.eagle.training import EagleTrainOptions, make_trainee
from outrider_drafters.eagle.words import layouts_of

_LATE = 2048
"""Pairs of a row that are read at once; more of a prompt are not kept waiting for the next draft."""


class EagleOptions(AheadOptions):
    """Options of `eagle` and `eagle3`."""

    heads: HeadsFolder | None = Field(
        default=None, description="the checkpoint's folder; by default one that a package offers"
    )
    depth: int = Field(default=5, ge=1, le=16, description="longest draft")
    branching: int = Field(
        default=6, ge=1, le=16, description="tokens below every node that goes on, and nodes that go on"
    )
    nodes: int = Field(default=24, ge=1, le=64, description="nodes of the tree")
    tree: str = Field(default="dynamic", description="dynamic, or a file of rank paths for a tree of a fixed shape")
    confidence: float = Field(default=0.0, ge=0.0, lt=1.0, description="stop below this chance of the draft so far")
    layers: tuple[int, ...] | None = Field(
        default=None,
        description="the target's layers whose states are read, as in hidden_states: [2, 15, 27]; by default the checkpoint's",
    )
    dtype: str | None = Field(default=None, description="of the layer; by default the target's")
    device: str | None = Field(default=None, description="of the layer; by default the target's")


class EagleRows(Groups[Pairs, EagleGroup]):
    """The rows' pairs, by the rows' ids."""

    def __init__(self, layer: EagleLayer) -> None:
        super().__init__()
        self._layer = layer

    def _open(self, rows: int) -> list[EagleGroup]:
        return [EagleGroup(self._layer, rows, RowCache(rows, 256, self._layer.device), self._layer.id_map)]


class Eagle(Ahead):
    """Grows trees from the features of the target's last layer (EAGLE-1 and -2 checkpoints)."""

    name: ClassVar[str] = "eagle"
    method: ClassVar[Method] = "eagle"
    requires_api: ClassVar[tuple[int, int]] = (0, 1)
    Options: ClassVar[type[DrafterOptions]] = EagleOptions
    capabilities: ClassVar[Capabilities] = Capabilities(
        requires="a layer trained for the model", trees=True, coupled=True, drawn=True
    )
    TrainOptions: ClassVar[type[DrafterOptions]] = EagleTrainOptions
    trained_as: ClassVar[str] = "heads"
    layouts: ClassVar[tuple[str, ...]] = layouts_of("eagle")

    def __init__(self, target: TargetInfo, options: EagleOptions) -> None:
        super().__init__(target, options)
        if options.heads is None:
            options = options.model_copy(update={"heads": str(find_heads(self.name, target))})
        self._layer = load_layer(self.method, target, options)
        self._choices = None if options.tree == "dynamic" else self._read_tree(options.tree)
        self._rows = EagleRows(self._layer)
        self._new: dict[int, list[Pairs]] = {}
        self._last: dict[int, Pairs] = {}
        self._told = False

    @classmethod
    def trainee(cls, start: TrainStart, options: EagleTrainOptions) -> Trainee:
        """Make a head to train; see `outrider.Trains`."""
        return make_trainee(cls.method, start, options)

    @classmethod
    def inspect_heads(cls, folder: Path, target: TargetInfo | None) -> HeadsReport | None:
        """Say what a folder of heads holds; None where it is nothing of this drafter's."""
        return inspect_eagle(folder, target, cls.method)

    @classmethod
    def export_heads(cls, export: HeadsExport) -> None:
        """Write heads in another layout; see `outrider.WritesHeads`."""
        export_eagle(export)

    def _read_tree(self, file: str) -> Choices:
        choices = Choices.read(file)
        if choices.ranks > self._layer.draft_vocab:
            raise InputError(
                f"tree {file} looks at {choices.ranks} candidates of a node, and the heads know "
                f"{self._layer.draft_vocab} tokens"
            )
        return choices.within(choices.depth, MAX_NODES)

    def needs(self) -> Needs:
        """Ask for the features that the checkpoint was made for."""
        return Needs(hidden=frozenset(self._layer.feature_layers))

    def begin(self, rows: Sequence[RowStart]) -> None:
        """Open a cache for the rows."""
        self._rows.begin([start.row for start in rows])
        self._new |= {start.row: [] for start in rows}

    def observe(self, batch: OutcomeBatch) -> None:
        """Pair features with the tokens after them."""
        for outcome in batch.rows:
            self._learn(outcome)
            features = outcome.features
            if features is None:
                continue
            states = torch.cat([features.hidden(layer) for layer in self._layer.feature_layers], -1)
            tokens = outcome.ids[features.first + 1 : features.first + 1 + len(states)]
            self._new[outcome.row].append(Pairs(features.first, states[: len(tokens)], tuple(tokens)))
        late = [one.row for one in batch.rows if sum(len(new.tokens) for new in self._new[one.row]) >= _LATE]
        if late:
            self._read(late)

    def truncate(self, row: int, length: int) -> None:
        """Go on from the first `length` ids."""
        kept = [_first(pairs, length - pairs.start) for pairs in self._new[row] if pairs.start < length]
        self._new[row] = kept
        self._last.pop(row, None)
        self._rows.forget(row, length)

    def end(self, rows: Sequence[int]) -> None:
        """Drop the rows."""
        super().end(rows)
        self._rows.end(rows)
        for row in rows:
            self._new.pop(row, None)
            self._last.pop(row, None)

    def propose(self, batch: DraftBatch) -> TreeBatch:
        """Grow trees below the rows' last tokens."""
        ready = [self._ready(view) for view in batch.rows]
        return draft_where(batch, ready, lambda views: self._grow(views, self._read([view.row for view in views])))

    def _ready(self, view: DraftView) -> bool:
        depth = self.options.depth if self._choices is None else self._choices.depth
        known = bool(self._new[view.row]) or view.row in self._last
        return view.max_depth > 0 and known and self._reaches(len(view.ids) + depth)

    def _reaches(self, length: int) -> bool:
        """Whether the heads were made for texts of a length; where not, that is said once."""
        longest = self._layer.max_positions
        if longest is None or length <= longest:
            return True
        if not self._told:
            self._told = True
            warnings.warn(
                f"drafter '{self.name}': {self._layer.limit}, so longer texts go on without drafts", stacklevel=2
            )
        return False

    def _read(self, rows: Sequence[int]) -> torch.Tensor:
        joined = []
        for row in rows:
            # Where all was read before the draft was asked for, the last pair is read again for its logits.
            pairs = _join(self._new[row] or [self._last[row]])
            self._new[row], self._last[row] = [], _last(pairs)
            joined.append(pairs)
        return self._rows.read(rows, joined)

    def _grow(self, views: Sequence[DraftView], logits: torch.Tensor) -> TreeBatch:
        options, guess, ids = self.options, self._rows.guess, self._layer.id_map
        shape = Shape(
            options.depth, options.branching, options.branching, options.nodes, options.confidence, options.coupled
        )
        if views[0].wants_q:
            if self._choices is not None:
                raise InputError(
                    f"tree {options.tree} can't be drawn under {views[0].rule}: leave it out, or take match"
                )
            return draw_trees(views, shape, self._law, logits, guess, ids)
        if self._choices is not None:
            return grow_choices(views, self._choices, self._law, logits, guess, ids, coupled=options.coupled)
        return self._expand(views, shape, logits, guess, ids)


class Eagle3(Eagle):
    """Grows trees from features of low, middle and high layers of the target (EAGLE-3 checkpoints)."""

    name: ClassVar[str] = "eagle3"
    method: ClassVar[Method] = "eagle3"
    layouts: ClassVar[tuple[str, ...]] = layouts_of("eagle3")


def _first(pairs: Pairs, count: int) -> Pairs:
    return Pairs(pairs.start, pairs.features[:count], pairs.tokens[:count])


def _last(pairs: Pairs) -> Pairs:
    return Pairs(pairs.start + len(pairs.tokens) - 1, pairs.features[-1:].clone(), pairs.tokens[-1:])


def _join(parts: Sequence[Pairs]) -> Pairs:
    """Put pairs together that follow each other; where a later part begins again, it counts."""
    parts = [
        _first(one, other.start - one.start) if other is not None else one
        for one, other in zip(parts, [*parts[1:], None], strict=True)
    ]
    tokens: list[Any] = [token for one in parts for token in one.tokens]
    return Pairs(parts[0].start, torch.cat([one.features for one in parts]), tuple(tokens))


@hookimpl
def register_drafters(register):  # type: ignore[no-untyped-def]
    """Register `eagle` and `eagle3`."""
    register(Eagle)
    register(Eagle3)
