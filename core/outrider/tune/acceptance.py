"""How often drafts hold, by depth and by rank among siblings."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

from outrider.tune.probe import Beat


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Counts of a run.

    Args:
        reached: for every depth, the steps of all texts that came so far and had room for it, with a draft or without.
        held: for every depth and rank, how many accepted nodes had it.
    """

    reached: tuple[int, ...]
    held: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, beats: Iterable[Beat]) -> "Acceptance":
        """Count; what a text's end cut off counts neither way."""
        texts = [one for beat in beats for one in beat.texts]
        deepest = max((len(one.ranks) for one in texts), default=0)
        there = [[one for one in texts if len(one.ranks) >= depth and one.room > depth] for depth in range(deepest)]
        held = []
        for depth, steps in enumerate(there):
            ranks = [one.ranks[depth] for one in steps if len(one.ranks) > depth]
            held.append(tuple(ranks.count(rank) for rank in range(1 + max(ranks, default=-1))))
        return cls(tuple(map(len, there)), tuple(held))

    @property
    def chances(self) -> tuple[tuple[float, ...], ...]:
        """For every depth and rank the chance to hold where all above did: whether there was such a node or not."""
        pairs = zip(self.held, self.reached, strict=True)
        return tuple(tuple(count / reached if reached else 0.0 for count in level) for level, reached in pairs)

    @property
    def by_depth(self) -> tuple[float, ...]:
        """For every depth the share of the steps that had so many tokens accepted, or more, where there was room for it."""
        return tuple(accumulate(map(sum, self.chances), mul))
