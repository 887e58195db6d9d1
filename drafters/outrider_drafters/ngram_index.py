"""An incremental index of the n-grams of one text: a step costs the same whatever the text's length."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

# How far back two occurrences are compared beyond the n-gram: the match's true length, up to this.
LONGEST: Final = 32


@dataclass(frozen=True, slots=True)
class Match:
    """Earlier occurrences of the tokens before a position.

    Args:
        positions: where each occurrence goes on, the most recent first; no two go on with the same token.
        length: how many tokens before the position agree with those before the first occurrence's.
    """

    positions: tuple[int, ...]
    length: int

    def rank(self, ids: Sequence[int], token: int) -> int | None:
        """Return which of the occurrences goes on with `token`."""
        return next((rank for rank, position in enumerate(self.positions) if ids[position] == token), None)


def continuation(ids: Sequence[int], position: int, count: int) -> tuple[int, ...]:
    """Return what follows from `position` on.

    Past the end the copy goes on with itself, as in LZ77, so that a text that repeats itself is foreseen beyond one period.
    """
    known = ids[position : position + count]
    return tuple(known[step % len(known)] for step in range(count))


class NgramIndex:
    """Where every n-gram was followed by what, for min_n <= n <= max_n.

    Args:
        min_n: shortest n-gram.
        max_n: longest n-gram.
        branching: different next tokens that are kept for an n-gram, the most recent ones.
    """

    def __init__(self, min_n: int, max_n: int, branching: int) -> None:
        self._sizes = tuple(range(max_n, min_n - 1, -1))
        self._branching = branching
        self._positions: dict[tuple[int, ...], tuple[int, ...]] = {}
        self.length = 0

    def extend(self, ids: Sequence[int], length: int | None = None) -> None:
        """Take in the ids up to `length` that are new."""
        length = len(ids) if length is None else length
        for position in range(self.length, length):
            token = ids[position]
            for size in self._sizes:
                if size > position:
                    continue
                key = tuple(ids[position - size : position])
                older = [other for other in self._positions.get(key, ()) if ids[other] != token]
                self._positions[key] = (position, *older[: self._branching - 1])
        self.length = max(self.length, length)

    def match(self, ids: Sequence[int], end: int) -> Match | None:
        """Look for the tokens that end at `end`, longest n-gram first, among what was taken in."""
        for size in self._sizes:
            if size > end:
                continue
            found = self._positions.get(tuple(ids[end - size : end]))
            if found:
                return Match(found, self._agreement(ids, end, found[0], size))
        return None

    @staticmethod
    def _agreement(ids: Sequence[int], end: int, position: int, size: int) -> int:
        while size < min(LONGEST, position) and ids[end - size - 1] == ids[position - size - 1]:
            size += 1
        return size
