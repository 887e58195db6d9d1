"""How far to trust a match: the chance that it goes on, by its length, learned from the text at hand."""

from collections.abc import Iterator
from typing import Final

from outrider_drafters.ngram.index import Match

# Where the classes of match lengths end, what is believed of each before anything was seen, and how firmly, in tokens: few
# short matches teach enough, while a copy that has gone well for long will still end somewhere.
_ENDS: Final = (1, 2, 3, 4, 6, 9, 14, 10**9)
_PRIOR: Final = (0.25, 0.42, 0.52, 0.6, 0.72, 0.84, 0.92, 0.95)
_WEIGHT: Final = (2.0, 2.0, 2.0, 2.0, 4.0, 8.0, 12.0, 20.0)
_DIVIDED: Final = 0.6
_OTHER_PRIOR: Final = 0.4
_OTHER_WEIGHT: Final = 4.0
_FORGET: Final = 0.98


class MatchBelief:
    """Beta-like estimates of acceptance, with forgetting, so that a change from copying to new text is soon noticed.

    Every new token teaches, drafted or not: what the index would have proposed is compared with what came. A match that has
    gone on in different ways before is held apart from one that always went on alike.
    """

    def __init__(self) -> None:
        self._alike = [_Share(prior, weight) for prior, weight in zip(_PRIOR, _WEIGHT, strict=True)]
        self._divided = [_Share(prior * _DIVIDED, weight) for prior, weight in zip(_PRIOR, _WEIGHT, strict=True)]
        self._other = _Share(_OTHER_PRIOR, _OTHER_WEIGHT)

    def learn(self, match: Match, rank: int | None) -> None:
        """Take in that a match went on as its place of this rank, or as none."""
        self._first(match).learn(rank == 0)
        if rank != 0 and len(match.places) > 1:
            self._other.learn(rank is not None)

    def first(self, match: Match, rank: int) -> float:
        """Return the chance that the text goes on as the place of this rank does."""
        held = self._first(match).value
        return held if rank == 0 else (1.0 - held) * self._other.value * 0.5 ** (rank - 1)

    def chances(self, match: Match, rank: int, count: int) -> Iterator[float]:
        """Yield the chance that the text follows a place for one token, for two, ... for `count`."""
        chance = self.first(match, rank)
        for step in range(1, count + 1):
            yield chance
            chance *= self.next(match.length + step)

    def next(self, length: int) -> float:
        """Return the chance that a match of `length` tokens, within a draft, holds for one more."""
        return self._alike[_kind(length)].value

    def _first(self, match: Match) -> "_Share":
        return (self._divided if len(match.places) > 1 else self._alike)[_kind(match.length)]


class _Share:
    """How often something held, from a prior and what was seen lately."""

    def __init__(self, prior: float, weight: float) -> None:
        self._held, self._seen = prior * weight, weight

    def learn(self, held: bool) -> None:
        self._held = self._held * _FORGET + held
        self._seen = self._seen * _FORGET + 1.0

    @property
    def value(self) -> float:
        return self._held / self._seen


def _kind(length: int) -> int:
    return next(kind for kind, end in enumerate(_ENDS) if length <= end)
