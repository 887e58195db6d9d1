"""Tuning: the machine's cost curve, probes of every drafter, predictions, and a validation that decides.

Probes of all drafters and plain decoding take turns on the same prompts, as the rows of a comparison do. What a drafter raises
ends its part, and the others go on. Ctrl-C ends the work, and what was measured until then is returned.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from outrider.compare.conversations import Asking, conversations
from outrider.compare.machine import cost_curve
from outrider.compare.measure import Progress
from outrider.compare.result import Comparison, Settings
from outrider.compare.runner import in_turn
from outrider.compare.strategies import Task
from outrider.draft.plain import Plain
from outrider.errors import InputError, OutriderError, first_line
from outrider.prompt_file import NamedPrompt
from outrider.target.model import Target
from outrider.tune.advice import choose
from outrider.tune.contender import Contender
from outrider.tune.costs import Curve
from outrider.tune.plan import PROBED, Load, fit, validation
from outrider.tune.probe import Probe
from outrider.tune.result import Checked, Tuned
from outrider.tune.settings import Setting, Space
from outrider.tune.validate import compare, name_of, unique

_CONTEXT: Final = 256


@dataclass(slots=True)
class Tuning:
    """What is tuned, and how; `run` does it.

    Args:
        target: the model.
        spaces: the drafters.
        rules: that they are verified by; `rejection` and `block` only where a drafter declares laws.
        prompts: whose first turns are answered.
        settings: of texts, with the batch sizes; `max_new_tokens` and repeats are the most.
        budget: seconds that it is to take at most; at least one prompt is measured with everything.
        hear: told what is done, and how many seconds are expected to be left.
    """

    target: Target
    spaces: Sequence[Space]
    rules: Sequence[str]
    prompts: Sequence[NamedPrompt]
    settings: Settings
    budget: float
    hear: Callable[[str, float | None], None] = lambda *_: None
    stopped: BaseException | None = None
    """What ended it early: Ctrl-C."""

    def run(self) -> Tuned:
        """Measure, predict, validate, choose.

        Raises:
            InputError: a prompt is wrong, or there are fewer than are decoded together.
        """
        sizes = self.settings.batch_sizes
        if len(self.prompts) < max(sizes):
            raise InputError(f"--batch-size {max(sizes)}: there are {len(self.prompts)} prompts; give as many, or more")
        work = _Work(self)
        try:
            work.measure()
            work.predict()
            work.validate()
        except KeyboardInterrupt as error:
            self.stopped = error
            work.predict()
        return work.tuned()


class _Work:
    """A tuning at work."""

    def __init__(self, tuning: Tuning) -> None:
        self._to, self._began = tuning, time.monotonic()
        self._settings, self._prompts = tuning.settings, [replace(one, later=()) for one in tuning.prompts]
        self._contenders = [
            Contender(space, rule, size)
            for size in self._settings.batch_sizes
            for space in tuning.spaces
            for rule in tuning.rules
            if rule == "match" or space.drawn
        ]
        self._curve = Curve(())
        self._plain: dict[int, Probe] = {}
        self._checked: list[Checked] = []
        self._validation: Comparison | None = None

    @property
    def _spent(self) -> float:
        return time.monotonic() - self._began

    @property
    def _left(self) -> float:
        """Seconds of the budget that are left."""
        return max(0.0, self._to.budget - self._spent)

    def measure(self) -> None:
        """Measure the curve, and run all probes on as many prompts as there is time for."""
        sizes, to = self._settings.batch_sizes, self._to
        to.hear("what forwards of the target cost", self._left)
        self._curve = Curve(cost_curve(to.target, self._tasks()[0].ids[:_CONTEXT], tuple(dict.fromkeys((1, *sizes)))))
        anchors = [one.space.anchors(**one.more) for one in self._contenders]
        load = Load(self._curve.at(1), sum(map(len, anchors)), len(anchors))
        most = self._settings.generation["max_new_tokens"]
        self._prompts, length = fit(self._prompts, load, self._left, most, max(sizes))
        options = dict(self._settings.generation) | {"max_new_tokens": length}
        self._settings = replace(self._settings, generation=options)
        self._plain = {size: Probe(to.target, Setting(Plain.name, batch_size=size), options) for size in sizes}
        for one, settings in zip(self._contenders, anchors, strict=True):
            one.probes = [Probe(to.target, setting, options) for setting in settings]
        for size in sizes:
            self._probe(size)

    def _probe(self, size: int) -> None:
        """Let plain decoding and all probes of a batch size take turns on the prompts."""
        tasks, done = self._tasks(), 0
        for start in range(0, len(tasks) - size + 1, size):
            if start and self._spent > PROBED * self._to.budget:
                break
            jobs: list[tuple[Contender | None, Probe]] = [(None, self._plain[size])]
            jobs += [(one, probe) for one in self._contenders if one.batch_size == size for probe in one.probes]
            for at in in_turn(list(map(str, range(len(jobs)))), start // size):
                contender, probe = jobs[int(at)]
                self._to.hear(f"{probe.setting.label} on prompt {self._prompts[start].name}", self._left or None)
                _run(contender, probe, tasks[start : start + size])
            done = start + size
        self._prompts = self._prompts[:done]

    def predict(self) -> None:
        """Predict every drafter's settings."""
        for one in self._contenders:
            if one.batch_size in self._plain:
                one.predict(self._curve, self._plain[one.batch_size])

    def validate(self) -> None:
        """Run the best settings beside plain decoding, as often as there is time for."""
        ranked = sorted(
            (one for one in self._contenders if one.predictions), key=lambda one: -one.predictions[0].speed_up
        )
        if not ranked:
            return
        share = self._left / len(self._settings.batch_sizes)
        plans = [
            validation(
                [one.predictions for one in ranked if one.batch_size == size],
                [one.adaptive for one in ranked if one.batch_size == size],
                len(self._prompts),
                self._settings.generation["max_new_tokens"],
                share,
                self._settings.repeats,
            )
            for size in self._settings.batch_sizes
        ]
        expected = [(one.setting, one) for plan in plans for one in plan.predictions]
        settings = unique([*[one for one, _ in expected], *[one for plan in plans for one in plan.adaptive]])
        asked = replace(self._settings, repeats=min(plan.repeats for plan in plans))
        found, names, stopped = compare(self._to.target, settings, self._prompts, asked, self._curve.costs, self._hear)
        self._validation, self._to.stopped = found, stopped
        for setting in settings:
            row = name_of(names, setting)
            figures = next(one for one in found.figures if one.row == row)
            self._checked.append(
                Checked(
                    setting=setting,
                    row=row,
                    predicted=next((one for other, one in expected if other == setting), None),
                    tokens=figures.mean_acceptance_length.value if figures.mean_acceptance_length else None,
                    speed_up=figures.speed_up,
                    error=next(one.error for one in found.rows if one.name == row),
                )
            )

    def _hear(self, at: Progress) -> None:
        self._to.hear(f"validating: {at.done} of {at.total} runs, {at.last.row}", at.left)

    def tuned(self) -> Tuned:
        """Return all of it."""
        candidates = tuple(one.candidate() for one in self._contenders)
        sizes = self._settings.batch_sizes
        return Tuned(
            settings=self._settings,
            budget_seconds=self._to.budget,
            seconds=round(self._spent, 3),
            costs=self._curve.costs,
            plain_seconds={size: one.step_seconds for size, one in self._plain.items() if one.beats},
            prompts=tuple(one.name for one in self._prompts),
            candidates=candidates,
            checked=tuple(self._checked),
            choices=tuple(
                choose(
                    size,
                    [one for one in self._checked if one.setting.batch_size == size],
                    [one for one in candidates if one.batch_size == size],
                )
                for size in sizes
            ),
            validation=self._validation,
            complete=self._to.stopped is None,
        )

    def _tasks(self) -> list[Task]:
        settings = self._settings
        asking = Asking(self._to.target, chat=settings.chat, seed=settings.seed, texts=False)
        return [asking.task(one, 0, ())[0] for one in conversations(self._prompts)]


def _run(contender: Contender | None, probe: Probe, tasks: Sequence[Task]) -> None:
    """Run a probe; what a drafter raises ends its part."""
    if contender is None:
        probe.run(tasks)
        return
    if contender.error:
        return
    try:
        probe.run(tasks)
    except Exception as error:  # whatever goes wrong with one drafter, the others finish
        contender.error = str(error) if isinstance(error, OutriderError) else first_line(error)
