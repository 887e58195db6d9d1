"""Intervals by a paired bootstrap: conversations are drawn with replacement, and of each its repeats; rows share the draw."""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from outrider.compare.result import Estimate

RESAMPLES: Final = 2000
SEED: Final = 20251130
LEVEL: Final = 0.95
_AT_ONCE: Final = 2_000_000

Cells = NDArray[np.float64]
"""A figure by conversation and repeat, `[conversations, repeats]`; no number where there is none."""
Pooled = Callable[[dict[str, NDArray[np.float64]]], NDArray[np.float64]]
"""A statistic of sums over conversations, elementwise."""


@dataclass(frozen=True, slots=True)
class Table:
    """Figures of one row, or of two on the same conversations and repeats.

    Args:
        sums: by name, what is pooled as the mean of a conversation's repeats: counts.
        middles: by name, what is pooled as their median: seconds, which the odd slow run should not move.
        conversations: what tells them apart, in their order.
    """

    sums: dict[str, Cells]
    middles: dict[str, Cells]
    conversations: tuple[int, ...] = ()

    def beside(self, other: "Table") -> "Table":
        """Return both, this one's names beginning with `old_`; its repeats have nothing to do with the other's."""
        repeats = max(self._repeats, other._repeats)
        parts = [
            {f"old_{name}": _wide(one, repeats) for name, one in mine.items()}
            | {name: _wide(one, repeats) for name, one in its.items()}
            for mine, its in ((self.sums, other.sums), (self.middles, other.middles))
        ]
        return Table(parts[0], parts[1], self.conversations)

    @property
    def _repeats(self) -> int:
        return int(next(iter((self.sums | self.middles).values())).shape[1])

    def pooled(self) -> dict[str, float]:
        """Return the sums over conversations."""
        with np.errstate(all="ignore"):
            found = {name: float(np.nanmean(one, 1).sum()) for name, one in self.sums.items()}
            return found | {name: float(np.nanmedian(one, 1).sum()) for name, one in self.middles.items()}

    def estimate(self, statistic: Pooled, level: float = LEVEL, resamples: int = RESAMPLES) -> Estimate | None:
        """Return a statistic with its interval; None where it is no number.

        With few conversations the percentiles are taken further out, by the t law (Hesterberg 2015, "What teachers should know
        about the bootstrap", section 4.2: the expanded percentile interval).
        """
        whole = statistic({name: np.asarray(value) for name, value in self.pooled().items()})
        if not np.isfinite(whole):
            return None
        drawn = self._resampled(statistic, resamples)
        drawn = drawn[np.isfinite(drawn)]
        count, repeats = next(iter((self.sums | self.middles).values())).shape
        outside = _outside((1 - level) / 2, count if count > 1 else repeats)
        low, high = np.quantile(drawn, [outside, 1 - outside]) if len(drawn) else (whole, whole)
        return Estimate(value=float(whole), low=min(float(low), float(whole)), high=max(float(high), float(whole)))

    def _resampled(self, statistic: Pooled, resamples: int) -> NDArray[np.float64]:
        every = self.sums | self.middles
        shape = next(iter(every.values())).shape
        # Repeats that are there come first, so that one of them can be drawn by its place.
        packed: dict[str, Cells] = {}
        counts: dict[str, NDArray[np.int64]] = {}
        for side in {_side(name) for name in every}:
            own = {name: one for name, one in every.items() if _side(name) == side}
            there = np.all([np.isfinite(one) for one in own.values()], axis=0)
            order = np.argsort(~there, axis=1, kind="stable")
            counts[side] = np.maximum(there.sum(1), 1)
            packed |= {name: np.take_along_axis(one, order, 1) for name, one in own.items()}
        random, found = np.random.default_rng(SEED), []
        step = max(1, _AT_ONCE // max(1, shape[0] * shape[1]))
        for start in range(0, resamples, step):
            size = min(step, resamples - start)
            which = random.integers(0, shape[0], (size, shape[0]))
            drawn = {
                side: (random.random((size, *shape)) * count[which][..., None]).astype(int)
                for side, count in sorted(counts.items())
            }
            taken = {name: one[which[..., None], drawn[_side(name)]] for name, one in packed.items()}
            pooled = {name: taken[name].mean(-1).sum(-1) for name in self.sums}
            pooled |= {name: np.median(taken[name], -1).sum(-1) for name in self.middles}
            found.append(statistic(pooled))
        return np.concatenate(found)


def _side(name: str) -> str:
    """Return what repeats are drawn together: rows of one comparison ran side by side."""
    return "old" if name.startswith("old_") else "new"


def _wide(cells: Cells, repeats: int) -> Cells:
    return np.pad(cells, ((0, 0), (0, repeats - cells.shape[1])), constant_values=np.nan)


def _outside(outside: float, count: int) -> float:
    """Return the share to leave out at each end, for so many independent values."""
    if count < 2:
        return outside
    return NormalDist().cdf(sqrt(count / (count - 1)) * _student(outside, count - 1))


def _student(share: float, freedom: int) -> float:
    """Return the quantile of the t law, by its expansion in the normal one (Abramowitz and Stegun, 26.7.5)."""
    z = NormalDist().inv_cdf(share)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return float(sum(term / freedom**power for power, term in enumerate(terms)))
