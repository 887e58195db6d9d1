"""What a comparison is: settings, machine, prompts, rows, runs and figures, as they are saved.

Everything that figures are worked out from is in the runs, so that whoever has a saved comparison can count again.
Tuples of `Steps` are columns: entry k of each belongs to step k.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

from pydantic import ConfigDict

FORMAT: Final = "outrider.compare"
VERSION: Final = 1
_STRICT: Final = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a comparison was asked for.

    Args:
        model: its name, folder or id.
        dtype: of the target's weights.
        device: where the target ran.
        generation: options of generation, for all rows; where they say nothing the model's generation config does.
        sampled: whether texts are drawn, as a result; else decoding is greedy.
        seed: from which every prompt's own is derived.
        repeats: how often every row ran every prompt.
        batch_sizes: at which rows ran.
        adaptive: whether drafts went as far as pays; False for as far as the drafter's options say.
        longest: to how many tokens prompts were cut; None for not.
        chat: whether prompts went through the chat template.
        acceptance_only: whether nothing but counts is meant: no baseline, no repeats.
        shard: which part of the prompts, as `i/n`; None for all of them.
        command: the command line, or empty.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    model: str
    dtype: str
    device: str
    generation: Mapping[str, Any]
    sampled: bool
    seed: int
    repeats: int
    batch_sizes: tuple[int, ...] = (1,)
    adaptive: bool = True
    longest: int | None = None
    chat: bool = False
    acceptance_only: bool = False
    shard: str | None = None
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The same small forward at some moment.

    Args:
        at: seconds from the beginning.
        seconds: the fastest of a few.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    at: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """How quiet the machine was.

    Args:
        wall_seconds: of the measurement.
        own_cpu_seconds: of this process.
        other_cores: CPU seconds of everything else on this process's CPUs, by wall seconds; None where it can't be read.
        waited_share: share of the time that this process's threads wanted a CPU and waited for one; None likewise.
        load_before: the load averages of 1, 5 and 15 minutes at the beginning; empty where there are none.
        load_after: the same at the end.
        mhz_before: mean clock of the CPUs; None where it can't be read.
        mhz_after: the same at the end.
        calibrations: the same small forward before, between and after the runs.
        calibration_spread: their slowest over their fastest, less 1; None below two.
        warnings: what is wrong with the measurement, a line each; empty on a quiet machine.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    wall_seconds: float
    own_cpu_seconds: float
    other_cores: float | None = None
    waited_share: float | None = None
    load_before: tuple[float, ...] = ()
    load_after: tuple[float, ...] = ()
    mhz_before: float | None = None
    mhz_after: float | None = None
    calibrations: tuple[Calibration, ...] = ()
    calibration_spread: float | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardCost:
    """What a forward of the target took.

    Args:
        batch_size: texts in it.
        rows: tokens of each text that it scored: the nodes and their root.
        context: tokens that each text had before.
        seconds: the fastest of a few, since what disturbs a measurement makes it longer.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    batch_size: int
    rows: int
    context: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A machine's share of a comparison; there are several where shards were merged.

    Args:
        shard: as in the settings.
        started: when, in UTC, ISO 8601.
        seconds: how long all of it took.
        machine: what it ran on: system, processor, cores, threads, memory, GPU.
        versions: of Python, outrider, torch, transformers, and the packages of the drafters.
        noise: how quiet it was.
        costs: the machine's cost curve; empty where it was not measured.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    shard: str | None
    started: str
    seconds: float
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    noise: Noise
    costs: tuple[ForwardCost, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt; every turn of a conversation is one.

    Args:
        index: among all prompts, shards apart; runs name their prompt by it.
        name: as tables show it.
        conversation: what it is a turn of; single prompts are conversations of one turn.
        turn: from 0.
        category: that it is counted in; empty for none.
        digest: of the text that the user says in this turn: SHA-256, 16 hexadecimal digits.
        tokens: ids of the whole prompt, template and earlier turns included.
        text: what the user says, where it may be kept; None for prompts of a file.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    index: int
    name: str
    conversation: str
    turn: int
    category: str
    digest: str
    tokens: int
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A strategy at a batch size: a row of the table.

    Args:
        name: no two rows have the same; `@n` is the batch size, where there are several.
        kind: `plain` decoding, a `drafter`, or one of `transformers`' own ways.
        drafter: the drafter's registered name, or what of transformers it is.
        word: how it is picked on the command line; empty for those of transformers.
        options: of the drafter, as they were given.
        rule: how drafts are verified.
        batch_size: texts that are decoded together.
        baseline: the row that it is compared with.
        load_seconds: to make the drafter, its weights included; None where it never was.
        peak_memory_bytes: the most during its runs; see `peak_memory_meaning`.
        peak_memory_meaning: what is counted there.
        error: why it did not finish; None where it did.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    name: str
    kind: Literal["plain", "drafter", "transformers"]
    drafter: str
    word: str
    options: Mapping[str, Any]
    rule: str
    batch_size: int
    baseline: str
    load_seconds: float | None = None
    peak_memory_bytes: int | None = None
    peak_memory_meaning: str = ""
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The steps of a run, by columns; a column that is not known is empty, as most are for transformers' own ways.

    Args:
        emitted: tokens that the step emitted.
        drafted: nodes that were proposed, scouts not counted.
        scouts: nodes that rode along and were never verified.
        depth: of the draft, 0 without one.
        asked: levels of the draft that were decided on: one more than were accepted, or as many where the draft or the text
            ended there.
        path: the accepted nodes that were emitted, by index in the draft.
        rejected: ids of the draft's own first choice from where it was left.
        rejected_text: the same as text.
        paused: 1 where adaptive decoding asked for no draft.
        seconds: of the whole step; of a step that several texts share, each counts an equal part.
        draft_seconds: of which in the drafter.
        target_seconds: of which in the target's forward, with building its inputs.
        verify_seconds: of which in processing logits, drawing and deciding; the rest is committing and bookkeeping.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    emitted: tuple[int, ...] = ()
    drafted: tuple[int, ...] = ()
    scouts: tuple[int, ...] = ()
    depth: tuple[int, ...] = ()
    asked: tuple[int, ...] = ()
    path: tuple[tuple[int, ...], ...] = ()
    rejected: tuple[tuple[int, ...], ...] = ()
    rejected_text: tuple[str, ...] = ()
    paused: tuple[int, ...] = ()
    seconds: tuple[float, ...] = ()
    draft_seconds: tuple[float, ...] = ()
    target_seconds: tuple[float, ...] = ()
    verify_seconds: tuple[float, ...] = ()

    def __len__(self) -> int:
        return len(self.emitted)

    @property
    def accepted(self) -> tuple[int, ...]:
        """Of every step, how many drafted tokens were emitted."""
        return tuple(map(len, self.path))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """A token that is not plain decoding's after the same text; see `outrider.Parting`."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    position: int
    token: int
    plain_token: int
    gap: float | None
    verdict: Literal["near tie", "fault"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A row on a prompt, once.

    Args:
        row: its name.
        prompt: its index.
        repeat: from 0.
        part: whose machine ran it, an index of `parts`.
        group: which prompts were decoded together: runs of a row and repeat with the same group.
        seed: of the text.
        token_ids: the new ids, cut after the stop.
        pieces: for every token the text that it completes.
        finish_reason: what ended the text; empty where it is not told.
        prefill_tokens: how many of the ids came out before the first step.
        prefill_seconds: until then; in a batch an equal part, as for the steps.
        seconds: of the whole run, prefill included.
        draft_seconds: as for `Steps`, of all steps.
        target_seconds: likewise.
        verify_seconds: likewise.
        steps: one by one.
        partings: from plain decoding, explained; None where the text was not asked about, empty where none is.
        counterfactual: expected tokens of all its steps under rules that it did not use, by rule; empty where it can't be told.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    row: str
    prompt: int
    repeat: int
    part: int = 0
    group: int = 0
    seed: int
    token_ids: tuple[int, ...]
    pieces: tuple[str, ...] = ()
    finish_reason: str = ""
    prefill_tokens: int
    prefill_seconds: float
    seconds: float
    draft_seconds: float = 0.0
    target_seconds: float = 0.0
    verify_seconds: float = 0.0
    steps: Steps = field(default_factory=Steps)
    partings: tuple[Parting, ...] | None = None
    counterfactual: Mapping[str, float] = field(default_factory=dict)

    @property
    def step_tokens(self) -> int:
        """Tokens that its steps emitted."""
        return len(self.token_ids) - self.prefill_tokens

    @property
    def step_seconds(self) -> float:
        """Time of its steps: all but the prefill."""
        return self.seconds - self.prefill_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A figure with the interval that holds it at 95 %, by a paired bootstrap over conversations and repeats."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a row's texts are plain decoding's.

    Args:
        kind: `identical`; `near ties`, where rounding accounts for every parting; `fault`; or `not compared`.
        texts: how many were looked at.
        parted: how many of them differ.
        near_ties: partings that rounding accounts for.
        faults: partings that it does not.
        detail: why texts were not compared, or could not be explained.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    kind: Literal["identical", "near ties", "fault", "not compared"]
    texts: int = 0
    parted: int = 0
    near_ties: int = 0
    faults: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryFigures:
    """A row's figures on the prompts of a category; see `Figures`."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    category: str
    prompts: int
    tokens: int
    steps: int
    tokens_per_second: float | None
    speed_up: float | None
    mean_acceptance_length: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a row's runs come to; rates and lengths are ratios of sums over all prompts, never means of ratios.

    Args:
        row: its name.
        runs: how many.
        tokens: emitted by all runs, those of the prefills included.
        step_tokens: emitted by steps.
        steps: target forwards after the prefill.
        tokens_per_second: step tokens by step seconds, of every prompt the median of its repeats.
        speed_up: that over the baseline's, on the same prompts.
        whole_tokens_per_second: all tokens by all seconds, prefill included, likewise.
        whole_speed_up: that over the baseline's.
        prefill_seconds: of a prompt on average.
        mean_acceptance_length: step tokens by steps.
        mean_acceptance_length_drafted: 1 + accepted / steps with a draft.
        drafted_steps: steps with a draft.
        paused_steps: steps without one, to save time.
        drafted: proposed nodes.
        accepted: of which accepted and emitted.
        wasted: of which not.
        acceptance_rate: accepted by drafted.
        acceptance_by_depth: share of the steps with a draft that had d tokens or more accepted, d = 1, 2, ...
        conditional_acceptance_by_depth: of the drafts that were decided on at depth d, the share that held there.
        draft_share: of the steps' time in the drafter.
        target_share: in the target's forwards.
        verify_share: in verifying.
        rest_share: in committing and bookkeeping.
        step_cost: time of a step over the baseline's.
        break_even_length: the mean acceptance length at which the row is as fast as its baseline, at what its steps cost.
        mean_rows: tokens of a text that a forward scored on average: the nodes and their root.
        forward_cost: cost of a forward of so many rows against one of a single row, by the measured curve.
        counterfactual_length: mean acceptance length that other rules would be expected to give on the same drafts, by rule.
        by_category: where prompts have categories.
        verdict: whether the texts are plain decoding's.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    row: str
    runs: int
    tokens: int
    step_tokens: int
    steps: int
    tokens_per_second: Estimate | None
    speed_up: Estimate | None
    whole_tokens_per_second: float | None
    whole_speed_up: float | None
    prefill_seconds: float | None
    mean_acceptance_length: Estimate | None
    mean_acceptance_length_drafted: float | None
    drafted_steps: int
    paused_steps: int
    drafted: int
    accepted: int
    wasted: int
    acceptance_rate: float | None
    acceptance_by_depth: tuple[float, ...]
    conditional_acceptance_by_depth: tuple[float, ...]
    draft_share: float | None
    target_share: float | None
    verify_share: float | None
    rest_share: float | None
    step_cost: float | None
    break_even_length: float | None
    mean_rows: float | None
    forward_cost: float | None
    counterfactual_length: Mapping[str, float]
    by_category: tuple[CategoryFigures, ...]
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A whole comparison.

    Args:
        format: always `outrider.compare`.
        version: of this schema.
        settings: what was asked for.
        parts: on which machine, how quiet, how fast; one, or one for every merged shard.
        prompts: in their order.
        rows: in the order of the table; the first is plain decoding, unless only acceptance was asked for.
        runs: all that were made.
        figures: of every row, in their order; worked out from the runs.
        complete: whether every row ran every prompt as often as asked, failed rows apart.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    format: Literal["outrider.compare"] = FORMAT
    version: Literal[1] = VERSION
    settings: Settings
    parts: tuple[Part, ...]
    prompts: tuple[Prompt, ...]
    rows: tuple[Row, ...]
    runs: tuple[Run, ...]
    figures: tuple[Figures, ...] = ()
    complete: bool = True

    def of(self, row: str) -> list[Run]:
        """Return the runs of a row."""
        return [one for one in self.runs if one.row == row]
