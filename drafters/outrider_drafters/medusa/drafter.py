"""The drafter `medusa`: heads that guess several tokens ahead from one hidden state (Cai et al. 2024, arXiv:2401.10774).

Head k guesses the token k + 1 below the root without knowing those between, so all nodes of a depth share their candidates.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import torch
from pydantic import Field

from outrider import (
    Capabilities,
    Choices,
    DraftBatch,
    DrafterOptions,
    DraftView,
    HeadsExport,
    HeadsFolder,
    HeadsReport,
    InputError,
    ModelError,
    Needs,
    OutcomeBatch,
    Shape,
    TargetInfo,
    Trainee,
    TrainStart,
    TreeBatch,
    draw_choices,
    find_heads,
    hookimpl,
    place_of,
    raw_scores,
)
from outrider_drafters.ahead import Ahead, AheadOptions, draft_where
from outrider_drafters.medusa.checkpoint import read_accuracies, read_heads
from outrider_drafters.medusa.export import export_medusa
from outrider_drafters.medusa.report import inspect_medusa
from outrider_drafters.medusa.training import MedusaTrainOptions, make_trainee
from outrider_drafters.medusa.trees import PRESETS, accuracies, preset
from outrider_drafters.medusa.writing import LAYOUTS

_DERIVED: Final = "derived"
_DYNAMIC: Final = "dynamic"


class MedusaOptions(AheadOptions):
    """Options of `medusa`."""

    heads: HeadsFolder | None = Field(default=None, description="their folder; by default one that a package offers")
    tree: str = Field(
        default=_DERIVED,
        description="derived from how often heads are right, dynamic (by score), mc_sim_7b_63, or a file of paths of ranks",
    )
    depth: int | None = Field(default=None, ge=1, description="longest draft; by default as many as heads")
    nodes: int | None = Field(
        default=None, ge=1, le=64, description="most nodes; by default 24, or all of a given tree"
    )
    branching: int | None = Field(default=None, ge=1, le=64, description="candidates of a depth; by default 10")
    dtype: str | None = Field(default=None, description="of the heads; by default the target's")
    device: str | None = Field(default=None, description="of the heads; by default the target's")


@dataclass(frozen=True, slots=True)
class _State:
    """The target's final state `[hidden]` at a place in the row's ids."""

    place: int
    values: torch.Tensor


class Medusa(Ahead):
    """Lets heads on the target's last state guess the tokens after the next."""

    name: ClassVar[str] = "medusa"
    requires_api: ClassVar[tuple[int, int]] = (0, 1)
    Options: ClassVar[type[DrafterOptions]] = MedusaOptions
    capabilities: ClassVar[Capabilities] = Capabilities(
        requires="heads trained for the model", trees=True, coupled=True, drawn=True
    )
    TrainOptions: ClassVar[type[DrafterOptions]] = MedusaTrainOptions
    trained_as: ClassVar[str] = "heads"
    layouts: ClassVar[tuple[str, ...]] = LAYOUTS

    def __init__(self, target: TargetInfo, options: MedusaOptions) -> None:
        super().__init__(target, options)
        folder = options.heads or str(find_heads(self.name, target))
        self.options = options = options.model_copy(update={"heads": folder})
        try:
            heads, id_map = read_heads(folder, target)
        except ModelError as error:
            raise InputError(f"drafter 'medusa': {error}") from error
        dtype, device = place_of(options.dtype, options.device)
        self._dtype = dtype or target.dtype
        self._device = device or torch.device("cpu" if target.device.type == "meta" else target.device)
        self._heads = heads.to(self._device, self._dtype)
        self._id_map = id_map
        self._vocab = len(id_map) if id_map is not None else target.vocab_size
        self._choices = self._shape()
        self._depth = self._choices.depth
        if options.tree == _DYNAMIC:  # as deep as there are heads, whatever shape is the best on average
            self._depth = options.depth or heads.shape.heads
        self._states: dict[int, _State] = {}

    @classmethod
    def trainee(cls, start: TrainStart, options: MedusaTrainOptions) -> Trainee:
        """Make heads to train; see `outrider.Trains`."""
        return make_trainee(start, options)

    @classmethod
    def inspect_heads(cls, folder: Path, target: TargetInfo | None) -> HeadsReport | None:
        """Report on a folder of heads; see `outrider.ReadsHeads`."""
        return inspect_medusa(folder, target)

    @classmethod
    def export_heads(cls, export: HeadsExport) -> None:
        """Write heads in another layout; see `outrider.WritesHeads`."""
        export_medusa(export)

    def _shape(self) -> Choices:
        """Return the fixed tree; a dynamic one has its depth, and its shape where the rule wants drawn drafts.

        Raises:
            InputError: the options contradict each other, or the tree does not fit the heads.
        """
        options, heads = self.options, self._heads.shape.heads
        depth, tree = options.depth or heads, options.tree
        if depth > heads:
            raise InputError(f"drafter 'medusa': depth = {depth}, and there are {heads} heads in {options.heads}")
        if tree in (_DERIVED, _DYNAMIC):
            ranks = min(options.branching or 10, self._vocab)
            measured = read_accuracies(options.heads or "")
            chances = accuracies(depth, ranks) if measured is None else tuple(row[:ranks] for row in measured[:depth])
            return Choices.derived(chances, options.nodes or 24)
        if options.branching is not None:
            raise InputError(f"drafter 'medusa': branching belongs to tree = 'derived' and 'dynamic', not to '{tree}'")
        if tree not in PRESETS and not Path(tree).is_file():
            known = ", ".join((_DERIVED, _DYNAMIC, *PRESETS))
            raise InputError(f"drafter 'medusa': tree = '{tree}' is none of {known}, and no file")
        choices = preset(tree) if tree in PRESETS else Choices.read(tree)
        choices = choices.within(options.depth or choices.depth, options.nodes or len(choices))
        if choices.depth > heads:
            raise InputError(
                f"drafter 'medusa': the tree '{tree}' is {choices.depth} deep, and there are {heads} heads in "
                f"{options.heads}; depth = {heads} cuts it"
            )
        if choices.ranks > self._vocab:
            raise InputError(
                f"drafter 'medusa': the tree '{tree}' takes rank {choices.ranks - 1}, and the heads know {self._vocab} tokens"
            )
        return choices

    def needs(self) -> Needs:
        """Ask for the final states, which the target's own head reads."""
        return Needs(hidden=frozenset({self.target.num_layers}))

    def observe(self, batch: OutcomeBatch) -> None:
        """Keep the state that gave the root, and learn how well coupled scores tell the target's draws."""
        for outcome in batch.rows:
            features = outcome.features
            if features is not None and features.kept:
                last = features.states[self.target.num_layers][features.kept[-1]]
                self._states[outcome.row] = _State(features.first + len(features.kept) - 1, last.clone())
            self._learn(outcome)

    def truncate(self, row: int, length: int) -> None:  # noqa: ARG002
        """Forget the state: the next turn brings one."""
        self._states.pop(row, None)

    def end(self, rows: Sequence[int]) -> None:
        """Drop the rows."""
        super().end(rows)
        for row in rows:
            self._states.pop(row, None)

    def propose(self, batch: DraftBatch) -> TreeBatch:
        """Propose trees of the heads' candidates; nothing for a row whose last state is not known."""
        return draft_where(batch, [self._ready(view) for view in batch.rows], self._draft)

    def _draft(self, views: Sequence[DraftView]) -> TreeBatch:
        states = torch.stack([self._states[view.row].values for view in views])
        depth = min(self._depth, max(view.max_depth for view in views))
        logits = self._heads(states.to(self._device, self._dtype), depth)
        if self._id_map is not None:
            self._id_map = self._id_map.to(logits.device)
        return self._grow(views, logits)

    def _ready(self, view: DraftView) -> bool:
        state = self._states.get(view.row)
        # The root was drawn from the state before it.
        return view.max_depth > 0 and state is not None and state.place == len(view.ids) - 2

    def _grow(self, views: Sequence[DraftView], logits: torch.Tensor) -> TreeBatch:
        """Make trees of logits `[rows, depth, draft vocab]`."""
        if views[0].wants_q:
            laws = [self._law(view, own).double() for view, own in zip(views, logits, strict=True)]
            laws = [law / law.sum(-1, keepdim=True) for law in laws]
            return draw_choices(views, self._choices.within(logits.shape[1], 64), laws, self._id_map)
        if self.options.tree == _DYNAMIC:
            return self._dynamic(views, logits)
        found, coupled = self._candidates(views, logits)
        return self._choices.trees(
            views, lambda depth, _: found[:, depth - 1, None], found.device, self._id_map, coupled=coupled
        )

    def _dynamic(self, views: Sequence[DraftView], logits: torch.Tensor) -> TreeBatch:
        options = self.options
        nodes, branching = options.nodes or 24, min(options.branching or 10, self._vocab)
        shape = Shape(logits.shape[1], branching, nodes, nodes, coupled=options.coupled)
        later: Iterator[torch.Tensor] = iter(logits.unbind(1)[1:])
        return self._expand(
            views,
            shape,
            logits[:, 0],
            lambda tokens, parents: next(later)[:, None],  # noqa: ARG005
            self._id_map,
        )

    def _candidates(self, views: Sequence[DraftView], logits: torch.Tensor) -> tuple[torch.Tensor, bool]:
        """Return draft ids `[rows, depth, ranks]`, and whether they were chosen with noise."""
        ranks = self._choices.ranks
        if not (self.options.coupled and views[0].noise(1, torch.zeros(1, dtype=torch.long)) is not None):
            return logits.topk(ranks).indices, False
        found = []
        for view, own in zip(views, logits, strict=True):
            law = self._law(view, own).double()
            raw = [raw_scores(view, law[at : at + 1], at + 1, self._id_map, coupled=True)[0] for at in range(len(law))]
            values, tokens = torch.cat(raw).topk(ranks)
            found.append(tokens.masked_fill(values == -torch.inf, -1))
        return torch.stack(found), True


@hookimpl
def register_drafters(register):  # type: ignore[no-untyped-def]
    """Register `medusa`."""
    register(Medusa)
