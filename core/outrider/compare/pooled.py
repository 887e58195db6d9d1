"""What runs come to: ratios of sums over all prompts, with intervals."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from outrider.compare.bootstrap import Table
from outrider.compare.result import CategoryFigures, Comparison, Figures, ForwardCost, Row, Run
from outrider.compare.verdicts import verdict
from outrider.decode.stats import acceptance_by_depth

_COUNTS: Final = ("tokens", "step_tokens", "steps")
_TIMES: Final = ("step_seconds", "seconds")


def with_figures(comparison: Comparison) -> Comparison:
    """Return a comparison with the figures of its runs."""
    return replace(comparison, figures=tuple(figures(comparison, row) for row in comparison.rows))


def figures(comparison: Comparison, row: Row) -> Figures:
    """Return what a row's runs come to."""
    runs = comparison.of(row.name)
    table = row_table(comparison, row.name)
    both = pair_table(comparison, row.name, row.baseline) if row.baseline else None
    own = table.pooled() if table else {}
    pair = both.pooled() if both else {}
    cost = _ratio(
        _ratio(pair.get("step_seconds"), pair.get("steps")),
        _ratio(pair.get("base_step_seconds"), pair.get("base_steps")),
    )
    drafted = _sum(one.steps.drafted for one in runs)
    accepted = _sum(one.steps.accepted for one in runs)
    steps = sum(len(one.steps) for one in runs)
    speculated = sum(bool(nodes) for one in runs for nodes in one.steps.drafted)
    widths = (
        drafted + _sum(one.steps.scouts for one in runs) + steps if any(one.steps.drafted for one in runs) else None
    )
    mean_rows = _ratio(widths, steps)
    return Figures(
        row=row.name,
        runs=len(runs),
        tokens=sum(len(one.token_ids) for one in runs),
        step_tokens=sum(one.step_tokens for one in runs),
        steps=steps,
        tokens_per_second=table.estimate(rate) if table else None,
        speed_up=both.estimate(speed_up) if both else None,
        whole_tokens_per_second=_ratio(own.get("tokens"), own.get("seconds")),
        whole_speed_up=_ratio(
            _ratio(pair.get("tokens"), pair.get("seconds")), _ratio(pair.get("base_tokens"), pair.get("base_seconds"))
        ),
        prefill_seconds=_ratio(sum(one.prefill_seconds for one in runs), len(runs)),
        mean_acceptance_length=table.estimate(length) if table and steps else None,
        mean_acceptance_length_drafted=1 + accepted / speculated if speculated else None,
        drafted_steps=speculated,
        paused_steps=_sum(one.steps.paused for one in runs),
        drafted=drafted,
        accepted=accepted,
        wasted=drafted - accepted,
        acceptance_rate=_ratio(accepted, drafted),
        acceptance_by_depth=_by_depth(runs),
        conditional_acceptance_by_depth=_conditional(runs),
        **_shares(runs),
        step_cost=cost,
        break_even_length=_times(cost, _ratio(pair.get("base_step_tokens"), pair.get("base_steps"))),
        mean_rows=mean_rows,
        forward_cost=forward_cost([one for part in comparison.parts for one in part.costs], row.batch_size, mean_rows),
        counterfactual_length=_counterfactual(runs),
        by_category=_by_category(comparison, row),
        verdict=verdict(comparison, row),
    )


def rate(sums: dict[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """Step tokens by step seconds."""
    with np.errstate(all="ignore"):
        return sums["step_tokens"] / sums["step_seconds"]


def speed_up(sums: dict[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """That, over the baseline's."""
    with np.errstate(all="ignore"):
        return rate(sums) / (sums["base_step_tokens"] / sums["base_step_seconds"])


def length(sums: dict[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """Step tokens by steps."""
    with np.errstate(all="ignore"):
        return sums["step_tokens"] / sums["steps"]


def row_table(comparison: Comparison, name: str, prompts: frozenset[int] | None = None) -> Table | None:
    """Return a row's figures by conversation (in batches, by those that were decoded together) and repeat."""
    cells = _cells(comparison, name, prompts)
    return _table(cells, sorted({unit for unit, _ in cells}), {"": cells}) if cells else None


def pair_table(comparison: Comparison, name: str, baseline: str, prompts: frozenset[int] | None = None) -> Table | None:
    """Return the figures of two rows on what both of them ran; the second's names begin with `base_`."""
    mine, base = _cells(comparison, name, prompts), _cells(comparison, baseline, prompts)
    both = {cell for cell in mine if cell in base and len(mine[cell]) == len(base[cell])}
    units = sorted({unit for unit, _ in both})
    return _table(both, units, {"": mine, "base_": base}) if both else None


def forward_cost(costs: Sequence[ForwardCost], batch_size: int, rows: float | None) -> float | None:
    """Return the cost of a forward of so many rows against one of a single row, between the sizes that were measured."""
    found = sorted((one.rows, one.seconds) for one in costs if one.batch_size == batch_size)
    if rows is None or not found or found[0][0] != 1 or not found[0][1]:
        return None
    return float(np.interp(rows, [one for one, _ in found], [one for _, one in found])) / found[0][1]


def _cells(comparison: Comparison, name: str, prompts: frozenset[int] | None) -> dict[tuple[int, int], list[Run]]:
    """Return a row's runs by what was decoded together, and repeat."""
    told = {one.index: one for one in comparison.prompts}
    runs = comparison.of(name)
    unit = {told[one.prompt].conversation: one.group for one in runs if told[one.prompt].turn == 0}
    found: dict[tuple[int, int], list[Run]] = {}
    for one in runs:
        if prompts is None or one.prompt in prompts:
            conversation = told[one.prompt].conversation
            found.setdefault((unit.get(conversation, one.prompt), one.repeat), []).append(one)
    return found


def _table(cells: Any, units: Sequence[int], sides: dict[str, dict[tuple[int, int], list[Run]]]) -> Table:
    repeats = 1 + max(repeat for _, repeat in cells)
    made: dict[str, NDArray[np.float64]] = {}
    for side, of in sides.items():
        for name in (*_COUNTS, *_TIMES):
            made[side + name] = np.full((len(units), repeats), np.nan)
        for at, unit in enumerate(units):
            for repeat in range(repeats):
                if (unit, repeat) in cells:
                    for name, value in _values(of[unit, repeat]).items():
                        made[side + name][at, repeat] = value
    return Table(
        {name: one for name, one in made.items() if name.removeprefix("base_") in _COUNTS},
        {name: one for name, one in made.items() if name.removeprefix("base_") in _TIMES},
        tuple(units),
    )


def _values(runs: Sequence[Run]) -> dict[str, float]:
    return {
        "tokens": sum(len(one.token_ids) for one in runs),
        "step_tokens": sum(one.step_tokens for one in runs),
        "steps": sum(len(one.steps) for one in runs),
        "step_seconds": sum(one.step_seconds for one in runs),
        "seconds": sum(one.seconds for one in runs),
    }


def _by_depth(runs: Sequence[Run]) -> tuple[float, ...]:
    histogram: list[int] = []
    for one in runs:
        for drafted, accepted in zip(one.steps.drafted, one.steps.accepted, strict=True):
            if drafted:
                histogram += [0] * (accepted + 1 - len(histogram))
                histogram[accepted] += 1
    return acceptance_by_depth([histogram])


def _conditional(runs: Sequence[Run]) -> tuple[float, ...]:
    asked: list[int] = []
    held: list[int] = []
    for one in runs:
        for deep, accepted in zip(one.steps.asked, one.steps.accepted, strict=True):
            asked += [0] * (deep - len(asked))
            held += [0] * (len(asked) - len(held))
            for depth in range(deep):
                asked[depth] += 1
                held[depth] += accepted > depth
    return tuple(one / count for one, count in zip(held, asked, strict=True) if count)


def _shares(runs: Sequence[Run]) -> dict[str, float | None]:
    told = [one for one in runs if one.steps.draft_seconds]
    total = sum(one.step_seconds for one in told)
    if not total:
        return dict.fromkeys(("draft_share", "target_share", "verify_share", "rest_share"))
    parts = [sum(getattr(one, f"{name}_seconds") for one in told) / total for name in ("draft", "target", "verify")]
    return dict(zip(("draft_share", "target_share", "verify_share"), parts, strict=True)) | {
        "rest_share": max(0.0, 1 - sum(parts))
    }


def _counterfactual(runs: Sequence[Run]) -> dict[str, float]:
    told = [one for one in runs if one.counterfactual]
    steps = sum(len(one.steps) for one in told)
    rules = {rule for one in told for rule in one.counterfactual}
    return (
        {rule: sum(one.counterfactual.get(rule, 0.0) for one in told) / steps for rule in sorted(rules)}
        if steps
        else {}
    )


def _by_category(comparison: Comparison, row: Row) -> tuple[CategoryFigures, ...]:
    names = list(dict.fromkeys(one.category for one in comparison.prompts))
    if len(names) < 2:
        return ()
    found = []
    for name in names:
        prompts = frozenset(one.index for one in comparison.prompts if one.category == name)
        table = row_table(comparison, row.name, prompts)
        if table is None:
            continue
        both = pair_table(comparison, row.name, row.baseline, prompts) if row.baseline else None
        own, pair = table.pooled(), both.pooled() if both else {}
        runs = [one for one in comparison.of(row.name) if one.prompt in prompts]
        found.append(
            CategoryFigures(
                category=name,
                prompts=len({one.prompt for one in runs}),
                tokens=sum(len(one.token_ids) for one in runs),
                steps=sum(len(one.steps) for one in runs),
                tokens_per_second=_ratio(own["step_tokens"], own["step_seconds"]),
                speed_up=_ratio(
                    _ratio(pair.get("step_tokens"), pair.get("step_seconds")),
                    _ratio(pair.get("base_step_tokens"), pair.get("base_step_seconds")),
                ),
                mean_acceptance_length=_ratio(own["step_tokens"], own["steps"]),
            )
        )
    return tuple(found)


def _sum(columns: Iterable[Iterable[int]]) -> int:
    return sum(value for column in columns for value in column)


def _ratio(one: float | None, other: float | None) -> float | None:
    return None if one is None or not other else float(one / other)


def _times(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one * other
