"""How well tuning holds: predicted speed-ups against measured ones, and the choice against the best of a measured grid."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from outrider.compare.measure import Progress
from outrider.compare.result import Comparison
from outrider.prompt_file import NamedPrompt
from outrider.target.model import Target
from outrider.tune.predict import Prediction
from outrider.tune.result import Bar, Candidate, Tuned
from outrider.tune.validate import compare, name_of, unique

PREDICTED_WITHIN: Final = 0.10
CHOSEN_WITHIN: Final = 0.05
_AGAIN: Final = 2
_LEAST: Final = 3


def measure_bars(
    target: Target,
    tuned: Tuned,
    prompts: Sequence[NamedPrompt],
    each: int,
    hear: Callable[[Progress], None] = lambda _: None,
) -> Tuned:
    """Return what was tuned, with how well it holds, at its first batch size.

    Every drafter's grid is measured once. Then the best of it, the choice, and every drafter's setting that was predicted to be
    the fastest run again, interleaved, as often as in the validation and three times at least: the fastest of a grid that was
    measured once owes a part of that to luck.

    Args:
        target: the model.
        tuned: what was tuned.
        prompts: those that were measured.
        each: settings of a drafter's grid.
        hear: told of every run.
    """
    size = tuned.settings.batch_sizes[0]
    candidates = [one for one in tuned.candidates if one.batch_size == size and one.predictions]
    choice = next(one for one in tuned.choices if one.batch_size == size)
    grid = unique([one.setting for candidate in candidates for one in spread(candidate.predictions, each)])
    if not grid:
        return tuned
    once, names, stopped = compare(target, grid, prompts, replace(tuned.settings, repeats=1), tuned.costs, hear)
    if stopped is not None:
        return replace(tuned, complete=False)
    fast = sorted(grid, key=lambda one: -(_speed(once, name_of(names, one)) or 0.0))[:_AGAIN]
    firsts = [one.predictions[0].setting for one in candidates]
    chosen = [choice.setting] if choice.setting else []
    again = unique([*firsts, *fast, *chosen])
    settings = replace(tuned.settings, repeats=max(_LEAST, tuned.settings.repeats))
    found, names, stopped = compare(target, again, prompts, settings, tuned.costs, hear)
    if stopped is not None:
        return replace(tuned, complete=False)
    bars = [bar for one in candidates if (bar := _predicted(one, found, name_of(names, one.predictions[0].setting)))]
    best = max(fast, key=lambda one: _speed(found, name_of(names, one)) or 0.0)
    reached = _speed(found, name_of(names, choice.setting)) if choice.setting else 1.0
    most = max(1.0, _speed(found, name_of(names, best)) or 0.0)
    own = name_of(names, choice.setting) if choice.setting else names[size]
    detail = f"{own} at {reached or 0:.2f}, best of {len(grid)} settings {name_of(names, best)} at {most:.2f}"
    value = (reached or 0.0) / most
    bars.append(
        Bar(name="chosen / best", value=value, bound=1 - CHOSEN_WITHIN, kept=value >= 1 - CHOSEN_WITHIN, detail=detail)
    )
    return replace(tuned, bars=tuple(bars), seconds=tuned.seconds + sum(part.seconds for part in found.parts))


def spread(predictions: Sequence[Prediction], count: int) -> list[Prediction]:
    """Return the fastest predictions, half of the count, and as many spread over the others down to the slowest."""
    head = list(predictions[: (count + 1) // 2])
    rest = predictions[len(head) :]
    more = min(len(rest), count - len(head))
    return [*head, *(rest[(at + 1) * len(rest) // more - 1] for at in range(more))]


def _predicted(one: Candidate, found: Comparison, row: str) -> Bar | None:
    measured = _speed(found, row)
    if measured is None:
        return None
    value = one.predictions[0].speed_up / measured
    detail = f"{row}: predicted {one.predictions[0].speed_up:.2f}, measured {measured:.2f}"
    return Bar(
        name=f"predicted / measured, {one.label}",
        value=value,
        bound=1 + PREDICTED_WITHIN,
        kept=abs(value - 1) <= PREDICTED_WITHIN,
        detail=detail,
    )


def _speed(found: Comparison, row: str) -> float | None:
    figures = next(one for one in found.figures if one.row == row)
    return figures.speed_up.value if figures.speed_up else None
