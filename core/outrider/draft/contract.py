"""What a drafter is, what it sees, and what it is told.

Data goes one way round the step: a drafter sees read-only views of the rows, proposes a tree for each, and hears what
came of it. It never touches the target's cache, and nothing that it proposes can change the text.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar, get_args, get_origin, overload

import torch
from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from outrider.draft.batch import TreeBatch
from outrider.draft.capabilities import Capabilities
from outrider.draft.cost import StepCost, typical_cost
from outrider.draft.features import Features, Needs
from outrider.draft.tree import DraftTree

API: Final = (0, 1)
"""Version of this contract: a plugin of the same major and no later minor version works."""


class DrafterOptions(BaseModel):
    """Base of every drafter's options: unknown names and wrong types are errors, values never change.

    A list serves where an option is a tuple: the command line, TOML and JSON have no other way to write one. `positional` names
    the option, a list, that takes the items without a key in `NAME[item,...]`.
    """

    positional: ClassVar[str | None] = None

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @field_validator("*", mode="before")
    @classmethod
    def _tuples_of_lists(cls, value: Any, info: ValidationInfo) -> Any:
        return _as_tuples(value, cls.model_fields[info.field_name or ""].annotation)


def _as_tuples(value: Any, kind: Any) -> Any:
    """Return a list as a tuple where a type has one there, inside it too."""
    found = get_args(kind)
    if not isinstance(value, list) or kind is list or get_origin(kind) is list:
        return value
    if kind is not tuple and get_origin(kind) is not tuple:  # a union, or a type with notes
        return next((made for made in (_as_tuples(value, one) for one in found) if made is not value), value)
    several = len(found) == 2 and found[1] is Ellipsis
    kinds = [found[0]] * len(value) if several else [*found, *[None] * len(value)][: len(value)]
    return tuple(_as_tuples(one, each) for one, each in zip(value, kinds, strict=True))


OptionsT = TypeVar("OptionsT", bound=DrafterOptions)


class TokenView(Sequence[int]):
    """The committed token ids of a row, read-only; they grow as the row does.

    They are a copy: a drafter that changes them none the less deceives nobody but itself.
    """

    __slots__ = ("_ids",)

    def __init__(self, ids: Iterable[int]) -> None:
        self._ids = list(ids)

    def grow(self, tokens: Iterable[int]) -> None:
        """Take in newly committed ids; called by the row."""
        self._ids.extend(tokens)

    def replace(self, length: int, ids: Iterable[int]) -> None:
        """Forget what is beyond `length` ids and take in others; called by the row."""
        self._ids[length:] = ids

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        return self._ids[index]

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)


class TargetHead(Protocol):
    """The target's head."""

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """Return logits `[..., vocab]` of final states `[..., hidden]`, with the model's factor and soft cap."""
        ...

    def narrow(self, ids: torch.Tensor) -> "TargetHead":
        """Return a head of some tokens `[tokens]` only, on copies of their rows."""
        ...


class TargetParts(Protocol):
    """The target's own modules, for drafters to use and not to change."""

    @property
    def embeddings(self) -> Callable[[torch.Tensor], torch.Tensor]:
        """Makes of ids `[...]` what the first decoder layer reads, `[..., hidden]`."""
        ...

    @property
    def head(self) -> TargetHead:
        """Makes logits of final states, after the last norm.

        Raises:
            ModelError: the model's logits come about in another way.
        """
        ...

    @property
    def config(self) -> Any:
        """A copy of the config of the model's text part."""
        ...

    def layer(self, index: int) -> Any:
        """Return a decoder layer, counted from 0, or from the end below it.

        Raises:
            ModelError: the model has no list of layers.
        """
        ...

    def early_exit(self, layers: int) -> Any:
        """Return a transformers model of the target's first decoder layers, with its norm and head and the same weights.

        Raises:
            ModelError: the model's layers are no list that could be shortened.
        """
        ...


@dataclass(frozen=True, slots=True)
class TargetInfo:
    """What a drafter may know of the target.

    Args:
        vocab_size: tokens that the target's head scores.
        hidden_size: width of the target's hidden states.
        num_layers: number of decoder layers.
        max_positions: longest context in which drafts are verified: what the target was made for, or where it changes its
            rotary frequencies; None where its config names neither.
        eos_ids: ids that end a text by the model's own generation config.
        dtype: of the target's weights.
        device: where the target takes its input.
        tokenizer: the target's tokenizer, or None.
        parts: the model's own modules, as far as drafters may use them.
    """

    vocab_size: int
    hidden_size: int
    num_layers: int
    max_positions: int | None
    eos_ids: frozenset[int]
    dtype: torch.dtype
    device: torch.device
    tokenizer: Any
    parts: "TargetParts | None" = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class RowStart:
    """A row begins.

    Args:
        row: the row's id, never used again for another row.
        ids: the prompt; grows with what is committed later.
        seed: the row's own seed, for drafters that draw.
        source: the ids that an encoder-decoder reads; empty elsewhere.
    """

    row: int
    ids: TokenView
    seed: int
    source: tuple[int, ...] = ()


class DraftDecisions(Protocol):
    """The random decisions that a row's draft may use; see `DraftView.draw` and `DraftView.noise`."""

    def choose_several(self, law: torch.Tensor, count: int, index: int) -> list[int]:
        """Draw different tokens from a law."""
        ...

    def noise(self, position: int, ids: torch.Tensor) -> torch.Tensor | None:
        """Return the target's noise at a position."""
        ...


@dataclass(frozen=True, slots=True)
class DraftView:
    """A row that wants a draft.

    Args:
        row: the row's id.
        ids: all committed ids; the last is the root of the tree.
        max_depth: longest path that the row can still use, or that adaptive decoding expects to pay.
        max_nodes: most nodes that the target verifies at once.
        rule: how the draft will be verified.
        decisions: where the row's random decisions come from; None when it decodes greedily.
        warp: applies the target's temperature and filters to logits `[rows, vocab]`; see `law`.
        cost: of a target forward in plain steps, by the nodes of the row and its root; measured where decoding is adaptive. For
            drafters that weigh every node's chance against its cost, as `outrider.best_size` does.
    """

    row: int
    ids: TokenView
    max_depth: int
    max_nodes: int
    rule: str = "match"
    decisions: DraftDecisions | None = None
    warp: Callable[[torch.Tensor], torch.Tensor] | None = None
    cost: StepCost = field(default=typical_cost, compare=False)

    def law(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the law q that a model of one's own gives, warped by the target's temperature and filters.

        A drafter that draws from it, or chooses by it and the noise, agrees with the target more often than one that does not.

        Args:
            logits: `[rows, vocab]` of any floating dtype.

        Returns:
            `[rows, vocab]` float32, each row's sum 1.
        """
        return (logits.float() if self.warp is None else self.warp(logits)).softmax(-1)

    @property
    def wants_q(self) -> bool:
        """Whether the rule uses the laws that nodes were drawn from; else nodes may as well be chosen."""
        return self.rule != "match" and self.decisions is not None

    def draw(self, law: torch.Tensor, count: int = 1, index: int = 0) -> list[int]:
        """Draw different tokens from a law, one after another, from the row's own stream of draft decisions.

        Args:
            law: `[draft vocab]`, its sum 1.
            count: how many; fewer come where the law holds fewer.
            index: tells the draws of a step apart.
        """
        if self.decisions is None:
            return law.topk(min(count, int((law > 0).sum()))).indices.tolist()
        return self.decisions.choose_several(law, count, index)

    def noise(self, depth: int, ids: torch.Tensor) -> torch.Tensor | None:
        """Return the Gumbel noise that the target will draw with at a depth, for coupled drafts.

        Tokens with the largest log q + noise are the likeliest to be the target's own draw; a tree of such tokens is `coupled`.

        Args:
            depth: of the nodes that are chosen, 1 for the root's children.
            ids: int64 token ids of the target, of any shape.

        Returns:
            float64 of the shape of `ids`; None where the target draws without noise (greedy) or the rule forbids it.
        """
        if self.decisions is None or self.rule != "match":
            return None
        return self.decisions.noise(len(self.ids) + depth - 1, ids)


@dataclass(frozen=True, slots=True)
class DraftBatch:
    """The rows that want a draft in this step, at least one."""

    rows: tuple[DraftView, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a row in one step.

    The first come from the prefill, with an empty tree and one for every chunk of the prompt: only the last commits a token.
    The others come to drafters that want features, and to no other.

    Args:
        row: the row's id.
        ids: all committed ids, `tokens` included.
        tokens: what the step committed, the bonus token last unless a stop cut it off.
        tree: what the drafter had proposed; where several propose together, what was verified of it, which may be nothing.
        path: the accepted nodes of `tree` that were committed, in order.
        features: what the drafter's `needs` asked for; None where it asks for nothing.
    """

    row: int
    ids: TokenView
    tokens: tuple[int, ...]
    tree: DraftTree
    path: tuple[int, ...]
    features: Features | None = None


@dataclass(frozen=True, slots=True)
class OutcomeBatch:
    """What became of every row of a step."""

    rows: tuple[Outcome, ...]

    def heard(self, needs: Needs) -> "OutcomeBatch":
        """Return what a drafter of these needs hears of it: its own features, and of the prompt's chunks only what has some."""
        kept = [outcome for outcome in self.rows if outcome.tokens or needs]
        return OutcomeBatch(tuple(replace(one, features=one.features and one.features.only(needs)) for one in kept))


class Drafter(ABC, Generic[OptionsT]):
    """A drafting strategy.

    A subclass sets `name`, `requires_api` and, where it has options, `Options`. In `capabilities` it says what its trees may
    have, and they are held to it. One that chooses the size of its trees itself, by `DraftView.cost`, or whose trees can't be
    cut short, sets `weighs_nodes`: adaptive decoding then turns it on and off, and does not lower `max_depth`. One object may
    serve many rows, at once and one after another; rows are told apart by their ids.

    Args:
        target: the model that will verify the drafts.
        options: validated options.
    """

    name: ClassVar[str]
    requires_api: ClassVar[tuple[int, int]]
    Options: ClassVar[type[DrafterOptions]] = DrafterOptions
    weighs_nodes: ClassVar[bool] = False
    capabilities: ClassVar[Capabilities | None] = None
    expected_failures: Mapping[str, str] = MappingProxyType({})

    def __init__(self, target: TargetInfo, options: OptionsT) -> None:
        self.target = target
        self.options = options

    @classmethod
    def for_check(cls, target: TargetInfo) -> Mapping[str, Any]:  # noqa: ARG003
        """Return the options with which `outrider check` makes one for `target`, a tiny model with random weights.

        For drafters that need something made for their target: it may be random too.
        """
        return {}

    def needs(self) -> Needs:
        """Say what this drafter wants of the target's forwards; asked once for every generation."""
        return Needs()

    def begin(self, rows: Sequence[RowStart]) -> None:
        """Start rows, before their prompt is read."""

    @abstractmethod
    def propose(self, batch: DraftBatch) -> TreeBatch:
        """Propose a tree for every row of `batch`, in its order, within each row's `max_depth` and `max_nodes`.

        An empty tree makes a plain step for that row. Adaptive decoding does not ask in steps where a draft would not pay; its
        time counts as the draft's cost, and that of `observe` does not, so that what can wait is best done here.
        """

    def observe(self, batch: OutcomeBatch) -> None:
        """Hear what was committed: once after the prefill, then after every step."""

    def truncate(self, row: int, length: int) -> None:
        """Forget what the row holds beyond its first `length` tokens: a session's next turn goes on from there.

        The row's `ids` then hold more than that already: the new turn's prompt, which the prefill reads.
        """

    def end(self, rows: Sequence[int]) -> None:
        """Forget rows, whether they finished or were given up, and also where `begin` failed."""


class RowDrafter(Drafter[OptionsT]):
    """A drafter that thinks of one row at a time: write `propose_row` and nothing else."""

    @abstractmethod
    def propose_row(self, view: DraftView) -> DraftTree:
        """Propose a tree for one row."""

    def propose(self, batch: DraftBatch) -> TreeBatch:
        """Ask `propose_row` for every row."""
        trees = [self.propose_row(view) for view in batch.rows]
        wrong: list[Any] = [tree for tree in trees if not isinstance(tree, DraftTree)]
        if wrong:
            raise TypeError(f"propose_row must return a DraftTree, not a {type(wrong[0]).__name__}")
        return TreeBatch.pack(trees)


# Enough for every published tree; a drafter that wants fewer says so in its own options.
MAX_NODES: Final = 64
