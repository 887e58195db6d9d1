"""The tables of a comparison, in the terminal and as Markdown, CSV and JSON."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from outrider.compare.result import Comparison, Estimate, Figures, Row


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of words.

    Args:
        title: what it shows.
        head: its columns.
        lines: its rows, a word a column.
    """

    title: str
    head: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """Return it as Markdown."""
        lines = [self.head, tuple("---" if at == 0 else "--:" for at in range(len(self.head))), *self.lines]
        return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


Column = tuple[str, Callable[[Row, Figures], str]]


def grids(comparison: Comparison) -> list[Grid]:
    """Return what rows bring, where their time goes, and, where prompts have categories, tokens a step by category."""
    quick, counts_only = fastest(comparison), comparison.settings.acceptance_only
    brings: list[Column] = [
        ("row", lambda row, _: f"{row.name} (fastest)" if row.name in quick else row.name),
        ("tokens/s", lambda _, one: _estimate(one.tokens_per_second, 1)),
        ("speed-up", lambda row, one: "baseline" if row.name == row.baseline else _estimate(one.speed_up, 2, "x")),
        ("with prefill", lambda _, one: _number(one.whole_speed_up, 2, "x")),
        ("tokens a step", lambda _, one: _estimate(one.mean_acceptance_length, 2)),
        ("break-even", lambda _, one: _number(one.break_even_length, 2)),
        ("drafted", lambda _, one: str(one.drafted) if one.drafted else ""),
        ("accepted", lambda _, one: f"{one.accepted} ({one.acceptance_rate:.0%})" if one.acceptance_rate else ""),
        ("wasted", lambda _, one: str(one.wasted) if one.drafted else ""),
        ("text", lambda row, one: (row.error and f"FAILED: {row.error}") or verdict(one)),
    ]
    goes: list[Column] = [
        ("row", lambda row, _: row.name),
        ("draft", lambda _, one: _share(one.draft_share)),
        ("target", lambda _, one: _share(one.target_share)),
        ("verify", lambda _, one: _share(one.verify_share)),
        ("rest", lambda _, one: _share(one.rest_share)),
        ("cost of a step", lambda _, one: _number(one.step_cost, 2)),
        ("rows a forward", lambda _, one: _number(one.mean_rows, 1)),
        ("cost of such a forward", lambda _, one: _number(one.forward_cost, 2)),
        ("load s", lambda row, _: _number(row.load_seconds, 2)),
        ("memory MB", lambda row, _: f"{row.peak_memory_bytes / 1e6:.0f}" if row.peak_memory_bytes else ""),
        ("accepted at depth 1, 2, ...", lambda _, one: _depths(one.acceptance_by_depth)),
        ("of those decided on", lambda _, one: _depths(one.conditional_acceptance_by_depth)),
    ]
    found = [_grid(what_of(comparison), brings, comparison), _grid("where the time goes", goes, comparison)]
    if counts_only:
        leaves = {"speed-up", "with prefill", "break-even", "tokens/s"}
        found[0] = _grid(what_of(comparison), [one for one in brings if one[0] not in leaves], comparison)
    return found + costs(comparison) + other_rules(comparison) + categories(comparison)


def notes(comparison: Comparison) -> list[str]:
    """Return what has to be said beside the tables: warnings first."""
    found = [
        f"WARNING{f' (shard {part.shard})' if part.shard and len(comparison.parts) > 1 else ''}: {line}"
        for part in comparison.parts
        for line in part.noise.warnings
    ]
    if not comparison.complete:
        found.append("WARNING: not everything was measured; the figures are of what was")
    if not comparison.settings.acceptance_only:
        found.append(
            "tokens/s, speed-up and tokens a step are ratios of sums over all prompts, the prefill apart, of every prompt the "
            "median repeat; in brackets 95 % intervals by a paired bootstrap over conversations and repeats; break-even: "
            "tokens a step at which the row is as fast as its baseline"
        )
    return found


def prompts_of(count: int) -> str:
    """Say how many prompts."""
    return f"{count} prompt{'' if count == 1 else 's'}"


def what_of(comparison: Comparison) -> str:
    """Say what was compared."""
    settings = comparison.settings
    tokens = settings.generation.get("max_new_tokens")
    heat = settings.generation.get("temperature")
    how = f"temperature {heat}" if heat else "sampled" if settings.sampled else "greedy"
    shard = f", shard {settings.shard}" if settings.shard else ""
    adaptive = "" if settings.adaptive else ", not adaptive"
    return (
        f"{settings.model}, {settings.dtype} on {settings.device}, {how}, {prompts_of(len(comparison.prompts))} x {tokens} "
        f"tokens x {settings.repeats}{adaptive}{shard}"
    )


def fastest(comparison: Comparison) -> frozenset[str]:
    """Return the names of the rows with the most tokens a second, one of every batch size; failed and wrong ones apart."""
    if comparison.settings.acceptance_only:
        return frozenset()
    sizes: dict[int, dict[str, float]] = {}
    for row, one in zip(comparison.rows, comparison.figures, strict=True):
        if one.tokens_per_second and not row.error and one.verdict.kind != "fault":
            sizes.setdefault(row.batch_size, {})[row.name] = one.tokens_per_second.value
    return frozenset(max(rates, key=lambda name: rates[name]) for rates in sizes.values() if len(rates) > 1)


def verdict(one: Figures) -> str:
    """Say whether a row's texts are plain decoding's."""
    found = one.verdict
    if found.kind == "not compared":
        return f"not compared: {found.detail}"
    if found.kind == "identical":
        return "identical"
    if found.kind == "near ties":
        return f"{found.parted} of {found.texts} part, {found.near_ties} near ties"
    return f"FAULT: {found.faults} partings that rounding can't account for ({found.parted} of {found.texts} texts)"


def render(comparison: Comparison, how: str) -> str:
    """Return a comparison as text: `md`, `csv`, `json` or `jsonl`."""
    if how == "md":
        parts = [f"**{grid.title}**\n\n{grid.markdown()}" for grid in grids(comparison)]
        return "\n\n".join([*parts, "\n".join(f"- {line}" for line in notes(comparison))])
    lines = [_flat(comparison, row, one) for row, one in zip(comparison.rows, comparison.figures, strict=True)]
    if how == "csv":
        out = io.StringIO()
        writer = csv.DictWriter(out, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _cell(value) for key, value in line.items()} for line in lines)
        return out.getvalue().rstrip("\n")
    if how == "jsonl":
        return "\n".join(json.dumps(line) for line in lines)
    warnings = [line for line in notes(comparison) if line.startswith("WARNING")]
    return json.dumps(
        {"settings": asdict(comparison.settings), "warnings": warnings, "complete": comparison.complete, "rows": lines},
        indent=2,
    )


def _flat(comparison: Comparison, row: Row, one: Figures) -> dict[str, Any]:
    told = asdict(row) | asdict(one)
    told.pop("row")
    warnings = [line for line in notes(comparison) if line.startswith("WARNING")]
    found: dict[str, Any] = {}
    for key, value in told.items():
        if isinstance(value, dict) and set(value) == {"value", "low", "high"}:
            found |= {key: value["value"], f"{key}_low": value["low"], f"{key}_high": value["high"]}
        elif key in ("tokens_per_second", "speed_up", "mean_acceptance_length"):
            found |= {key: None, f"{key}_low": None, f"{key}_high": None}
        elif key == "verdict":
            found |= {f"verdict_{name}" if name != "kind" else "verdict": said for name, said in value.items()}
        else:
            found[key] = value
    return found | {"warnings": warnings}


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict | list | tuple) else value


def _grid(title: str, columns: Sequence[Column], comparison: Comparison) -> Grid:
    pairs = list(zip(comparison.rows, comparison.figures, strict=True))
    lines = [tuple(cell(row, one) for _, cell in columns) for row, one in pairs]
    # A column in which nobody has anything to say is left out.
    kept = [at for at in range(len(columns)) if at == 0 or any(line[at] for line in lines)]
    head = tuple(columns[at][0] for at in kept)
    return Grid(title, head, tuple(tuple(line[at] for at in kept) for line in lines))


def costs(comparison: Comparison) -> list[Grid]:
    """Return what forwards cost, a table for every machine."""
    found = []
    for part in comparison.parts:
        lines = []
        rows = sorted({one.rows for one in part.costs})
        for size in dict.fromkeys(one.batch_size for one in part.costs):
            seconds = {one.rows: one.seconds for one in part.costs if one.batch_size == size}
            relative = [_number(seconds[count] / seconds[1], 2) if count in seconds else "" for count in rows]
            lines.append((str(size), f"{1000 * seconds[1]:.1f}", *relative))
        shard = f", shard {part.shard}" if part.shard else ""
        title = f"cost of a forward of n tokens of each text, over one of a single token{shard}"
        if lines:
            found.append(Grid(title, ("texts", "ms for n = 1", *[f"n = {count}" for count in rows]), tuple(lines)))
    return found


def other_rules(comparison: Comparison) -> list[Grid]:
    """Return what other rules would be expected to bring; nothing where no row can tell."""
    told = [one for one in comparison.figures if one.counterfactual_length]
    rules = list(dict.fromkeys(rule for one in told for rule in one.counterfactual_length))
    lines = tuple((one.row, *[_number(one.counterfactual_length.get(rule), 2) for rule in rules]) for one in told)
    title = "tokens a step that other rules are expected to give on the same drawn chains"
    return [Grid(title, ("row", *rules), lines)] if lines else []


def categories(comparison: Comparison) -> list[Grid]:
    """Return tokens a step and speed-up by category; nothing where there are none."""
    names = list(dict.fromkeys(part.category for one in comparison.figures for part in one.by_category))
    if not names:
        return []
    found = []
    for title, of in (("tokens a step", "mean_acceptance_length"), ("speed-up", "speed_up")):
        lines = []
        for one in comparison.figures:
            told = {part.category: getattr(part, of) for part in one.by_category}
            lines.append((one.row, *[_number(told.get(name), 2) for name in names]))
        if any(cell for line in lines for cell in line[1:]):
            found.append(Grid(f"{title} by category", ("row", *[name or "(none)" for name in names]), tuple(lines)))
    return found


def _estimate(one: Estimate | None, digits: int, unit: str = "") -> str:
    if one is None:
        return ""
    # Of a single run, or of counts that are the same for all, there is no interval.
    interval = f" ({one.low:.{digits}f}-{one.high:.{digits}f})" if one.low < one.high else ""
    return f"{one.value:.{digits}f}{unit}{interval}"


def _number(value: float | None, digits: int, unit: str = "") -> str:
    return "" if value is None else f"{value:.{digits}f}{unit}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _depths(shares: Sequence[float]) -> str:
    return " ".join(f"{one:.2f}" for one in shares[:8]) + (" ..." if len(shares) > 8 else "")
