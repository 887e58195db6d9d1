"""An index of the n-grams of a text: taking a token in, taking it back and looking one up cost the same at any length.

For every n the latest place of every n-gram is kept, and for every place the one before it, as in the hash chains of LZ77
compressors. So the last token can be taken back exactly, and no place is ever searched for.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

# How far back two places are compared beyond the n-gram: the match's true length, up to this.
LONGEST: Final = 32
# How many places of an n-gram are looked at, the latest first.
_REACH: Final = 16
_NOWHERE: Final = -1
_BREAK: Final = -1

Tail: TypeAlias = "array[int]"
Pick: TypeAlias = Literal["recent", "longest", "all"]
"""Which places of the longest n-gram are taken: the latest, the one that agrees longest, or all that go on differently."""


@dataclass(frozen=True, slots=True)
class Match:
    """Places where the last tokens of a text stood before.

    Args:
        index: where they were found.
        places: where each goes on, the one that agrees longest first, of equals the latest.
        tokens: what each goes on with; no two are the same.
        length: how many tokens before the first place agree with the text's last, at most `LONGEST`.
    """

    index: "NgramIndex"
    places: tuple[int, ...]
    tokens: tuple[int, ...]
    length: int

    def rank(self, token: int) -> int | None:
        """Return which of the places goes on with `token`."""
        return self.tokens.index(token) if token in self.tokens else None

    def paths(self, count: int) -> list[tuple[int, ...]]:
        """Return how the text went on after each place, at most `count` tokens."""
        return [self.index.continuation(place, count) for place in self.places]


class NgramIndex:
    """Where every n-gram stood, for min_n <= n <= max_n.

    A token takes about 150 bytes for every n where its n-gram is new, and 8 where it is not.

    Args:
        min_n: shortest n-gram.
        max_n: longest n-gram.
        pick: which places of an n-gram a match names.
        branching: most places of a match.
    """

    def __init__(self, min_n: int, max_n: int, pick: Pick = "all", branching: int = 3) -> None:
        self._sizes = tuple(range(max_n, min_n - 1, -1))
        self._pick, self._branching = pick, branching
        self._ids = array("i")
        self._latest: tuple[dict[bytes, int], ...] = tuple({} for _ in self._sizes)
        self._earlier = tuple(array("q") for _ in self._sizes)
        self._start = 0

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> Sequence[int]:
        """What was taken in."""
        return self._ids

    @property
    def tail(self) -> Tail:
        """The last tokens, as `match` takes them."""
        return self._ids[-LONGEST:]

    @property
    def entries(self) -> int:
        """How many n-grams are known."""
        return sum(map(len, self._latest))

    def extend(self, ids: Iterable[int]) -> None:
        """Take in what the text goes on with."""
        for token in ids:
            self.append(token)

    def append(self, token: int) -> None:
        """Take in one token."""
        ids, end = self._ids, len(self._ids)
        room = end - self._start
        for size, latest, earlier in zip(self._sizes, self._latest, self._earlier, strict=True):
            if size > room:
                earlier.append(_NOWHERE)
                continue
            gram = ids[end - size : end].tobytes()
            earlier.append(latest.get(gram, _NOWHERE))
            latest[gram] = end
        ids.append(token)

    def close(self) -> None:
        """End the text; what is taken in from here on is another, and no n-gram or continuation reaches across."""
        if self._start == len(self._ids):
            return
        self._ids.append(_BREAK)
        for earlier in self._earlier:
            earlier.append(_NOWHERE)
        self._start = len(self._ids)

    def truncate(self, length: int) -> None:
        """Take back what the last text holds beyond `length`; costs as much as is taken back."""
        for end in range(len(self._ids) - 1, length - 1, -1):
            for size, latest, earlier in zip(self._sizes, self._latest, self._earlier, strict=True):
                before = earlier.pop()
                if end - self._start < size:
                    continue
                gram = self._ids[end - size : end].tobytes()
                if before == _NOWHERE:
                    del latest[gram]
                else:
                    latest[gram] = before
            self._ids.pop()

    def match(self, tail: Tail) -> Match | None:
        """Look for the n-gram that a text ends with, the longest first, among those that go on.

        Args:
            tail: of the text's index.
        """
        for size, latest, earlier in zip(self._sizes, self._latest, self._earlier, strict=True):
            place = latest.get(tail[-size:].tobytes()) if size <= len(tail) else None
            if place is not None:
                return self._match(tail, place, earlier, size)
        return None

    def continuation(self, place: int, count: int) -> tuple[int, ...]:
        """Return what follows from `place` on.

        Past the end of a text that is not closed the copy goes on with itself, as in LZ77, so that a text that repeats itself
        is foreseen beyond one period.
        """
        known = self._ids[place : place + count].tolist()
        if _BREAK in known:
            return tuple(known[: known.index(_BREAK)])
        return tuple(known[step % len(known)] for step in range(count))

    def _match(self, tail: Tail, place: int, earlier: "array[int]", size: int) -> Match:
        """Choose among the latest places of an n-gram of `size` tokens."""
        if self._pick == "recent":
            return Match(self, (place,), (self._ids[place],), self._agreement(tail, place, size))
        found: dict[int, tuple[int, int]] = {}
        for _ in range(_REACH):
            token = self._ids[place]
            if self._pick == "longest" or token not in found:
                length = self._agreement(tail, place, size)
                found[token] = max(found.get(token, (0, 0)), (length, place))
            place = earlier[place]
            if place == _NOWHERE or (self._pick == "all" and len(found) == self._branching):
                break
        best = sorted(found.items(), key=lambda one: one[1], reverse=True)
        if self._pick == "longest":
            best = best[:1]
        return Match(self, tuple(at for _, (_, at) in best), tuple(token for token, _ in best), best[0][1][0])

    def _agreement(self, tail: Tail, place: int, size: int) -> int:
        before = self._ids[max(0, place - len(tail)) : place]
        longest = min(len(before), len(tail))
        while size < longest and before[-size - 1] == tail[-size - 1]:
            size += 1
        return size
