"""The plots of a report: what is drawn where, from the figures."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.compare.report.chart import Axis, Chart, Line, Point, axis, doublings, shares, whole
from outrider.compare.result import Comparison, Estimate, Figures, ForwardCost, Row

Pair = tuple[Row, Figures]


@dataclass(frozen=True, slots=True)
class Span:
    """A row's value between two ends, as a strip beside its name.

    Args:
        name: the row's.
        low: the left end, in percent.
        at: where the mark lies.
        high: the right end.
        said: the value in words.
        judged: `better`, `worse` or `same`.
        words: what was judged.
    """

    name: str
    low: float
    at: float
    high: float
    said: str
    judged: str
    words: str


@dataclass(frozen=True, slots=True)
class Strips:
    """Rows' values over one axis, with a line at a value.

    Args:
        axis: below.
        spans: a row each.
        level: where the line lies, in percent; None for nowhere.
    """

    axis: Axis
    spans: tuple[Span, ...]
    level: float | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a bar, in percent.

    Args:
        name: what of.
        start: where it begins.
        width: how long it is.
    """

    name: str
    start: float
    width: float


def pairs(comparison: Comparison) -> list[Pair]:
    """Return the rows with their figures."""
    return list(zip(comparison.rows, comparison.figures, strict=True))


def strategy(row: Row) -> str:
    """Return a row's name without the batch size."""
    return re.sub(rf"@{row.batch_size}(?=$| \(\d+\)$)", "", row.name)


def styles(comparison: Comparison) -> dict[str, int]:
    """Return a number for every strategy, by which it looks the same in all plots; plain decoding is 0."""
    names = dict.fromkeys(strategy(row) for row in comparison.rows if row.kind != "plain")
    plain = {strategy(row): 0 for row in comparison.rows if row.kind == "plain"}
    return plain | {name: at for at, name in enumerate(names, start=1)}


def speed_ups(comparison: Comparison) -> Strips | None:
    """Return the rows' speed-ups with their intervals."""
    told = [(row, one.speed_up) for row, one in pairs(comparison) if one.speed_up and row.name != row.baseline]
    if not told:
        return None
    over = axis("times as fast as plain decoding", [1.0, *(one.high for _, one in told)], unit="x")
    return Strips(over, tuple(_speed_up(row, one, over) for row, one in told), over.at(1.0))


def needs(comparison: Comparison) -> Strips | None:
    """Return what rows bring in tokens a step, beside what they need to be as fast as plain decoding."""
    told = [
        (row, one.mean_acceptance_length.value, one.break_even_length)
        for row, one in pairs(comparison)
        if row.name != row.baseline and one.mean_acceptance_length and one.break_even_length
    ]
    if not told:
        return None
    over = axis("tokens a step", [value for _, has, need in told for value in (has, need)])
    spans = []
    for row, has, need in told:
        judged = "better" if has >= need else "worse"
        spans.append(
            Span(
                row.name,
                over.at(need),
                over.at(has),
                over.at(has),
                f"{has:.2f}, needs {need:.2f}",
                judged,
                "gains" if has >= need else "loses",
            )
        )
    return Strips(over, tuple(spans))


def acceptance(comparison: Comparison) -> list[Chart]:
    """Return acceptance by depth, unconditional and conditional, of the rows of the smallest batch size."""
    numbers, least = styles(comparison), min((row.batch_size for row in comparison.rows), default=1)
    told = [(row, one) for row, one in pairs(comparison) if row.batch_size == least and one.acceptance_by_depth]
    if not told:
        return []
    last = max(max(len(one.acceptance_by_depth), len(one.conditional_acceptance_by_depth)) for _, one in told)
    down, across = shares("share accepted"), whole("depth in the draft", last)

    def line(row: Row, values: Sequence[float]) -> Line:
        points = [
            Point(across.at(depth), 100 - down.at(value), f"{row.name}, depth {depth}: {value:.0%}")
            for depth, value in enumerate(values, start=1)
        ]
        return Line(strategy(row), numbers[strategy(row)], tuple(points))

    return [
        Chart(title, across, down, tuple(line(row, getattr(one, name)) for row, one in told))
        for title, name in (
            ("Of all drafts: so deep or deeper", "acceptance_by_depth"),
            ("Of the drafts that held until there", "conditional_acceptance_by_depth"),
        )
    ]


def time_shares(one: Figures) -> tuple[Share, ...]:
    """Return where a row's time goes; nothing where it is not told."""
    found: list[Share] = []
    start = 0.0
    for name in ("draft", "target", "verify", "rest"):
        share = getattr(one, f"{name}_share")
        if share is None:
            return ()
        found.append(Share(name, round(100 * start, 3), round(100 * share, 3)))
        start += share
    return tuple(found)


def costs(comparison: Comparison) -> list[Chart]:
    """Return the machine's cost curves, one chart a batch size, with rows as points: above the curve their forwards pay."""
    curves: dict[int, list[tuple[str, list[tuple[int, float]]]]] = {}
    for part in comparison.parts:
        for size, curve in _by_size(part.costs).items():
            where = f"shard {part.shard}" if len(comparison.parts) > 1 else "cost of a forward"
            curves.setdefault(size, []).append((where, curve))
    if not curves:
        return []
    points = [
        (row, one.mean_rows, one.mean_acceptance_length.value)
        for row, one in pairs(comparison)
        if one.mean_rows and one.mean_acceptance_length and one.drafted
    ]
    every = [one for of in curves.values() for _, curve in of for one in curve]
    across = doublings("tokens scored for each text in one forward", [rows for rows, _ in every])
    up = axis(
        "lines: times the cost of one token; marks: tokens a step",
        [*(cost for _, cost in every), *(has for _, _, has in points)],
    )
    numbers = styles(comparison)
    found = []
    for size, of in sorted(curves.items()):
        lines = [Line(name, -1 - at, _curve(curve, across, up)) for at, (name, curve) in enumerate(of)]
        for row, rows, has in points:
            said = f"{row.name}: {rows:.1f} tokens a forward, {has:.2f} tokens a step"
            mark = (Point(across.at(rows), 100 - up.at(has), said),)
            if row.batch_size == size:
                lines.append(Line(strategy(row), numbers[strategy(row)], mark, joined=False))
        found.append(Chart(f"Texts in a forward: {size}", across, up, tuple(lines)))
    return found


def by_batch(comparison: Comparison) -> list[Chart]:
    """Return speed-up and tokens a second over the batch size; nothing where there is one."""
    sizes = sorted({row.batch_size for row in comparison.rows})
    if len(sizes) < 2:
        return []
    across = doublings("texts decoded together", sizes, room=0.3)
    found = []
    for title, name, label, unit in (
        ("Speed-up over plain decoding of the same batch", "speed_up", "times as fast", "x"),
        ("Tokens a second, all texts together", "tokens_per_second", "tokens a second", ""),
    ):
        told = {
            (strategy(row), row.batch_size): (row, getattr(one, name))
            for row, one in pairs(comparison)
            if getattr(one, name) and not (name == "speed_up" and row.name == row.baseline)
        }
        if not told:
            continue
        up = axis(label, [*[one.high for _, one in told.values()], 1.0], unit=unit)
        who = [one for one in styles(comparison) if any((one, size) in told for size in sizes)]
        lines = []
        for at, one in enumerate(who):
            aside = 1.2 * (at - (len(who) - 1) / 2)  # percent, so that intervals at one size lie side by side
            points = [_batch_point(told[one, size], across, up, aside, unit) for size in sizes if (one, size) in told]
            lines.append(Line(one, styles(comparison)[one], tuple(points)))
        level = 100 - up.at(1.0) if name == "speed_up" else None
        found.append(Chart(title, across, up, tuple(lines), level, "plain decoding"))
    return found


def _batch_point(told: tuple[Row, Estimate], across: Axis, up: Axis, aside: float, unit: str) -> Point:
    row, one = told
    said = f"{row.name}: {one.value:.2f}{unit} ({one.low:.2f}-{one.high:.2f})"
    return Point(
        across.at(row.batch_size) + aside, 100 - up.at(one.value), said, 100 - up.at(one.low), 100 - up.at(one.high)
    )


def _speed_up(row: Row, one: Estimate, over: Axis) -> Span:
    judged, words = "same", "no difference told"
    if one.low > 1:
        judged, words = "better", "faster"
    elif one.high < 1:
        judged, words = "worse", "slower"
    said = f"{one.value:.2f}x ({one.low:.2f}-{one.high:.2f})"
    return Span(row.name, over.at(one.low), over.at(one.value), over.at(one.high), said, judged, words)


def _curve(curve: Sequence[tuple[int, float]], across: Axis, up: Axis) -> tuple[Point, ...]:
    return tuple(
        Point(across.at(rows), 100 - up.at(cost), f"{rows} tokens cost {cost:.2f}x one") for rows, cost in curve
    )


def _by_size(found: Sequence[ForwardCost]) -> dict[int, list[tuple[int, float]]]:
    """Return T(n)/T(1) by n, for every batch size whose T(1) was measured."""
    sizes: dict[int, list[ForwardCost]] = {}
    for one in sorted(found, key=lambda one: one.rows):
        sizes.setdefault(one.batch_size, []).append(one)
    return {
        size: [(one.rows, one.seconds / costs[0].seconds) for one in costs]
        for size, costs in sizes.items()
        if costs[0].rows == 1 and costs[0].seconds
    }
