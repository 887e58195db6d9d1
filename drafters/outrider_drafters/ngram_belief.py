"""How far to trust a match: the chance that it goes on, by its length, learned from the text at hand."""

from typing import Final

# Where the classes of match lengths end, and what is believed of each before anything was seen.
_ENDS: Final = (1, 2, 3, 4, 6, 9, 14, 10**9)
_PRIOR: Final = (0.13, 0.28, 0.4, 0.5, 0.65, 0.8, 0.9, 0.95)
_PRIOR_WEIGHT: Final = 4.0
_OTHER_PRIOR: Final = 0.4
_FORGET: Final = 0.98


class MatchBelief:
    """Beta-like estimates of acceptance, with forgetting, so that a change from copying to new text is soon noticed.

    Every new token teaches, drafted or not: what the index would have proposed is compared with what came.
    """

    def __init__(self) -> None:
        self._held = [prior * _PRIOR_WEIGHT for prior in _PRIOR]
        self._seen = [_PRIOR_WEIGHT] * len(_PRIOR)
        self._other_held, self._other_seen = _OTHER_PRIOR * _PRIOR_WEIGHT, _PRIOR_WEIGHT

    def learn(self, length: int, rank: int | None) -> None:
        """Take in that a match of `length` went on as its occurrence of this rank, or as none."""
        kind = _kind(length)
        self._held[kind] = self._held[kind] * _FORGET + (rank == 0)
        self._seen[kind] = self._seen[kind] * _FORGET + 1.0
        if rank != 0:
            self._other_held = self._other_held * _FORGET + (rank is not None)
            self._other_seen = self._other_seen * _FORGET + 1.0

    def next(self, length: int) -> float:
        """Return the chance that a match of `length` tokens holds for one more."""
        kind = _kind(length)
        return self._held[kind] / self._seen[kind]

    def first(self, length: int, rank: int) -> float:
        """Return the chance that the text goes on as the occurrence of this rank does."""
        held = self.next(length)
        if rank == 0:
            return held
        return (1.0 - held) * self._other_held / self._other_seen * 0.5 ** (rank - 1)


def _kind(length: int) -> int:
    return next(kind for kind, end in enumerate(_ENDS) if length <= end)
