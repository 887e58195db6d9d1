"""Figures from runs: pooled counts, paired ratios, medians with intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import median

from outrider.compare.runner import Run


@dataclass(frozen=True, slots=True)
class Interval:
    """A median and the interval that holds the true one with at least 95 %, if there are enough values for that."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}-{self.high:.2f})"


def median_interval(values: Sequence[float]) -> Interval:
    """Return the median and its distribution-free interval from order statistics.

    The k-th smallest and k-th largest of n values hold the median with 1 - 2 P(B < k), B binomial (n, 1/2). Below six values
    no pair reaches 95 %, and the interval is their whole range.
    """
    ordered = sorted(values)
    count, outside, rank = len(ordered), 0.0, 0
    while rank < (count - 1) // 2:
        outside += comb(count, rank) / 2**count
        if 2 * outside > 0.05:
            break
        rank += 1
    rank = max(rank - 1, 0)
    return Interval(median(ordered), ordered[rank], ordered[-1 - rank])


def ratios(runs: Sequence[Run], contestant: str, baseline: str, prompt: str | None = None) -> list[float]:
    """Return how many times the baseline's tokens a second a contestant makes, pair by pair."""
    rates = {(one.contestant, one.prompt, one.round): one.rate for one in runs}
    return [
        one.rate / rates[baseline, one.prompt, one.round]
        for one in runs
        if one.contestant == contestant and prompt in (None, one.prompt)
    ]
