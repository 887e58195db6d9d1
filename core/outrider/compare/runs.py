"""What was run: prompts, rows, and a row on a prompt, step by step.

Tuples of `Steps` are columns: entry k of each belongs to step k.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

from pydantic import ConfigDict

_STRICT: Final = ConfigDict(extra="forbid")


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
