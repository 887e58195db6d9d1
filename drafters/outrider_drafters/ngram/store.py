"""What earlier requests said, bounded: the one state of `ngram` that outlives a row."""

from collections.abc import Callable, Sequence
from typing import Final

from outrider_drafters.ngram.index import Match, NgramIndex, Tail

SMALLEST: Final = 64
"""Fewest tokens that a store can be made for."""


class NgramStore:
    """The latest texts of ended rows, up to a number of tokens.

    They lie in two indexes of half that size. When the younger is full it becomes the older, and what the older held is
    dropped as a whole: so a token costs the same however many came before, and between half and all of the room is in use.
    Memory is that of `NgramIndex`, for that many tokens.

    Args:
        tokens: most tokens that are kept.
        make: makes an empty index.
    """

    def __init__(self, tokens: int, make: Callable[[], NgramIndex]) -> None:
        self._half, self._make = tokens // 2, make
        self._young, self._old = make(), make()

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    @property
    def entries(self) -> int:
        """How many n-grams are known."""
        return self._young.entries + self._old.entries

    def add(self, ids: Sequence[int]) -> None:
        """Take in a text that has ended; only one that is longer than half of the room is split."""
        if len(self._young) + len(ids) >= self._half:
            self._turn()
        for token in ids:
            if len(self._young) >= self._half - 1:
                self._turn()
            self._young.append(token)
        self._young.close()

    def match(self, tail: Tail) -> Match | None:
        """Look for what a text ends with; of two matches of one length the younger."""
        found = [match for index in (self._young, self._old) if (match := index.match(tail)) is not None]
        return max(found, key=lambda match: match.length, default=None)

    def _turn(self) -> None:
        self._young.close()
        self._young, self._old = self._make(), self._young
