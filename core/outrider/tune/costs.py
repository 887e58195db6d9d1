"""What steps cost: the target by its measured curve, drafts and the rest by what probes took."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray

from outrider.compare.result import ForwardCost
from outrider.tune.probe import Beat

_SAMPLES: Final = 3
Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds of a forward by its rows, between the sizes that were measured; beyond the last as the last two rise.

    Args:
        costs: as they were measured.
    """

    costs: tuple[ForwardCost, ...]

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """For which it was measured."""
        return tuple(sorted({one.batch_size for one in self.costs}))

    def at(self, rows: float, batch_size: float = 1) -> float:
        """Return the seconds of a forward of so many rows a text."""
        sizes = self.batch_sizes
        return float(np.interp(batch_size, sizes, [self._of(size, rows) for size in sizes]))

    def _of(self, batch_size: int, rows: float) -> float:
        points = sorted((one.rows, one.seconds) for one in self.costs if one.batch_size == batch_size)
        last, most = points[-1]
        if rows <= last or len(points) == 1:
            return float(np.interp(rows, [one for one, _ in points], [one for _, one in points]))
        before, less = points[-2]
        return most + max(0.0, most - less) / (last - before) * (rows - last)


@dataclass(frozen=True, slots=True)
class Linear:
    """Seconds as `constant + sum of factors times sizes`, none below 0."""

    constant: float
    factors: tuple[float, ...]

    def at(self, *sizes: float) -> float:
        """Return the seconds."""
        return self.constant + sum(factor * size for factor, size in zip(self.factors, sizes, strict=True))

    @classmethod
    def fit(cls, samples: Sequence[tuple[tuple[float, ...], float]]) -> "Linear":
        """Fit to seconds by sizes: least squares of the medians of equal sizes, each weighed by its samples.

        Of all sets of sizes the one with the least error counts that gives none a cost below 0.
        """
        groups: dict[tuple[float, ...], list[float]] = {}
        for sizes, seconds in samples:
            groups.setdefault(sizes, []).append(seconds)
        if not groups:
            return cls(0.0, ())
        weights = np.sqrt(np.array([len(one) for one in groups.values()], dtype=np.float64))
        seen = np.array([median(one) for one in groups.values()], dtype=np.float64)
        table = np.array(list(groups), dtype=np.float64).reshape(len(groups), -1)
        found = [cls._of(table, seen, weights, chosen) for chosen in _subsets(table.shape[1])]
        good = [one for one in found if min(one[1].constant, *one[1].factors, 0.0) >= 0.0]
        return min(good, key=lambda one: (round(one[0], 18), sum(map(bool, one[1].factors))))[1]

    @classmethod
    def _of(cls, table: Column, seen: Column, weights: Column, chosen: tuple[int, ...]) -> "tuple[float, Linear]":
        """Fit the chosen columns, of which 0 is the constant; returns the error and the fit."""
        columns = np.column_stack([np.ones(len(seen)) if one == 0 else table[:, one - 1] for one in chosen])
        solved, _, _, _ = np.linalg.lstsq(columns * weights[:, None], seen * weights, rcond=None)
        error = float((((columns @ solved - seen) * weights) ** 2).sum())
        by = dict(zip(chosen, solved.tolist(), strict=True))
        return error, cls(by.get(0, 0.0), tuple(by.get(at + 1, 0.0) for at in range(table.shape[1])))


def _subsets(count: int) -> Iterable[tuple[int, ...]]:
    places = range(count + 1)
    return (chosen for size in range(1, count + 2) for chosen in combinations(places, size))


@dataclass(frozen=True, slots=True)
class StepCost:
    """What a step with a drafter costs, its target's forward by the curve and what real steps took beside it.

    Args:
        curve: of the target.
        batch_size: of the steps.
        draft: seconds by levels and nodes; nothing where a step has no draft.
        idle: seconds of a drafter that finds nothing to propose.
        rest: seconds of verifying, committing and bookkeeping by nodes.
        sizes: rows of forwards that were seen in real steps, and by how much they took longer than the curve says.
    """

    curve: Curve
    batch_size: int
    draft: Linear
    idle: float
    rest: Linear
    sizes: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, curve: Curve, batch_size: int, beats: Sequence[Beat]) -> "StepCost":
        """Learn from the steps of a drafter's probes, and of plain decoding's."""
        drafted = [one for one in beats if one.width]
        idle = [one.draft for one in beats if not one.width]
        seen: dict[int, list[float]] = {}
        for one in beats:
            seen.setdefault(1 + one.width, []).append(one.target / curve.at(1 + one.width, len(one.texts)))
        known = {rows: ratios for rows, ratios in seen.items() if len(ratios) >= _SAMPLES} or seen
        return cls(
            curve,
            batch_size,
            Linear.fit([((one.levels, one.width), one.draft) for one in drafted]),
            median(idle) if idle else 0.0,
            Linear.fit([((one.width,), one.rest) for one in beats]),
            tuple((rows, median(ratios)) for rows, ratios in sorted(known.items())),
        )

    def target(self, nodes: float, texts: float) -> float:
        """Return the seconds of a forward of so many nodes a text."""
        rows = 1 + nodes
        ratio = np.interp(rows, [one for one, _ in self.sizes], [one for _, one in self.sizes]) if self.sizes else 1.0
        return self.curve.at(rows, texts) * float(ratio)

    def drafting(self, levels: float, nodes: float) -> float:
        """Return the seconds in the drafter."""
        return self.draft.at(levels, nodes) if nodes and self.draft.factors else self.idle
