"""Charts as numbers: where on an axis things lie, in percent, for a template to draw."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_STEPS: Final = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis.

    Args:
        at: where, in percent of the axis.
        label: what it says.
    """

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis from `low` to `high`.

    Args:
        label: what it measures, and its unit.
        low: its beginning.
        high: its end.
        ticks: its marks.
        doubling: whether equal lengths are equal ratios.
    """

    label: str
    low: float
    high: float
    ticks: tuple[Tick, ...]
    doubling: bool = False

    def at(self, value: float) -> float:
        """Return where a value lies, in percent; what is outside lies at the end."""
        low, high, value = self.low, self.high, min(max(value, self.low), self.high)
        if self.doubling:
            low, high, value = math.log2(low), math.log2(high), math.log2(value)
        return round(100 * (value - low) / (high - low), 3)


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a chart, in percent from the left and from the top.

    Args:
        x: from the left.
        y: from the top.
        said: what it is, in words.
        low: the lower end of its interval, from the top; None without one.
        high: the upper end.
    """

    x: float
    y: float
    said: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart.

    Args:
        name: what the legend calls it.
        style: a number that picks its colour and its mark; the same thing has the same in every chart.
        points: in order.
        joined: whether a line goes through them.
        hollow: whether its marks are outlines.
    """

    name: str
    style: int
    points: tuple[Point, ...]
    joined: bool = True
    hollow: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over two axes.

    Args:
        title: what it shows.
        x: the axis below.
        y: the axis at the left.
        lines: what is drawn.
        level: where a line across marks a value of the y axis, from the top; None for nowhere.
        level_said: what it marks.
    """

    title: str
    x: Axis
    y: Axis
    lines: tuple[Line, ...]
    level: float | None = None
    level_said: str = ""


def axis(label: str, values: Sequence[float], *, low: float = 0.0, unit: str = "", wanted: int = 5) -> Axis:
    """Return an axis from `low` to a round number that no value exceeds."""
    top = max([one for one in values if math.isfinite(one)], default=low)
    step = _round_step((top - low) / wanted) if top > low else 1.0
    count = max(1, math.ceil((top - low) / step - 1e-9))
    digits = max(0, -math.floor(math.log10(step) + 1e-9)) + (round(step / 10 ** math.floor(math.log10(step)), 6) == 2.5)
    ticks = tuple(Tick(round(100 * at / count, 3), f"{low + at * step:.{digits}f}{unit}") for at in range(count + 1))
    return Axis(label, low, low + count * step, ticks)


def shares(label: str) -> Axis:
    """Return an axis of shares."""
    return Axis(label, 0.0, 1.0, tuple(Tick(at, f"{at}%") for at in range(0, 101, 20)))


def whole(label: str, last: int) -> Axis:
    """Return an axis of the whole numbers from 1 on; not all of them are named where there are many."""
    every = max(1, math.ceil(last / 10))
    named = [one for one in range(1, last + 1) if (one - 1) % every == 0]
    return Axis(label, 0.5, last + 0.5, tuple(Tick(round(100 * (one - 0.5) / last, 3), str(one)) for one in named))


def doublings(label: str, values: Sequence[int], *, room: float = 0.0) -> Axis:
    """Return an axis of equal ratios, with a mark at every power of two, and room at its ends in doublings."""
    last = max(1, math.ceil(math.log2(max(values))))
    whole = last + 2 * room
    ticks = tuple(Tick(round(100 * (at + room) / whole, 3), str(2**at)) for at in range(last + 1))
    return Axis(label, 2.0**-room, 2.0 ** (last + room), ticks, doubling=True)


def _round_step(least: float) -> float:
    """Return the next round number: 1, 2, 2.5 or 5 by a power of ten."""
    power = 10.0 ** math.floor(math.log10(least))
    return float(next(one * power for one in _STEPS if one * power >= least * (1 - 1e-9)))
