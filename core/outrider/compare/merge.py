"""One comparison of several: the shards of one command, that ran on one machine or on many."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import count

from outrider.compare.pooled import with_figures
from outrider.compare.result import Comparison, Row
from outrider.errors import InputError


def merge(found: Sequence[Comparison], names: Sequence[str]) -> Comparison:
    """Return the comparison whose shards these are.

    Args:
        found: comparisons with the same settings and rows, on different prompts.
        names: what errors call them.

    Raises:
        InputError: they are of different settings or rows, or two have the same prompt.
    """
    first = found[0]
    seen: dict[int, str] = {}
    for one, name in zip(found, names, strict=True):
        differs = _differs(_settings(first), _settings(one)) or _differs(_rows(first), _rows(one))
        if differs:
            raise InputError(f"{names[0]} and {name} are no shards of one comparison: they differ in {differs}")
        for prompt in one.prompts:
            if prompt.index in seen:
                raise InputError(f"{seen[prompt.index]} and {name} both have prompt {prompt.name}")
            seen[prompt.index] = name
    parts = tuple(part for one in found for part in one.parts)
    numbers = count()
    places = [{at: next(numbers) for at in range(len(one.parts))} for one in found]
    shards = {part.shard for part in parts}
    whole = _all_shards(shards)
    return with_figures(
        replace(
            first,
            settings=replace(first.settings, shard=None if whole else ",".join(sorted(map(str, shards))), command=""),
            parts=parts,
            prompts=tuple(sorted((one for each in found for one in each.prompts), key=lambda one: one.index)),
            rows=tuple(_row([each.rows[at] for each in found]) for at in range(len(first.rows))),
            runs=tuple(
                sorted(
                    (
                        replace(run, part=place[run.part])
                        for each, place in zip(found, places, strict=True)
                        for run in each.runs
                    ),
                    key=lambda one: (one.repeat, one.prompt),
                )
            ),
            complete=whole and all(one.complete for one in found),
        )
    )


def _all_shards(shards: set[str | None]) -> bool:
    counts = {str(one).partition("/")[2] for one in shards}
    total = counts.pop() if len(counts) == 1 else ""
    return total.isdecimal() and shards == {f"{at}/{total}" for at in range(1, int(total) + 1)}


def _row(rows: Sequence[Row]) -> Row:
    errors = [one.error for one in rows if one.error]
    return replace(
        rows[0],
        load_seconds=next((one.load_seconds for one in rows if one.load_seconds is not None), None),
        peak_memory_bytes=max((one.peak_memory_bytes or 0 for one in rows), default=0) or None,
        error=errors[0] if errors else None,
    )


def _settings(one: Comparison) -> dict[str, object]:
    return {key: value for key, value in asdict(one.settings).items() if key not in ("shard", "command")}


def _rows(one: Comparison) -> dict[str, object]:
    return {"rows": [(row.name, row.options, row.rule) for row in one.rows]}


def _differs(one: dict[str, object], other: dict[str, object]) -> str:
    return ", ".join(key for key in one if one[key] != other.get(key))
