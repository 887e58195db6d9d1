"""What a report draws of a tuning: predicted and measured speed-up over the size of the draft."""

from typing import Final

from outrider.compare.report.chart import Axis, Chart, Line, Point, axis, doublings
from outrider.compare.report.page import Section
from outrider.compare.result import Estimate
from outrider.tune.predict import Prediction
from outrider.tune.result import Candidate, Tuned

_NOTE: Final = (
    "Lines and full marks: the fastest setting that is predicted with at most so many tokens in a forward, of every drafter. "
    "Outlined marks: what the settings that were validated reached beside plain decoding, with 95 % intervals."
)


def predicted_and_measured(tuned: Tuned) -> Section:
    """Return the section of a report: a chart for every batch size."""
    sizes = dict.fromkeys(choice.batch_size for choice in tuned.choices)
    return Section(
        "outrider tune",
        "tuned",
        "Predicted and measured",
        _NOTE,
        tuple(found for size in sizes if (found := _chart(tuned, size)) is not None),
        tuple(choice.reason[:1].upper() + choice.reason[1:] + "." for choice in tuned.choices),
    )


def _chart(tuned: Tuned, size: int) -> Chart | None:
    candidates = [one for one in tuned.candidates if one.batch_size == size and one.predictions]
    if not candidates:
        return None
    checked = [[one for one in tuned.checked if one.predicted in other.predictions] for other in candidates]
    widths = [_tokens(one) for candidate in candidates for one in candidate.predictions]
    across = doublings("tokens scored for each text in one forward", [max(2, round(max(widths)))])
    reached = [one.speed_up.high for found in checked for one in found if one.speed_up]
    best = [candidate.predictions[0].speed_up for candidate in candidates]
    up = axis("times as fast as plain decoding", [1.0, *best, *reached], unit="x")
    lines = [_predicted(one, at, across, up) for at, one in enumerate(candidates, start=1)]
    for at, (one, found) in enumerate(zip(candidates, checked, strict=True), start=1):
        points = tuple(
            _measured(each.predicted, each.speed_up, each.row, across, up)
            for each in found
            if each.predicted and each.speed_up
        )
        lines += [Line(f"{one.label}, measured", at, points, joined=False, hollow=True)] if points else []
    return Chart(f"Batch size {size}", across, up, tuple(lines), 100 - up.at(1.0), "plain decoding")


def _predicted(candidate: Candidate, style: int, across: Axis, up: Axis) -> Line:
    """Return the best prediction up to every size; sizes are told apart by whole tokens."""
    points: list[Point] = []
    best: Prediction | None = None
    for one in sorted(candidate.predictions, key=lambda one: (round(_tokens(one)), -one.speed_up)):
        if best is not None and one.speed_up <= best.speed_up:
            continue
        best = one
        said = f"{one.setting.label}: {_tokens(one):.1f} tokens a forward, predicted {one.speed_up:.2f}x"
        points.append(Point(across.at(_tokens(one)), 100 - up.at(one.speed_up), said))
    return Line(candidate.label, style, tuple(points))


def _measured(predicted: Prediction, found: Estimate, row: str, across: Axis, up: Axis) -> Point:
    """Return what a setting reached, at the size that was predicted of it."""
    said = f"{row}: measured {found.value:.2f}x ({found.low:.2f}-{found.high:.2f}), predicted {predicted.speed_up:.2f}x"
    value, low, high = (100 - up.at(one) for one in (found.value, found.low, found.high))
    return Point(across.at(_tokens(predicted)), value, said, low, high)


def _tokens(one: Prediction) -> float:
    """Return the tokens of a text in a forward: the draft and what it hangs from."""
    return 1 + one.nodes
