"""What tuning found, as text: the cost curve, predictions beside measurements, and what to do."""

from collections.abc import Iterator, Sequence
from typing import Final

from outrider.tune.predict import Prediction
from outrider.tune.result import Candidate, Checked, Tuned

_BAR: Final = 30
_SHOWN: Final = 8


def lines(tuned: Tuned) -> Iterator[str]:
    """Yield the lines of all of it."""
    yield from _costs(tuned)
    for one in tuned.candidates:
        yield from _candidate(one, tuned.checked)
    yield from _checked(tuned.checked)
    if tuned.validation is not None:
        yield from (f"WARNING: {warning}" for part in tuned.validation.parts for warning in part.noise.warnings)
        wrong = (one.row for one in tuned.validation.figures if one.verdict.kind == "fault")
        yield from (f"FAULT: {row} gives texts that are not plain decoding's" for row in wrong)
    if tuned.bars:
        yield from _bars(tuned)
    if not tuned.complete:
        yield "Interrupted: this is what was measured until then."
    for choice in tuned.choices:
        at = f"Batch size {choice.batch_size}: " if len(tuned.choices) > 1 else ""
        yield f"{at}{choice.reason[:1].upper()}{choice.reason[1:]}."


def _costs(tuned: Tuned) -> Iterator[str]:
    """Yield the cost curves, each beside what real forwards of that size took in probes."""
    for size in dict.fromkeys(one.batch_size for one in tuned.costs):
        points = [(one.rows, one.seconds) for one in tuned.costs if one.batch_size == size]
        one, most = points[0][1], max(seconds for _, seconds in points)
        yield f"What a forward of the target costs, by the tokens that it scores (batch size {size})"
        yield from columns(
            ("tokens", "ms", "to one", ""),
            [(f"{rows}", f"{1000 * took:.1f}", f"{took / one:.2f}", bar(took / most)) for rows, took in points],
        )
        yield ""


def _candidate(one: Candidate, checked: Sequence[Checked]) -> Iterator[str]:
    """Yield what is known of a drafter: its acceptance, its fastest settings and the curve over depth."""
    settable = ", ".join(one.tunable) or "nothing; it is measured as it is"
    yield f"{one.label} (can be set: {settable})"
    if one.acceptance_by_depth:
        yield "  accepted at depth 1, 2, ...: " + " ".join(f"{share:.2f}" for share in one.acceptance_by_depth[:16])
    if one.error:
        yield f"  failed: {one.error}"
    shown = _shown(one.predictions)
    most = max((prediction.speed_up for prediction in shown), default=1.0)
    rows = [_prediction(prediction, checked, most) for prediction in shown]
    head = ("  setting", "tokens/step", "nodes", "step", "draft", "predicted", "measured", "")
    yield from columns(head, rows) if rows else ()
    yield ""


def _shown(predictions: Sequence[Prediction]) -> list[Prediction]:
    """Return the fastest settings, and of every other depth the fastest, in the order of their depths."""
    best: dict[int | None, Prediction] = {}
    for one in predictions:
        best.setdefault(one.setting.depth, one)
    chosen = [*best.values(), *predictions[:_SHOWN]]
    found = {one.setting.label: one for one in chosen}
    return sorted(found.values(), key=lambda one: (one.setting.depth or 0, one.nodes))


def _prediction(one: Prediction, checked: Sequence[Checked], most: float) -> tuple[str, ...]:
    measured = next((other.speed_up for other in checked if other.predicted == one and other.speed_up), None)
    return (
        f"  {one.setting.label}",
        f"{one.tokens:.2f}",
        f"{one.nodes:.1f}",
        f"{one.seconds / one.plain_seconds:.2f}",
        f"{one.draft_seconds / one.seconds:.0%}",
        f"{one.speed_up:.2f}",
        f"{measured.value:.2f}" if measured else "",
        bar(one.speed_up / most),
    )


def _checked(checked: Sequence[Checked]) -> Iterator[str]:
    """Yield predictions beside measurements."""
    if not checked:
        return
    yield "Measured beside plain decoding, interleaved"
    rows = [
        (
            f"  {one.row}",
            f"{one.predicted.tokens:.2f}" if one.predicted else "",
            f"{one.tokens:.2f}" if one.tokens else "",
            f"{one.predicted.speed_up:.2f}" if one.predicted else "",
            f"{one.speed_up.value:.2f}" if one.speed_up else (one.error or "not measured"),
            f"{one.speed_up.low:.2f} to {one.speed_up.high:.2f}" if one.speed_up else "",
            f"{one.off:+.0%}" if one.off is not None else "",
        )
        for one in checked
    ]
    head = ("  setting", "tokens predicted", "measured", "speed-up predicted", "measured", "interval", "off")
    yield from columns(head, rows)
    yield ""


def _bars(tuned: Tuned) -> Iterator[str]:
    yield "How well predictions and the choice hold"
    rows = [
        (f"  {one.name}", f"{one.value:.3f}", f"{one.bound:.3f}", "kept" if one.kept else "MISSED", one.detail)
        for one in tuned.bars
    ]
    yield from columns(("  what", "value", "bound", "", ""), rows)
    yield ""


def bar(share: float) -> str:
    """Draw a share of the longest bar."""
    return "#" * max(1, round(_BAR * share))


def columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a table: the first column and the last to the left, the others to the right."""
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    for row in (head, *rows):
        cells = [
            cell.ljust(width) if at in (0, len(head) - 1) else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
