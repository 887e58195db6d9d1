"""Rows that are read together, found by the ids that a drafter knows them by."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

import torch

NewT = TypeVar("NewT", contravariant=True)
ItemT = TypeVar("ItemT")


class Group(Protocol[NewT]):
    """Rows that began together, in one cache."""

    @property
    def rows(self) -> int:
        """How many."""
        ...

    def read(self, items: Sequence[NewT | None]) -> torch.Tensor:
        """Read what is new of each row, None for a row that sits out; `[rows, vocab]` logits after it."""
        ...

    def guess(self, tokens: torch.Tensor, parents: torch.Tensor | None) -> torch.Tensor:
        """Read guesses `[rows, count]` below what was read; `[rows, count, vocab]` logits."""
        ...

    def forget(self, at: int, length: int) -> None:
        """Be sure of no more than the first `length` ids of a row."""
        ...

    def select(self, kept: Sequence[int]) -> None:
        """Keep these rows only."""
        ...


GroupT = TypeVar("GroupT", bound=Group)  # type: ignore[type-arg]


class Groups(Generic[ItemT, GroupT]):
    """Rows by their ids, in the groups that they began in."""

    def __init__(self) -> None:
        self._groups: list[tuple[list[int], GroupT]] = []
        self._reading: list[tuple[GroupT, list[int], list[int]]] = []

    @abstractmethod
    def _open(self, rows: int) -> list[GroupT]:
        """Return new groups for so many rows, in order: one for all, or one each."""

    def begin(self, rows: Sequence[int]) -> None:
        """Start rows, by ids of the caller's choice."""
        first = 0
        for group in self._open(len(rows)):
            self._groups.append((list(rows[first : first + group.rows]), group))
            first += group.rows

    def end(self, rows: Sequence[int]) -> None:
        """Forget rows; unknown ones are none."""
        left: list[tuple[list[int], GroupT]] = []
        for ids, group in self._groups:
            kept = [at for at, row in enumerate(ids) if row not in rows]
            if kept and len(kept) < len(ids):
                group.select(kept)
            if kept:
                left.append(([ids[at] for at in kept], group))
        self._groups, self._reading = left, []

    def read(self, rows: Sequence[int], items: Sequence[ItemT]) -> torch.Tensor:
        """Read what is new of some rows.

        Args:
            rows: whose.
            items: what each of them is to read.

        Returns:
            `[rows, vocab]` logits after each.
        """
        self._reading = []
        place = {row: at for at, row in enumerate(rows)}
        logits: list[torch.Tensor] = []
        for ids, group in self._groups:
            mine = [at for at, row in enumerate(ids) if row in place]
            if mine:
                self._reading.append((group, mine, [place[ids[at]] for at in mine]))
                found = group.read([items[place[row]] if row in place else None for row in ids])
                logits.append(found[mine] if len(mine) < len(ids) else found)
        return self._ordered(logits)

    def guess(self, tokens: torch.Tensor, parents: torch.Tensor | None = None) -> torch.Tensor:
        """Read guesses after the texts and earlier guesses.

        Args:
            tokens: `[rows, count]` int64, of the rows of the last `read`, in its order.
            parents: `[rows, count]` int64, what each hangs from: a guess of an earlier call, counted from the first after
                `read`, or `ROOT` for the text's end. By default each hangs from its row's last guess.

        Returns:
            `[rows, count, vocab]` logits after each.

        Raises:
            ModelError: guesses branch, and this model reads no trees; see `trees`.
        """
        logits = []
        for group, mine, places in self._reading:
            whole = len(mine) == group.rows
            own = [
                part[places] if whole else _spread(part[places], mine, group.rows)
                for part in (tokens, parents)
                if part is not None
            ]
            found = group.guess(own[0], own[1] if len(own) > 1 else None)
            logits.append(found if whole else found[mine])
        return self._ordered(logits)

    def forget(self, row: int, length: int) -> None:
        """Be sure of no more than the first `length` ids of a row's text."""
        for ids, group in self._groups:
            if row in ids:
                group.forget(ids.index(row), length)

    def _ordered(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        places = [place for _, _, some in self._reading for place in some]
        joined = torch.cat(list(parts)) if len(parts) > 1 else parts[0]
        if places == sorted(places):
            return joined
        return joined[torch.tensor(places, device=joined.device).argsort()]


def _spread(part: torch.Tensor, mine: Sequence[int], rows: int) -> torch.Tensor:
    """Place some rows' guesses among all rows of a group; the others guess anything."""
    whole = part[:1].repeat(rows, 1)
    whole[torch.tensor(mine, device=part.device)] = part
    return whole
