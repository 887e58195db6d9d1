"""What was compared, where and how, as labels with words."""

from collections.abc import Mapping
from typing import Any, Final

from outrider.compare.result import Comparison, Noise, Part
from outrider.compare.table import Grid

Fact = tuple[str, str]
_GIGA: Final = 1e9


def asked(comparison: Comparison) -> list[Fact]:
    """Return what was asked for."""
    settings = comparison.settings
    categories = list(dict.fromkeys(one.category for one in comparison.prompts if one.category))
    kinds = f" in {len(categories)} categories" if len(categories) > 1 else ""
    cut = f", cut to {settings.longest} tokens" if settings.longest is not None else ""
    drawn = "drawn" if settings.sampled else "greedy"
    return [
        ("model", f"{settings.model}, {settings.dtype} on {settings.device}"),
        ("generation", f"{drawn}; {_pairs(settings.generation)}"),
        ("prompts", f"{len(comparison.prompts)}{kinds}, {'chat template' if settings.chat else 'bare text'}{cut}"),
        ("repeats", f"{settings.repeats}, interleaved; batch size {', '.join(map(str, settings.batch_sizes))}"),
        ("drafts", "as far as pays (adaptive)" if settings.adaptive else "as far as the drafters' options say"),
        ("seed", str(settings.seed)),
        *([("shard", settings.shard)] if settings.shard else []),
        *([("command", settings.command)] if settings.command else []),
    ]


def ran_on(part: Part) -> list[Fact]:
    """Return a part's machine, versions and quiet."""
    return [
        *([("shard", part.shard)] if part.shard else []),
        ("started", f"{part.started}, took {part.seconds:.0f} s"),
        *[_machine(key, value) for key, value in part.machine.items()],
        ("versions", _pairs(part.versions)),
        *quiet(part.noise),
    ]


def quiet(noise: Noise) -> list[Fact]:
    """Return how quiet a machine was."""
    found: list[Fact] = []
    if noise.other_cores is not None:
        found.append(("other processes", f"{noise.other_cores:.2f} cores"))
    if noise.waited_share is not None:
        found.append(("waited for a CPU", f"{noise.waited_share:.0%} of the time that it wanted one"))
    if noise.calibration_spread is not None:
        found.append(("the same forward", f"within {noise.calibration_spread:.0%}, {len(noise.calibrations)} times"))
    if noise.load_before and noise.load_after:
        found.append(("load", f"{noise.load_before[0]:.2f} before, {noise.load_after[0]:.2f} after"))
    if noise.mhz_before and noise.mhz_after:
        found.append(("clock", f"{noise.mhz_before:.0f} MHz before, {noise.mhz_after:.0f} after"))
    return found


def prompts(comparison: Comparison) -> Grid:
    """Return the prompts."""
    lines = tuple((one.name, one.category, str(one.tokens), one.digest, one.text or "") for one in comparison.prompts)
    return Grid("prompts", ("prompt", "category", "tokens", "digest", "what the user says"), lines)


def best(grid: Grid) -> list[int | None]:
    """Return for every column of numbers the line that has the most; None where there are none."""
    found: list[int | None] = [None]
    for column in list(zip(*grid.lines, strict=True))[1:]:
        told = [at for at, cell in enumerate(column) if cell]
        found.append(max(told, key=lambda at: float(column[at]), default=None))
    return found


def _machine(key: str, value: Any) -> Fact:
    if key.endswith("_bytes") and isinstance(value, int | float):
        return key.removesuffix("_bytes").replace("_", " "), f"{value / _GIGA:.0f} GB"
    return key.replace("_", " "), str(value)


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())
