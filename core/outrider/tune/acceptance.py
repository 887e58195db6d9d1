"""How often drafts hold, by depth and by rank among siblings."""

from collections.abc import Iterable
from dataclasses import dataclass

from outrider.tune.probe import Beat


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Counts of a run.

    Args:
        steps: of all texts, with a draft or without.
        held: for every depth and rank, how many accepted nodes had it.
        deepest: the longest draft.
    """

    steps: int
    held: tuple[tuple[int, ...], ...]
    deepest: int

    @classmethod
    def of(cls, beats: Iterable[Beat]) -> "Acceptance":
        """Count."""
        texts = [one for beat in beats for one in beat.texts]
        levels: list[list[int]] = []
        for one in texts:
            for depth, rank in enumerate(one.ranks):
                levels += [[] for _ in range(depth + 1 - len(levels))]
                levels[depth] += [0] * (rank + 1 - len(levels[depth]))
                levels[depth][rank] += 1
        return cls(len(texts), tuple(map(tuple, levels)), max((one.levels for one in texts), default=0))

    @property
    def chances(self) -> tuple[tuple[float, ...], ...]:
        """For every depth and rank the chance to hold where all above did: whether there was such a node or not."""
        found, above = [], self.steps
        for level in self.held:
            found.append(tuple(count / above if above else 0.0 for count in level))
            above = sum(level)
        return tuple(found)

    @property
    def by_depth(self) -> tuple[float, ...]:
        """For every depth the share of the steps that had so many tokens accepted, or more."""
        return tuple(sum(level) / self.steps for level in self.held)
