"""The measurement: rows in turn on the same prompts, interleaved, every run kept as it ends.

Rows change order from repeat to repeat, so that a machine that slows down slows all of them. In the first repeat the first row
is asked first, and its answers are what every row reads before a second turn.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from outrider.compare.conversations import Asking, Conversation, conversations, shard_of
from outrider.compare.lineup import Entrant, packages
from outrider.compare.machine import Forwards, Peak, cost_curve, describe, versions
from outrider.compare.noise import Watch
from outrider.compare.prompts import WARM_UP
from outrider.compare.record import Record
from outrider.compare.result import Comparison, ForwardCost, Part, Prompt, Row, Run, Settings
from outrider.compare.runner import digest, in_turn
from outrider.compare.strategies import Made, Strategy, Task
from outrider.errors import OutriderError, first_line
from outrider.interrupts import Interrupts, watched
from outrider.prompt import encode
from outrider.prompt_file import NamedPrompt
from outrider.target.model import Target

_WARM_UP_TOKENS: Final = 16
_CALIBRATED_TOKENS: Final = 32
_COST_TOKENS: Final = 256
_RUN: Final = TypeAdapter(Run)


@dataclass(slots=True)
class _Entry:
    """A row at work."""

    entrant: Entrant
    strategy: Strategy
    begun: int = -1
    load_seconds: float | None = None
    peak: int | None = None
    error: str | None = None
    runs: int = 0

    def row(self, meaning: str) -> Row:
        return replace(
            self.entrant.row,
            load_seconds=self.load_seconds,
            peak_memory_bytes=self.peak,
            peak_memory_meaning=meaning if self.peak is not None else "",
            error=self.error,
        )


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a measurement is.

    Args:
        done: runs that are there, those of a record included.
        total: runs that there will be.
        made: runs that were made now.
        seconds: that they took.
        last: the newest run.
    """

    done: int
    total: int
    made: int
    seconds: float
    last: Run

    @property
    def left(self) -> float | None:
        """Seconds that the rest is expected to take."""
        return self.seconds / self.made * (self.total - self.done) if self.made else None


@dataclass(slots=True)
class Measurement:
    """What is compared, and how; `run` measures.

    Args:
        target: the model.
        entrants: who takes part.
        prompts: in their order, with names that differ.
        settings: what was asked for; `generation` are the options of generation.
        texts: whether the prompts' texts may be kept.
        record: a JSONL file that keeps every run as it ends; runs that it holds, of the same settings, are not made again.
        hear: told of every run.
        sees: told of every run as it is made, with its prompt, such as for a trace.
        costs: the machine's cost curve where it is known already; else it is measured.
    """

    target: Target
    entrants: Sequence[Entrant]
    prompts: Sequence[NamedPrompt]
    settings: Settings
    texts: bool = False
    record: Path | None = None
    hear: Callable[[Progress], None] = lambda _: None
    sees: Callable[[Run, Prompt], None] = lambda *_: None
    costs: tuple[ForwardCost, ...] | None = None
    asked: dict[int, Prompt] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    stopped: BaseException | None = None
    """What ended it early: Ctrl-C, or a record that can't be written."""

    def run(self) -> Comparison:
        """Measure.

        Ctrl-C and a full disk end it early: what was measured is returned, and `stopped` says why.

        Raises:
            InputError: a prompt, a shard or a record is wrong.
        """
        settings, target = self.settings, self.target
        block = math.lcm(*settings.batch_sizes)
        chosen = shard_of(conversations(self.prompts), settings.shard, block)
        record = target.ranks.decided(lambda: Record(self.record, self._kept_by()), Record.read_only)
        known = self._known(record)
        asking = Asking(target, chat=settings.chat, seed=settings.seed, texts=self.texts)
        entries = [_Entry(one, one.strategy(target, settings.generation, settings.adaptive)) for one in self.entrants]
        started, began = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
        ids = asking.task(chosen[0], 0, ())[0].ids[:_COST_TOKENS]
        forwards = Forwards(target, ids[:_CALIBRATED_TOKENS])
        watch, peak = Watch(forwards.again, target.ranks), Peak(target.info.device)
        costs = self.costs
        if costs is None:
            costs = cost_curve(target, ids, settings.batch_sizes) if not settings.acceptance_only else ()
        each = settings.repeats * sum(len(one.prompt.turns) for one in chosen)
        work = _Work(self, entries, asking, record, known, watch, peak, each)
        try:
            with watched() as work.interrupts:
                for repeat in range(settings.repeats):
                    for start in range(0, len(chosen), block):
                        work.block(chosen[start : start + block], repeat)
        except (KeyboardInterrupt, OSError) as error:
            self.stopped = error
        part = Part(
            shard=settings.shard,
            started=started,
            seconds=round(time.monotonic() - began, 3),
            machine=describe(target),
            versions=versions(packages(self.entrants)),
            noise=watch.over(),
            costs=costs,
        )
        return Comparison(
            settings=settings,
            parts=(part,),
            prompts=tuple(self.asked[index] for index in sorted(self.asked)),
            rows=tuple(one.row(peak.meaning) for one in entries),
            runs=tuple(sorted(self.runs, key=lambda one: (one.repeat, one.prompt))),
            complete=all(one.runs == each for one in entries if not one.error),
        )

    def _kept_by(self) -> dict[str, Any]:
        """Return what runs depend on; rows and repeats may be added to a record."""
        told = asdict(self.settings)
        said = [[one.name, digest("\n".join((one.system, *one.turns)))] for one in self.prompts]
        return {
            name: value for name, value in told.items() if name not in ("repeats", "command", "acceptance_only")
        } | {"prompts": said}

    def _known(self, record: Record) -> dict[tuple[str, int, int], tuple[Run, Mapping[str, Any]]]:
        try:
            lines = [(_RUN.validate_python(one["run"]), one) for one in record.kept]
        except (KeyError, TypeError, ValidationError) as error:
            raise record.unreadable() from error
        return {(run.row, run.prompt, run.repeat): (run, one) for run, one in lines}


class _Work:
    """The runs of a measurement, one after another."""

    def __init__(
        self,
        measurement: Measurement,
        entries: Sequence[_Entry],
        asking: Asking,
        record: Record,
        known: Mapping[tuple[str, int, int], tuple[Run, Mapping[str, Any]]],
        watch: Watch,
        peak: Peak,
        each: int,
    ) -> None:
        self._to, self._asking, self._record, self._known = measurement, asking, record, known
        self._entries = {one.entrant.row.name: one for one in entries}
        self._watch, self._peak, self._each, self._total = watch, peak, each, each * len(entries)
        self._answers: dict[int, str] = {}
        self._made, self._seconds = 0, 0.0
        self.interrupts = Interrupts()

    def block(self, chosen: Sequence[Conversation], repeat: int) -> None:
        """Run all rows on some conversations, turn by turn."""
        for turn in range(max(len(one.prompt.turns) for one in chosen)):
            for name in in_turn(list(self._entries), repeat):
                entry = self._entries[name]
                size = entry.entrant.row.batch_size
                for start in range(0, len(chosen), size):
                    there = [one for one in chosen[start : start + size] if turn < len(one.prompt.turns)]
                    if there and not entry.error:
                        self._group(entry, there, turn, repeat)

    def _group(self, entry: _Entry, there: Sequence[Conversation], turn: int, repeat: int) -> None:
        name, group = entry.entrant.row.name, there[0].indices[turn]
        tasks = [self._task(one, turn) for one in there]
        kept = [self._known.get((name, prompt.index, repeat)) for _, prompt in tasks]
        there_already = [one for one in kept if one is not None]
        if len(there_already) == len(kept):
            for run, line in there_already:
                self._take(entry, run, line.get("load_seconds"), line.get("peak_memory_bytes"))
            return
        self._to.target.ranks.decided(self.interrupts.check)
        self._watch.look()
        began = time.monotonic()
        try:
            made = self._run(entry, [task for task, _ in tasks], repeat)
        except Exception as error:  # whatever goes wrong with one row, the others finish
            if self._to.target.ranks.several and isinstance(error, RuntimeError):
                raise  # such as memory that one process lacks: the others are in the middle of the run
            entry.error = str(error) if isinstance(error, OutriderError) else first_line(error)
            self._total -= self._each - entry.runs
            return
        self._seconds += time.monotonic() - began
        peak = self._peak.read()
        for (task, prompt), one in zip(tasks, made, strict=True):
            run = _as_run(name, prompt, repeat, group, task, one)
            self._made += 1
            line = {"run": asdict(run), "load_seconds": entry.load_seconds, "peak_memory_bytes": peak}
            self._take(entry, run, entry.load_seconds, peak, line)

    def _task(self, one: Conversation, turn: int) -> tuple[Task, Prompt]:
        answers = [self._answers.get(index, "") for index in one.indices[:turn]]
        task, prompt = self._asking.task(one, turn, answers)
        self._to.asked.setdefault(prompt.index, prompt)
        return task, prompt

    def _run(self, entry: _Entry, tasks: Sequence[Task], repeat: int) -> list[Made]:
        if entry.begun != repeat:
            start = time.perf_counter()
            entry.strategy.begin()
            if entry.strategy.loads and entry.load_seconds is None:
                entry.load_seconds = round(time.perf_counter() - start, 6)
            ids = encode(self._to.target, WARM_UP.text, self._to.settings.chat)
            entry.strategy.run([Task(tuple(ids), 0)] * len(tasks))
            entry.begun = repeat
        self._peak.begin()
        return entry.strategy.run(tasks)

    def _take(
        self,
        entry: _Entry,
        run: Run,
        load_seconds: float | None,
        peak: int | None,
        line: Mapping[str, Any] | None = None,
    ) -> None:
        entry.load_seconds = load_seconds if entry.load_seconds is None else entry.load_seconds
        entry.peak = max(entry.peak or 0, peak or 0) or None
        entry.runs += 1
        self._answers.setdefault(run.prompt, "".join(run.pieces))
        self._to.runs.append(run)
        self._to.target.ranks.decided(lambda: self._tell(run, line))

    def _tell(self, run: Run, line: Mapping[str, Any] | None) -> None:
        """Tell of a run, and keep what is new, which any disk may refuse."""
        if line is not None:
            self._record.keep(line)
        self._to.sees(run, self._to.asked[run.prompt])
        self._to.hear(Progress(len(self._to.runs), self._total, self._made, self._seconds, run))


def _as_run(row: str, prompt: Prompt, repeat: int, group: int, task: Task, made: Made) -> Run:
    return Run(
        row=row,
        prompt=prompt.index,
        repeat=repeat,
        group=group,
        seed=task.seed,
        token_ids=tuple(made.token_ids),
        pieces=tuple(made.pieces),
        finish_reason=made.finish_reason,
        prefill_tokens=made.prefill_tokens,
        prefill_seconds=round(made.prefill_seconds, 7),
        seconds=round(made.prefill_seconds + made.total("seconds"), 7),
        draft_seconds=round(made.total("draft_seconds"), 7),
        target_seconds=round(made.total("target_seconds"), 7),
        verify_seconds=round(made.total("verify_seconds"), 7),
        steps=made.columns,
        counterfactual=made.counterfactual,
    )
