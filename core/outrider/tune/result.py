"""What tuning found: everything that was measured and predicted, and what follows from it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from pydantic import TypeAdapter

from outrider.compare.files import published
from outrider.compare.result import Comparison, Estimate, ForwardCost, Settings
from outrider.tune.predict import Prediction
from outrider.tune.settings import Setting

FORMAT: Final = "outrider.tune"
VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A setting in its probes.

    Args:
        setting: which.
        tokens: that a step emitted of a text.
        nodes: that it drafted, scouts included; of several texts the most.
        step_seconds: that it took on average.
        steps: how many there were.
    """

    setting: Setting
    tokens: float
    nodes: float
    step_seconds: float
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A drafter under a rule at a batch size.

    Args:
        label: how it is told: the drafter's word, the rule and the batch size.
        batch_size: texts that are decoded together.
        tunable: names of its options that could be set.
        probes: what was measured, the widest and deepest setting first.
        acceptance_by_depth: share of the steps with so many tokens accepted, or more, for depth 1, 2, ..., of the probe that
            came the furthest.
        chances: of the first probe: for every depth and rank among siblings the chance to hold where all above did.
        predictions: of all settings, the fastest first.
        error: why it takes no further part; None where it does.
    """

    label: str
    batch_size: int
    tunable: tuple[str, ...]
    probes: tuple[Measured, ...] = ()
    acceptance_by_depth: tuple[float, ...] = ()
    chances: tuple[tuple[float, ...], ...] = ()
    predictions: tuple[Prediction, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A setting that was validated.

    Args:
        setting: which.
        row: its name in the comparison.
        predicted: what was expected; None for adaptive decoding, of which nothing is.
        tokens: mean acceptance length as measured.
        speed_up: as measured, with its interval; None where it failed.
        error: why it failed.
    """

    setting: Setting
    row: str
    predicted: Prediction | None
    tokens: float | None
    speed_up: Estimate | None
    error: str | None = None

    @property
    def off(self) -> float | None:
        """The predicted speed-up over the measured one, less 1."""
        return self.predicted.speed_up / self.speed_up.value - 1 if self.predicted and self.speed_up else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What to do at a batch size.

    Args:
        batch_size: which.
        setting: the fastest; None for plain decoding.
        speed_up: of it as measured; None for plain decoding.
        reason: in words.
    """

    batch_size: int
    setting: Setting | None
    speed_up: Estimate | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Something that tuning is held to.

    Args:
        name: what.
        value: as measured.
        bound: what it is to keep to.
        kept: whether it does.
        detail: between which rows.
    """

    name: str
    value: float
    bound: float
    kept: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """All of it.

    Args:
        format: always `outrider.tune`.
        version: of this schema.
        settings: how texts were made, in probes and in the validation.
        budget_seconds: that tuning was to take at most.
        seconds: that it took.
        costs: the machine's cost curve.
        plain_seconds: of a plain step, by batch size.
        prompts: names of the prompts that were measured.
        candidates: the drafters.
        checked: the validated settings.
        choices: what to do, for every batch size.
        validation: the whole comparison, its machine and its noise; None where there was none.
        bars: where they were measured: how well predictions and the choice hold.
        complete: whether it was not interrupted.
        config: the file that `generate` and `compare` take.
    """

    format: Literal["outrider.tune"] = FORMAT
    version: Literal[1] = VERSION
    settings: Settings
    budget_seconds: float
    seconds: float
    costs: tuple[ForwardCost, ...]
    plain_seconds: Mapping[int, float]
    prompts: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    checked: tuple[Checked, ...] = ()
    choices: tuple[Choice, ...] = ()
    validation: Comparison | None = None
    bars: tuple[Bar, ...] = ()
    complete: bool = True
    config: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return all of it, for JSON."""
        return asdict(self)


def schema() -> dict[str, Any]:
    """Return the JSON schema (2020-12) of what tuning found; `docs/schema` holds the published one."""
    return published(TypeAdapter(Tuned), FORMAT, VERSION)
