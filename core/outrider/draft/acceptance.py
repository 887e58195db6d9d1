"""How far drafts are believed: the chance that a draft holds to a depth, learned from what became of earlier ones."""

from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import Final

_PRIOR: Final = 0.7
_PRIOR_WEIGHT: Final = 2.0
_FORGET: Final = 0.96
_POWERS: Final = tuple(_FORGET**age for age in range(256))


class Share:
    """How often something held lately.

    Args:
        prior: what is believed before anything was seen.
        weight: how many sights that belief is worth. Evidence fades to this weight, and not below, while its mean stays.
    """

    __slots__ = ("_at", "_held", "_seen", "_weight")

    def __init__(self, prior: float, weight: float) -> None:
        self._held, self._seen, self._weight, self._at = prior * weight, weight, weight, 0

    def fade(self, now: int) -> None:
        """Let what was seen before `now` count for less."""
        age, self._at = now - self._at, now
        if age > 0 and self._seen > self._weight:
            left = max(self._seen * _POWERS[min(age, 255)], self._weight)
            self._held *= left / self._seen
            self._seen = left

    def learn(self, held: float, now: int, times: float = 1.0) -> None:
        """Take in that it held in a share of some cases."""
        self.fade(now)
        self._held += held * times
        self._seen += times

    @property
    def value(self) -> float:
        """Its mean."""
        return self._held / self._seen


class Acceptance:
    """The chance a_i that a draft's token at depth i is accepted where the one before it was, by depth.

    Only depths that were reached teach (an acceptance that a rejection hid is no evidence), and a depth of which little is
    known lately is believed to be like the one above it. The survival s_i is the product of the a up to i. All evidence fades,
    so that a change is noticed.
    """

    def __init__(self) -> None:
        self._first = Share(_PRIOR, _PRIOR_WEIGHT)
        self._held: list[float] = []
        self._seen: list[float] = []
        self._at: list[int] = []

    def learn(self, accepted: Sequence[int], depth: int, now: int) -> None:
        """Take in a step.

        Args:
            accepted: of every row, how many tokens of its draft were.
            depth: how deep drafts could have been.
            now: number of the step.
        """
        reached = len(accepted)
        for level in range(min(max(accepted) + 1, depth)):
            held = sum(count > level for count in accepted)
            if level == 0:
                self._first.learn(held / reached, now, reached)
            else:
                self._deeper(level - 1, held, reached, now)
            reached = held

    def survivals(self, depth: int, now: int) -> list[float]:
        """Return the chances s_1, s_2, ... to be accepted down to each depth."""
        self._first.fade(now)
        chance = self._first.value
        chances = [chance]
        known = min(depth - 1, len(self._held))
        for held, seen, at in zip(self._held[:known], self._seen, self._at, strict=False):
            left = _POWERS[min(now - at, 255)]
            chance = (chance * _PRIOR_WEIGHT + held * left) / (_PRIOR_WEIGHT + seen * left)
            chances.append(chance)
        chances += [chance] * (depth - len(chances))
        return list(accumulate(chances, mul))

    def _deeper(self, place: int, held: int, reached: int, now: int) -> None:
        while len(self._held) <= place:
            self._held.append(0.0)
            self._seen.append(0.0)
            self._at.append(now)
        left = _POWERS[min(now - self._at[place], 255)]
        self._held[place] = self._held[place] * left + held
        self._seen[place] = self._seen[place] * left + reached
        self._at[place] = now
