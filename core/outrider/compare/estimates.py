"""What runs come to, row by row."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from pydantic import ConfigDict

_STRICT: Final = ConfigDict(extra="forbid")


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
