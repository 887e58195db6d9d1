"""What every way of serving a model does: open, read a prompt, score trees, commit."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Generic, TypeVar

import torch
from transformers.cache_utils import Cache

from outrider.draft.batch import TreeBatch
from outrider.target.call import Caller, Scored

RowsT = TypeVar("RowsT")


@dataclass(frozen=True, slots=True)
class Opening:
    """What a cache is opened for.

    Args:
        capacity: columns to reserve before it grows.
        wanted: layers whose hidden states the rows' forwards return, as in `Needs.hidden`.
        shared: layers whose keys and values drafters get, as in `Needs.keys_values`.
        contexts: every row's further arguments of the model's forward, such as an encoder's output; empty for none.
        static: addresses and shapes stay, and `capacity` is all that there is.
        whole: every column is kept, also those that no later token can see.
    """

    capacity: int = 256
    wanted: frozenset[int] = frozenset()
    shared: frozenset[int] = frozenset()
    contexts: Sequence[Mapping[str, Any]] = ()
    static: bool = False
    whole: bool = False


PLAIN: Final = Opening()


KeysValues = Mapping[int, tuple[torch.Tensor, torch.Tensor]]
"""Layers' keys and values `[heads, tokens, width]`."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a row's prompt that was read.

    Args:
        row: whose.
        first: which of its ids comes first.
        tokens: how many there are.
        scored: `[1, 1, vocab]` logits after the last of them, `[1, tokens, hidden]` states.
        keys_values: of the layers that are shared, as in `Features`.
    """

    row: int
    first: int
    tokens: int
    scored: Scored
    keys_values: KeysValues = field(default_factory=dict)


class Tier(ABC, Generic[RowsT]):
    """A way of serving a model exactly; which one serves is found out by the probe.

    Args:
        caller: of the model.
        device: where it takes its input.
    """

    name: ClassVar[str]
    how: ClassVar[str]
    """What it does, in a few words."""

    def __init__(self, caller: Caller, device: torch.device) -> None:
        self.caller = caller
        self.device = device

    @abstractmethod
    def refusal(self) -> str:
        """Say why this tier can't serve the model, as far as it is known before any forward; else nothing."""

    @abstractmethod
    def open(self, rows: int, want: Opening) -> RowsT:
        """Make the empty cache of some rows."""

    @abstractmethod
    def lengths(self, cache: RowsT) -> list[int]:
        """Return how many committed ids of every row the cache holds."""

    def columns(self, cache: RowsT) -> int:  # noqa: ARG002
        """Return how many columns the rows share, holes included; 0 where each has its own."""
        return 0

    @abstractmethod
    def read(self, cache: RowsT, prompts: Sequence[Sequence[int]], chunk: int) -> Iterator[list[Piece]]:
        """Read each row's next ids, at least one, in chunks of at most `chunk`; yield what every chunk gave."""

    @abstractmethod
    def forward(self, cache: RowsT, roots: Sequence[int], trees: TreeBatch) -> Scored:
        """Score every row's root and tree."""

    def shared(self, cache: RowsT, width: int, paths: Sequence[Sequence[int]]) -> list[KeysValues]:  # noqa: ARG002
        """Return the keys and values of every row's root and accepted nodes, before `commit`; none where no tree is masked."""
        return [{} for _ in paths]

    @abstractmethod
    def commit(self, cache: RowsT, width: int, paths: Sequence[Sequence[int]]) -> None:
        """Keep each row's root and accepted nodes."""

    @abstractmethod
    def rollback(self, cache: RowsT, width: int) -> None:
        """Drop the last forward, of trees of this width, altogether."""

    @abstractmethod
    def truncate(self, cache: RowsT, length: int) -> bool:
        """Forget what the cache's only row holds beyond `length` ids; false where that can't be done."""

    @abstractmethod
    def adopt(self, cache: RowsT, given: Cache) -> None:
        """Take over the tokens that a caller's cache of one row holds; that cache stays as it is.

        Raises:
            ModelError: it is of a kind that can't be taken over.
        """

    @abstractmethod
    def release(self, cache: RowsT, given: Cache) -> None:
        """Bring a caller's cache, from which a single row was adopted, up to what the row has now."""

    @abstractmethod
    def select(self, cache: RowsT, rows: Sequence[int]) -> None:
        """Keep these rows only."""
