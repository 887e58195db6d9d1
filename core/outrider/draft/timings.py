"""What was measured: seconds by size, robust against the odd slow call, and usable between the sizes that were seen."""

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Self

_KEPT: Final = 5
_EXACT: Final = 16
_NEAR: Final = 1.25


def _nothing(_: float) -> float:
    return 0.0


def gently_rising(rows: float) -> float:
    """Shape of a target forward's cost: rather too flat, since a size that looks cheap is tried, and then known."""
    return 1.0 + rows / 128


class Timings:
    """Seconds by size (rows of a forward, depth of a draft), learned as they happen.

    Every size keeps its last few samples and counts as their lower median: what disturbs a measurement makes it longer. Sizes
    above 16 share classes of about an eighth. Between sizes costs are interpolated, beyond them they follow `shape`; a smaller
    size never costs more than a larger one that was measured on the same text.

    May be written and read in several threads.

    Args:
        shape: relative cost by size, beyond what was measured.
        guess: cost by size before anything was.
    """

    def __init__(self, shape: Callable[[float], float], guess: Callable[[float], float] = _nothing) -> None:
        self._shape, self._guess = shape, guess
        self._samples: dict[int, deque[float]] = {}
        self._middles: dict[int, float] = {}
        self._counts: dict[int, int] = {}
        self._fresh: set[int] = set()
        self._points: tuple[list[int], list[float]] = ([], [])  # replaced as a whole, so that readers need no lock
        self._lock = threading.Lock()
        self.frozen = False

    @classmethod
    def fixed(cls, table: Mapping[int, float], shape: Callable[[float], float]) -> Self:
        """Return a table that is believed and never changes."""
        found = cls(shape)
        sizes = sorted(table)
        found._points = (sizes, [table[size] for size in sizes])
        found.frozen = True
        return found

    def __bool__(self) -> bool:
        """Whether anything is known."""
        return bool(self._points[0])

    def add(self, size: int, seconds: float) -> None:
        """Take in a measurement."""
        if self.frozen:
            return
        size = _class(size)
        with self._lock:
            samples = self._samples.setdefault(size, deque(maxlen=_KEPT))
            samples.append(seconds)
            self._middles[size] = _lower_median(samples)
            self._fresh.add(size)
            self._counts[size] = self._counts.get(size, 0) + 1
            self._settle()

    def age(self) -> None:
        """Hear that another text begins, whose length may differ: a size counts as one sample, which two new ones outvote."""
        with self._lock:
            for size, samples in self._samples.items():
                samples.clear()
                samples.append(self._middles[size])
            self._fresh.clear()

    def measured(self, size: int) -> int:
        """Return how often a size, or one near it, was measured."""
        return sum(count for other, count in self._counts.copy().items() if size / _NEAR <= other <= size * _NEAR)

    def at(self, size: float) -> float:
        """Return the seconds of a size."""
        sizes, seconds = self._points
        if not sizes:
            return self._guess(size)
        place = bisect_left(sizes, size)
        if place == len(sizes):
            return seconds[-1] * self._shape(size) / self._shape(sizes[-1])
        if sizes[place] == size:
            return seconds[place]
        if place == 0:
            return seconds[0] * self._shape(size) / self._shape(sizes[0])
        low, high = sizes[place - 1], sizes[place]
        share = (size - low) / (high - low)
        return seconds[place - 1] + share * (seconds[place] - seconds[place - 1])

    def _settle(self) -> None:
        """Work out the points anew: this text's measurements, and others within the bounds that those set.

        What was measured once counts for at most twice what is expected from smaller sizes, until it is measured again.
        """
        sizes, most, seconds = sorted(self._middles), float("inf"), list[float]()
        sure, believed = 0, list[float]()
        for size in sizes:
            middle = self._middles[size]
            if len(self._samples[size]) > 1:
                sure = size
            elif sure:
                middle = min(middle, 2 * self._middles[sure] * self._shape(size) / self._shape(sure))
            believed.append(middle)
        for size, middle in zip(reversed(sizes), reversed(believed), strict=True):
            if size in self._fresh:
                most = min(most, middle)
            seconds.append(most if size in self._fresh else min(most, middle))
        seconds.reverse()
        least = 0.0
        for place, size in enumerate(sizes):
            seconds[place] = least = max(least, seconds[place]) if size not in self._fresh else seconds[place]
        self._points = (sizes, seconds)


def _class(size: int) -> int:
    if size <= _EXACT:
        return size
    step: int = 1 << (size.bit_length() - 4)
    return -(-size // step) * step


def _lower_median(samples: deque[float]) -> float:
    return sorted(samples)[(len(samples) - 1) // 2]
