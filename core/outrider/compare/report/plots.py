"""The plots of a report: what is drawn where, from the figures."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outrider.compare.report.chart import Axis, Chart, Line, Point, axis, doublings, shares, whole
from outrider.compare.result import Comparison, Estimate, Figures, ForwardCost, Part, Row

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


def costs(comparison: Comparison) -> Chart | None:
    """Return the machine's cost curves, with rows as points: above its curve a row's forwards pay."""
    curves = [
        (_curve_name(comparison, part, size), found)
        for part in comparison.parts
        for size, found in _by_size(part.costs).items()
    ]
    if not curves:
        return None
    points = [
        (row, one.mean_rows, one.mean_acceptance_length.value)
        for row, one in pairs(comparison)
        if one.mean_rows and one.mean_acceptance_length and one.drafted
    ]
    across = doublings("tokens scored for each text in one forward", [one.rows for _, found in curves for one in found])
    tops = [cost for _, found in curves for _, cost in _ratios(found)] + [has for _, _, has in points]
    up = axis("lines: times the cost of one token; marks: tokens a step", tops)
    lines = [
        Line(
            name,
            -1 - at,
            tuple(
                Point(across.at(rows), 100 - up.at(cost), f"{name}: {rows} tokens cost {cost:.2f}x")
                for rows, cost in _ratios(found)
            ),
        )
        for at, (name, found) in enumerate(curves)
    ]
    numbers = styles(comparison)
    for row, rows, has in points:
        said = f"{row.name}: {rows:.1f} tokens a forward, {has:.2f} tokens a step"
        lines.append(
            Line(row.name, numbers[strategy(row)], (Point(across.at(rows), 100 - up.at(has), said),), joined=False)
        )
    return Chart("What a wider forward costs", across, up, tuple(lines))


def by_batch(comparison: Comparison) -> list[Chart]:
    """Return speed-up and tokens a second over the batch size; nothing where there is one."""
    sizes = sorted({row.batch_size for row in comparison.rows})
    if len(sizes) < 2:
        return []
    across = doublings("texts decoded together", sizes)
    found = []
    for title, name, unit in (
        ("Speed-up over plain decoding of the same batch", "speed_up", "x"),
        ("Tokens a second, all texts together", "tokens_per_second", ""),
    ):
        told = {
            (strategy(row), row.batch_size): (row, getattr(one, name))
            for row, one in pairs(comparison)
            if getattr(one, name) and not (name == "speed_up" and row.name == row.baseline)
        }
        if not told:
            continue
        up = axis(title, [*[one.high for _, one in told.values()], 1.0], unit=unit)
        lines = [
            Line(
                who,
                number,
                tuple(_batch_point(told[who, size], across, up, unit) for size in sizes if (who, size) in told),
            )
            for who, number in styles(comparison).items()
        ]
        level = 100 - up.at(1.0) if name == "speed_up" else None
        found.append(Chart(title, across, up, tuple(one for one in lines if one.points), level, "plain decoding"))
    return found


def _batch_point(told: tuple[Row, Estimate], across: Axis, up: Axis, unit: str) -> Point:
    row, one = told
    said = f"{row.name}: {one.value:.2f}{unit} ({one.low:.2f}-{one.high:.2f})"
    return Point(across.at(row.batch_size), 100 - up.at(one.value), said, 100 - up.at(one.low), 100 - up.at(one.high))


def _speed_up(row: Row, one: Estimate, over: Axis) -> Span:
    judged, words = "same", "no difference told"
    if one.low > 1:
        judged, words = "better", "faster"
    elif one.high < 1:
        judged, words = "worse", "slower"
    said = f"{one.value:.2f}x ({one.low:.2f}-{one.high:.2f})"
    return Span(row.name, over.at(one.low), over.at(one.value), over.at(one.high), said, judged, words)


def _curve_name(comparison: Comparison, part: Part, size: int) -> str:
    where = f", shard {part.shard}" if len(comparison.parts) > 1 else ""
    return f"batch of {size}{where}"


def _by_size(found: Sequence[ForwardCost]) -> Mapping[int, list[ForwardCost]]:
    sizes: dict[int, list[ForwardCost]] = {}
    for one in sorted(found, key=lambda one: one.rows):
        sizes.setdefault(one.batch_size, []).append(one)
    return {size: costs for size, costs in sizes.items() if costs[0].rows == 1 and costs[0].seconds}


def _ratios(found: Sequence[ForwardCost]) -> list[tuple[int, float]]:
    """Return T(n)/T(1) by n."""
    return [(one.rows, one.seconds / found[0].seconds) for one in found]
