"""What changed from one comparison to another, row by row, with intervals that hold together at 99 %."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from outrider.compare.bootstrap import Table
from outrider.compare.pooled import length, pair_table, rate, row_table, speed_up
from outrider.compare.result import Comparison, Estimate
from outrider.compare.table import Grid, prompts_of, verdict
from outrider.errors import InputError

LEVEL: Final = 0.99
_RESAMPLES: Final = 10_000
MEASURES: Final = {"speedup": speed_up, "rate": rate, "length": length}
"""What can be compared: speed-up over the baseline, tokens a second, tokens a step."""


@dataclass(frozen=True, slots=True)
class Change:
    """A row's figure in both, and their ratio.

    Args:
        row: its name.
        measure: one of `MEASURES`.
        before: the figure in the first.
        after: in the second.
        ratio: after by before; its interval and those of all other changes hold at once at 99 %.
    """

    row: str
    measure: str
    before: float
    after: float
    ratio: Estimate

    @property
    def differs(self) -> bool:
        """Whether the interval leaves out that nothing changed."""
        return not self.ratio.low <= 1 <= self.ratio.high


@dataclass(frozen=True, slots=True)
class Difference:
    """What changed.

    Args:
        changes: of the rows that both have, on the prompts that both have.
        lost: rows of both, and measures, that only the first has a figure for, or on other prompts.
        prompts: how many those are.
        notes: what else differs: settings, versions, verdicts, rows, prompts.
    """

    changes: tuple[Change, ...]
    prompts: int
    notes: tuple[str, ...]
    lost: tuple[tuple[str, str], ...] = ()


def difference(before: Comparison, after: Comparison) -> Difference:
    """Return what changed.

    Raises:
        InputError: they have no prompt or no row in common.
    """
    digests = [{one.index: (one.digest, one.turn) for one in each.prompts} for each in (before, after)]
    shared = frozenset(index for index, told in digests[0].items() if digests[1].get(index) == told)
    if not shared:
        raise InputError("the two comparisons have no prompt in common, so there is nothing to set side by side")
    names = [row.name for row in before.rows if row.name in {one.name for one in after.rows}]
    if not names:
        raise InputError("the two comparisons have no row in common")
    pairs = [(name, measure, _tables(before, after, name, measure, shared)) for name in names for measure in MEASURES]
    asked = [(name, measure, table) for name, measure, table in pairs if table is not None]
    level = 1 - (1 - LEVEL) / max(1, len(asked))
    changes = []
    for name, measure, (first, second, both) in asked:
        ratio = both.estimate(lambda sums, of=MEASURES[measure]: _ratio(sums, of), level, _RESAMPLES)  # type: ignore[misc]
        old, new = (one.estimate(MEASURES[measure], resamples=1) for one in (first, second))
        if ratio is not None and old is not None and new is not None:
            changes.append(Change(name, measure, old.value, new.value, ratio))
    told = {(one.row, one.measure) for one in changes}
    had = [(name, measure) for name in names for measure in MEASURES if _table(before, name, measure, shared)]
    lost = tuple(one for one in had if one not in told)
    return Difference(tuple(changes), len(shared), tuple(_notes(before, after, len(shared))), lost)


def grid(found: Difference) -> Grid:
    """Return the table of what changed."""
    lines = [
        (
            one.row,
            one.measure,
            f"{one.before:.2f}",
            f"{one.after:.2f}",
            f"{one.ratio.value:.3f} ({one.ratio.low:.3f}-{one.ratio.high:.3f})",
            "changed" if one.differs else "",
        )
        for one in found.changes
    ]
    head = ("row", "what", "before", "after", "after / before", "")
    return Grid(f"on {prompts_of(found.prompts)}; all intervals together hold at 99 %", head, tuple(lines))


def as_json(found: Difference) -> str:
    """Return it as JSON."""
    changes = [asdict(one) | {"differs": one.differs} for one in found.changes]
    return json.dumps({"prompts": found.prompts, "changes": changes, "notes": found.notes}, indent=2)


def read_bound(word: str) -> tuple[str, float]:
    """Read `MEASURE:RATIO`, such as `speedup:0.95`.

    Raises:
        InputError: it is none.
    """
    measure, _, value = word.partition(":")
    try:
        bound = float(value)
    except ValueError:
        bound = -1.0
    if measure not in MEASURES or not bound > 0:
        raise InputError(
            f"--fail-below {word}: write WHAT:RATIO, such as speedup:0.95, with one of {', '.join(MEASURES)}"
        )
    return measure, bound


def below(found: Difference, bounds: Sequence[tuple[str, float]]) -> list[str]:
    """Return a line for every row whose figure was lost, or fell below a share of what it was, by the ratio itself.

    Raises:
        InputError: there is no figure to hold to a bound, which must not pass for one that held.
    """
    told = {one.measure for one in found.changes}
    if missing := next((measure for measure, _ in bounds if measure not in told), None):
        raise InputError(f"--fail-below {missing}: no row that both comparisons have measured has it")
    bounded = {measure for measure, _ in bounds}
    lost = [
        f"{row}: {measure} was measured on these prompts in the first alone"
        for row, measure in found.lost
        if measure in bounded
    ]
    return lost + [
        f"{one.row}: {measure} is {one.ratio.value:.3f} of what it was, below {bound:g}"
        for measure, bound in bounds
        for one in found.changes
        if one.measure == measure and one.ratio.value < bound
    ]


def _ratio(sums: dict[str, NDArray[np.float64]], of: object) -> NDArray[np.float64]:
    old = {name.removeprefix("old_"): one for name, one in sums.items() if name.startswith("old_")}
    new = {name: one for name, one in sums.items() if not name.startswith("old_")}
    with np.errstate(all="ignore"):
        return of(new) / of(old)  # type: ignore[operator,no-any-return]


def _tables(
    before: Comparison, after: Comparison, name: str, measure: str, prompts: frozenset[int]
) -> tuple[Table, Table, Table] | None:
    first, second = (_table(each, name, measure, prompts) for each in (before, after))
    if first is None or second is None or first.conversations != second.conversations:
        return None
    return first, second, first.beside(second)


def _table(found: Comparison, name: str, measure: str, prompts: frozenset[int]) -> Table | None:
    if measure != "speedup":
        return row_table(found, name, prompts)
    baseline = next(row.baseline for row in found.rows if row.name == name)
    return None if not baseline or baseline == name else pair_table(found, name, baseline, prompts)


def _notes(before: Comparison, after: Comparison, shared: int) -> list[str]:
    found = []
    for one, other in ((before, after), (after, before)):
        where = "first" if one is before else "second"
        if len(one.prompts) > shared:
            found.append(f"{prompts_of(len(one.prompts) - shared)} of the {where} left out")
        if missing := [row.name for row in one.rows if row.name not in {each.name for each in other.rows}]:
            found.append(f"only the {where} has: {', '.join(missing)}")
        found += [f"{where}: {line}" for part in one.parts for line in part.noise.warnings]
    for kind, old, new in (
        ("setting", asdict(before.settings), asdict(after.settings)),
        ("version of", dict(before.parts[0].versions), dict(after.parts[0].versions)),
        ("machine's", dict(before.parts[0].machine), dict(after.parts[0].machine)),
    ):
        changed = [key for key in old | new if key != "command" and old.get(key) != new.get(key)]
        found += [f"{kind} {key}: {old.get(key)} -> {new.get(key)}" for key in changed]
    figures = {one.row: one for one in before.figures}
    for one_row in after.figures:
        old_row = figures.get(one_row.row)
        if old_row is not None and old_row.verdict.kind != one_row.verdict.kind:
            found.append(f"{one_row.row}: {verdict(old_row)} -> {verdict(one_row)}")
    return found
