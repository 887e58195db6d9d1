"""What a comparison says, in sentences."""

from outrider.compare.report.plots import pairs
from outrider.compare.result import Comparison
from outrider.compare.table import fastest


def headline(comparison: Comparison) -> list[str]:
    """Return which row is fastest at every batch size, and whether texts are plain decoding's."""
    return [*_speed(comparison), *_texts(comparison)]


def _speed(comparison: Comparison) -> list[str]:
    if comparison.settings.acceptance_only:
        return ["Only acceptance was measured: there is no baseline, and nothing was timed for comparison."]
    quick, several = fastest(comparison), len({row.batch_size for row in comparison.rows}) > 1
    said = []
    for row, one in pairs(comparison):
        if row.name not in quick:
            continue
        where = f" at batch size {row.batch_size}" if several else ""
        if row.name == row.baseline:
            said.append(f"Nothing is faster than plain decoding{where}: do not speculate here.")
        elif one.speed_up is None:
            said.append(f"{row.name} is the fastest{where}; there is no baseline to set it against.")
        else:
            gain = f"{one.speed_up.value:.2f} times plain decoding ({one.speed_up.low:.2f}-{one.speed_up.high:.2f})"
            doubt = "" if one.speed_up.low > 1 else "; the interval holds 1, so it may be no faster at all"
            said.append(f"{row.name} is the fastest{where}, {gain}{doubt}.")
    return said


def _texts(comparison: Comparison) -> list[str]:
    kinds: dict[str, list[str]] = {}
    for row, one in pairs(comparison):
        if row.error:
            kinds.setdefault("failed", []).append(row.name)
        elif row.name != row.baseline:
            kinds.setdefault(one.verdict.kind, []).append(row.name)
    said = []
    if "fault" in kinds:
        said.append(
            f"FAULT: texts that are not plain decoding's, and that rounding can't account for: {_list(kinds['fault'])}."
        )
    if "failed" in kinds:
        said.append(f"FAILED before the end: {_list(kinds['failed'])}.")
    if "near ties" in kinds:
        said.append(
            f"Texts part from plain decoding's only where rounding decides between near ties: {_list(kinds['near ties'])}."
        )
    if "identical" in kinds and len(kinds) == 1:
        said.append("Every text of every row is plain decoding's own, token by token.")
    elif "identical" in kinds:
        said.append(f"Identical to plain decoding, token by token: {_list(kinds['identical'])}.")
    if "not compared" in kinds:
        said.append(f"Texts not compared: {_list(kinds['not compared'])}.")
    return said


def _list(names: list[str]) -> str:
    return ", ".join(names)
