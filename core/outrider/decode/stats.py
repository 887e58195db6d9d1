"""What is counted, each figure with its definition."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from time import perf_counter
from typing import Any, Literal

Timed = Literal["seconds", "prefill_seconds", "forward_seconds", "draft_seconds"]


@dataclass(slots=True)
class Stats:
    """Counts and times of one row's generation; names follow vLLM where it has them.

    Rows that are decoded together share their steps' time, and each counts all of it.

    Args:
        num_prompt_tokens: ids of the prompt.
        num_tokens: new ids, the first of which comes from the prefill.
        num_steps: target forwards after the prefill, with a draft or without.
        num_spec_steps: steps with a draft.
        num_draft_tokens: proposed nodes.
        num_accepted_draft_tokens: nodes that were accepted and emitted.
        acceptance_histogram: entry k counts the steps with a draft that had k tokens accepted.
        num_paused_steps: steps that could have had a draft, and in which adaptive decoding did not ask for one.
        plain_steps_won: what drafting has saved so far by the accounts of adaptive decoding, in plain steps; less than 0 where
            it has cost more than it brought, None where decoding is not adaptive.
        seconds: from the start of the prefill to the last token.
        prefill_seconds: of which in the prefill.
        forward_seconds: of which in the target's forwards after it, with building the masks and verifying.
        draft_seconds: of which in the drafter.
    """

    num_prompt_tokens: int = 0
    num_tokens: int = 0
    num_steps: int = 0
    num_spec_steps: int = 0
    num_draft_tokens: int = 0
    num_accepted_draft_tokens: int = 0
    acceptance_histogram: list[int] = field(default_factory=list)
    num_paused_steps: int = 0
    plain_steps_won: float | None = None
    seconds: float = 0.0
    prefill_seconds: float = 0.0
    forward_seconds: float = 0.0
    draft_seconds: float = 0.0

    def count_step(self, drafted: int, accepted: int) -> None:
        """Count a step that proposed `drafted` nodes and emitted `accepted` of them."""
        self.num_steps += 1
        if drafted:
            self.num_spec_steps += 1
            self.num_draft_tokens += drafted
            self.num_accepted_draft_tokens += accepted
            self.acceptance_histogram += [0] * (accepted + 1 - len(self.acceptance_histogram))
            self.acceptance_histogram[accepted] += 1

    def count_pace(self, won: float | None, *, paused: bool) -> None:
        """Count what the pace of drafting says after a step."""
        self.num_paused_steps += paused
        self.plain_steps_won = won

    @property
    def mean_acceptance_length(self) -> float | None:
        """Tokens emitted by steps / steps, the bonus token included; None where no step was made."""
        return (self.num_tokens - 1) / self.num_steps if self.num_steps else None

    @property
    def mean_acceptance_length_drafted(self) -> float | None:
        """VLLM's figure: 1 + accepted / steps with a draft."""
        return 1 + self.num_accepted_draft_tokens / self.num_spec_steps if self.num_spec_steps else None

    @property
    def draft_acceptance_rate(self) -> float | None:
        """Accepted / proposed nodes; None where nothing was proposed."""
        return self.num_accepted_draft_tokens / self.num_draft_tokens if self.num_draft_tokens else None

    @property
    def tokens_per_second(self) -> float | None:
        """New ids / seconds, the prefill included."""
        return self.num_tokens / self.seconds if self.seconds else None

    @property
    def overhead(self) -> float | None:
        """Share of the steps' time that is spent outside the target's forwards and verifying: drafting and bookkeeping."""
        steps = self.seconds - self.prefill_seconds
        return 1 - self.forward_seconds / steps if self.num_steps and steps > 0 else None

    def as_dict(self) -> dict[str, Any]:
        """All figures, for JSON."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        derived = [
            "mean_acceptance_length",
            "mean_acceptance_length_drafted",
            "draft_acceptance_rate",
            "tokens_per_second",
            "overhead",
        ]
        return fields | {name: getattr(self, name) for name in derived}


def acceptance_by_depth(histograms: Iterable[Sequence[int]]) -> tuple[float, ...]:
    """Return for every depth the share of the steps with a draft that had at least so many tokens accepted.

    Args:
        histograms: the `acceptance_histogram` of one generation or several.
    """
    pooled = [sum(column) for column in zip_longest(*histograms, fillvalue=0)]
    drafted = max(1, sum(pooled))
    return tuple(sum(pooled[depth:]) / drafted for depth in range(1, len(pooled)))


@dataclass(slots=True)
class Span:
    """The time of a block, once it is over."""

    seconds: float = 0.0


@contextmanager
def timing(rows: Iterable[Stats], name: Timed) -> Iterator[Span]:
    """Add the time of a block to a figure of every row."""
    counted, span, start = list(rows), Span(), perf_counter()
    try:
        yield span
    finally:
        span.seconds = perf_counter() - start
        for stats in counted:
            setattr(stats, name, getattr(stats, name) + span.seconds)
