"""The ids of a text as it grows, without encoding all of it again."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from typing import Final

_LIMIT: Final = 256
_MARGIN: Final = 48
_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class _Point:
    """A place where the ids of the text before it are the beginning of the ids of more text.

    Args:
        place: in characters.
        count: ids before it.
        known: ids from the point before it up to here, encoded by themselves.
    """

    place: int
    count: int
    known: tuple[int, ...]


class GrowingIds:
    """Follows a text with a tokenizer: ids far enough from the end stay, and only a bounded tail is encoded again.

    A tail is encoded from the last point but one, and what it gives up to the last point must be what it was: so that neither
    what a tokenizer does at the start of a text (adding a space, taking one away) nor a merge across the point is taken over.
    Where it is not, an earlier point serves.

    Args:
        encode: gives the ids of a text, without special tokens at its ends.
        spell: gives the text of ids; where it is wrong a point is found less soon.
    """

    def __init__(self, encode: Callable[[str], list[int]], spell: Callable[[list[int]], str]) -> None:
        self._encode, self._spell = encode, spell
        self._text = ""
        self._points = [_Point(0, 0, ())]
        self._patience = _LIMIT
        self.ids: list[int] = []

    def grow(self, more: str) -> int:
        """Take in more text; returns how many ids stay as they were."""
        if not more:
            return len(self.ids)
        self._text += more
        ids = self._tail()
        while tuple(ids[: len(self._points[-1].known)]) != self._points[-1].known:
            self._points.pop()
            ids = self._tail()
        point = self._points[-1]
        new = ids[len(point.known) :]
        kept = point.count + common_length(self.ids[point.count :], new)
        self.ids[point.count :] = new
        self._settle(ids)
        return kept

    def _tail(self) -> list[int]:
        return self._encode(self._text[self._start().place :])

    def _start(self) -> _Point:
        return self._points[-2] if len(self._points) > 1 else self._points[0]

    def _settle(self, ids: list[int]) -> None:
        """Set points behind which nothing is encoded again, so that there are two near the end."""
        while len(self._text) - self._points[-1].place > self._patience:
            start, last = self._start(), self._points[-1]
            found = next((one for one in map(self._agree, self._places(last.place), repeat(ids)) if one), None)
            if found is None or found[0] <= last.place:
                self._patience += _LIMIT  # tried again only after as much new text
                return
            place, count = found
            since = tuple(self._encode(self._text[last.place : place]))
            self._points.append(_Point(place, last.count + count - len(last.known), since))
            self._patience = _LIMIT
            if self._start() is not start:
                ids = self._tail()

    def _agree(self, place: int, ids: list[int]) -> tuple[int, int] | None:
        """Find where a tail's ids are those of the text up to there, at a place or a token before it, and how many they are."""
        start = self._start().place
        known = self._encode(self._text[start:place])
        same = common_length(known, ids)
        if same < len(known):
            place -= len(self._spell(known[same:]))
            known = self._encode(self._text[start:place])
            same = common_length(known, ids)
        return (place, same) if known and same == len(known) else None

    def _places(self, last: int) -> Iterator[int]:
        """Yield where a point may be: before a space, then anywhere; farther from the end while the text is long."""
        text, far = self._text, len(self._text) - last > 2 * _LIMIT
        end = len(text) - _MARGIN - (_LIMIT if far else 0)
        near = range(end, max(last, end - _LIMIT // 2), -1)
        yield from islice((place for place in near if text[place] == " " and not text[place - 1].isspace()), _TRIES)
        yield from near[:_TRIES]


def common_length(ids: Sequence[int], others: Sequence[int]) -> int:
    """Return how many ids two lists begin with in common."""
    pairs = zip(ids, others, strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(ids), len(others)))
