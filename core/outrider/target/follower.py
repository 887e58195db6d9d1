"""A model that reads along with texts: what drafters with a model of their own are built on."""

from collections.abc import Sequence
from typing import Any

import torch

from outrider.target.masked import MaskedTier
from outrider.target.model import Target
from outrider.target.reading import ChainGroup, Group, KeysValues, TreeGroup


class Follower:
    """Reads texts as they grow, several in one forward, and guesses beyond them, chains or trees.

    Guesses that did not come true are taken back exactly, and every token is fed once: those that came true stay. Ids that the
    model does not know are read as its last one.

    Args:
        model: what reads, from `outrider.load`.
    """

    def __init__(self, model: Target) -> None:
        self._model = model
        self._groups: list[tuple[list[int], Group]] = []
        self._reading: list[tuple[Group, list[int], list[int]]] = []

    @property
    def trees(self) -> bool:
        """Whether guesses may branch; else they are chains, one row a forward."""
        return isinstance(self._model.tier, MaskedTier)

    def begin(self, rows: Sequence[int]) -> None:
        """Start rows, by ids of the caller's choice."""
        tier: Any = self._model.tier
        if isinstance(tier, MaskedTier):
            self._groups.append((list(rows), TreeGroup(tier, len(rows), self._model.info.vocab_size)))
        else:
            self._groups += [([row], ChainGroup(self._model)) for row in rows]

    def end(self, rows: Sequence[int]) -> None:
        """Forget rows; unknown ones are none."""
        left: list[tuple[list[int], Group]] = []
        for ids, group in self._groups:
            kept = [at for at, row in enumerate(ids) if row not in rows]
            if kept and len(kept) < len(ids):
                group.select(kept)
            if kept:
                left.append(([ids[at] for at in kept], group))
        self._groups, self._reading = left, []

    def read(self, rows: Sequence[int], texts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Read texts, of which all but the end is known from before.

        Args:
            rows: whose.
            texts: one or more ids each.

        Returns:
            `[rows, vocab]` logits after the last of each.
        """
        self._reading = []
        place = {row: at for at, row in enumerate(rows)}
        logits: list[torch.Tensor] = []
        for ids, group in self._groups:
            mine = [at for at, row in enumerate(ids) if row in place]
            if mine:
                self._reading.append((group, mine, [place[ids[at]] for at in mine]))
                found = group.read([texts[place[row]] if row in place else None for row in ids])
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

    def extend(
        self,
        rows: Sequence[int],
        starts: Sequence[int],
        texts: Sequence[Sequence[int]],
        contents: Sequence[KeysValues],
    ) -> None:
        """Take over keys and values of the texts' ids, which another model with the same layers has computed.

        What follows a row's start is forgotten. A row of which less than that was read stays as it is; `read` reads it then.

        Args:
            rows: whose.
            starts: which of each row's ids come first.
            texts: those ids, one or more a row.
            contents: for every row and layer keys and values `[heads, ids, width]`.

        Raises:
            ModelError: this model keeps no cache that can take them; see `trees`.
        """
        place = {row: at for at, row in enumerate(rows)}
        for ids, group in self._groups:
            mine = [place.get(row) for row in ids]
            if any(at is not None for at in mine):
                group.extend([None if at is None else (starts[at], texts[at], contents[at]) for at in mine])

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
