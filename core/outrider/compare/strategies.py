"""What can be compared: outrider with a drafter, and transformers' own `generate`, on prompts that are decoded together."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.generation.streamers import BaseStreamer

from outrider.compare.counterfactual import expected_tokens
from outrider.compare.result import Steps
from outrider.decode.detokenizer import Detokenizer
from outrider.decode.loop import decode
from outrider.decode.request import read_request
from outrider.decode.row import Row, Step
from outrider.decode.stats import Stats
from outrider.decode.work import Work
from outrider.draft.contract import Drafter
from outrider.draft.led import guard_for
from outrider.plugins.words import DrafterWord, make_shared
from outrider.target import compat
from outrider.target.load import load
from outrider.target.model import Target
from outrider.turns import Session


@dataclass(frozen=True, slots=True)
class Task:
    """A prompt to decode.

    Args:
        ids: the whole prompt.
        seed: of its text.
        conversation: what it is a turn of.
        messages: of the chat so far, where there is a template and more than one turn; a session then reads what is new.
        last: whether no turn comes after it.
    """

    ids: tuple[int, ...]
    seed: int
    conversation: str = ""
    messages: tuple[Mapping[str, str], ...] = ()
    last: bool = True


@dataclass(slots=True)
class Made:
    """What became of a task; see `Run` for what the names mean."""

    token_ids: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    finish_reason: str = ""
    prefill_tokens: int = 0
    prefill_seconds: float = 0.0
    steps: dict[str, list[Any]] = field(default_factory=dict)
    counterfactual: dict[str, float] = field(default_factory=dict)

    def step(self, **columns: Any) -> None:
        """Count a step."""
        for name, value in columns.items():
            self.steps.setdefault(name, []).append(round(value, 7) if isinstance(value, float) else value)

    @property
    def columns(self) -> Steps:
        """The steps as they are kept."""
        return Steps(**{name: tuple(values) for name, values in self.steps.items()})

    def total(self, column: str) -> float:
        """Sum a column."""
        return float(sum(self.steps.get(column, ())))


class Strategy(ABC):
    """A row of the table at work; `loads` says whether anything is loaded for it."""

    loads: bool = True

    @abstractmethod
    def begin(self) -> None:
        """Forget everything that was seen, as before every repeat, and load what is needed."""

    @abstractmethod
    def run(self, tasks: Sequence[Task]) -> list[Made]:
        """Decode some prompts together."""


class Drafting(Strategy):
    """Outrider with a drafter.

    Args:
        target: the model.
        word: how the drafter is picked.
        options: of generation.
    """

    def __init__(self, target: Target, word: DrafterWord, options: Mapping[str, Any]) -> None:
        self._target, self._word, self._options = target, word, dict(options)
        self._drafter: Drafter[Any] | None = None
        self._sessions: dict[str, Session] = {}

    def begin(self) -> None:
        """Make the drafter anew: what it learned in one repeat would be no measurement in the next."""
        for one in self._sessions.values():
            one.close()
        self._sessions, self._drafter = {}, None
        self._drafter = make_shared(self._word, None, self._target.info, self._target.ranks)

    def run(self, tasks: Sequence[Task]) -> list[Made]:
        """Decode some prompts together; a single turn of a chat goes on in its session."""
        if self._drafter is None:
            self.begin()
        if len(tasks) == 1 and tasks[0].messages:
            return [self._turn(tasks[0])]
        guard = guard_for(self._drafter, self._target.ranks)  # type: ignore[arg-type]
        rows = [
            Row(read_request(self._target, task.ids, self._options | {"seed": task.seed}), Stats()) for task in tasks
        ]
        made = {row.id: _Collected(self._target) for row in rows}
        for emitted in decode(self._target, guard, rows):
            for row, step in emitted:
                made[row.id].add(step, row.stats.prefill_seconds / len(emitted))
        return [one.made for one in made.values()]

    def _turn(self, task: Task) -> Made:
        session = self._sessions.get(task.conversation)
        if session is None:
            session = Session(self._target, guard_for(self._drafter, self._target.ranks), True, self._options)  # type: ignore[arg-type]
            self._sessions[task.conversation] = session
        collected = _Collected(self._target)
        with session.stream([dict(one) for one in task.messages], seed=task.seed) as steps:
            for step in steps:
                collected.add(step, steps.stats.prefill_seconds)
        if task.last:
            self._sessions.pop(task.conversation).close()
        return collected.made


class _Collected:
    """A text in the making."""

    def __init__(self, target: Target) -> None:
        self.made = Made()
        self._tokenizer, self._texts = target.tokenizer, Detokenizer(target.tokenizer)
        self._expected: dict[str, float] | None = {}
        self._drawn = False

    def add(self, step: Step, prefill_seconds: float) -> None:
        made, work = self.made, step.work
        made.token_ids += step.tokens
        made.pieces += self._texts.push(step.tokens, last=step.finish_reason is not None)
        made.finish_reason = step.finish_reason or ""
        if work is None:
            made.prefill_tokens, made.prefill_seconds = len(step.tokens), prefill_seconds
            return
        rejected = work.rejected()
        made.step(
            emitted=len(step.tokens),
            drafted=work.tree.candidates,
            scouts=len(work.tree.scouts),
            depth=work.tree.keep([one for one in range(len(work.tree)) if one not in work.tree.scouts]).depth,
            asked=work.asked(len(step.tokens)),
            path=work.path,
            rejected=rejected,
            rejected_text=self._tokenizer.decode(list(rejected)) if rejected and self._tokenizer is not None else "",
            paused=int(work.paused),
            seconds=work.seconds / work.rows,
            draft_seconds=work.draft_seconds / work.rows,
            target_seconds=work.target_seconds / work.rows,
            verify_seconds=work.verify_seconds / work.rows,
        )
        self._expect(work)

    def _expect(self, work: Work) -> None:
        """Count what other rules are expected to give, where that can be told of every step."""
        self._drawn = self._drawn or work.tree.laws is not None
        if self._expected is not None:
            expected = expected_tokens(work.tree, work.scores)
            before = self._expected
            self._expected = expected and {rule: before.get(rule, 0.0) + one for rule, one in expected.items()}
        self.made.counterfactual = dict(self._expected) if self._expected and self._drawn else {}


class Transformers(Strategy):
    """`generate` of the untouched model, on prompts padded on the left.

    Args:
        target: the model.
        options: of generation, as outrider takes them.
        own: further arguments of `generate`; an `assistant_model` may be a name.
    """

    def __init__(self, target: Target, options: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        self._target, self._own, self.loads = target, dict(own), "assistant_model" in own
        self._options = {name: value for name, value in options.items() if name not in ("seed", "rule", "adaptive")}
        if self._options.get("temperature") == 0:
            self._options = {"max_new_tokens": self._options["max_new_tokens"], "do_sample": False}
        elif self._options.keys() & {"temperature", "top_k", "top_p"}:
            self._options["do_sample"] = True

    def begin(self) -> None:
        """Load the assistant where it is a name; nothing else is kept."""
        assistant = self._own.get("assistant_model")
        if isinstance(assistant, str):
            dtype, where = str(self._target.info.dtype).removeprefix("torch."), self._target.info.device
            self._own["assistant_model"] = load(assistant, dtype=dtype, device=where).model

    def run(self, tasks: Sequence[Task]) -> list[Made]:
        """Generate; steps are told from when tokens come out."""
        target, longest = self._target, max(len(task.ids) for task in tasks)
        model: Any = target.model
        pad = min(target.info.eos_ids, default=0)
        ids = torch.tensor([[pad] * (longest - len(task.ids)) + list(task.ids) for task in tasks])
        mask = torch.tensor([[0] * (longest - len(task.ids)) + [1] * len(task.ids) for task in tasks])
        clock, where = _Clock(len(tasks)), target.info.device
        with torch.random.fork_rng([where] if where.type == "cuda" else []):
            torch.manual_seed(tasks[0].seed % 2**63)
            output = model.generate(
                ids.to(where),
                attention_mask=mask.to(where),
                streamer=clock,
                pad_token_id=pad,
                **self._options,
                **self._own,
            )
        begins = len(compat.start_ids(model)) if model.config.is_encoder_decoder else longest
        new = [row[begins:] for row in output.tolist()]
        return clock.made(new, self._stops(), target.tokenizer)

    def _stops(self) -> frozenset[int]:
        given: GenerationConfig | None = self._target.model.generation_config
        ends = getattr(given, "eos_token_id", None)
        return frozenset([ends] if isinstance(ends, int) else ends or ()) | self._target.info.eos_ids


class _Clock(BaseStreamer):
    """Hears when tokens come out: first the prompt, then what every step has emitted of each text."""

    def __init__(self, texts: int) -> None:
        self._texts, self._start = texts, perf_counter()
        self._heard: list[tuple[float, int]] = []
        self._prompted = False

    def put(self, value: Any) -> None:
        if self._prompted:
            self._heard.append((perf_counter(), value.numel() // self._texts))
        self._prompted = True

    def end(self) -> None:
        """Nothing is held back."""

    def made(self, texts: Sequence[list[int]], stops: frozenset[int], tokenizer: Any) -> list[Made]:
        """Return the texts, each cut after its stop, with the steps that it was there for."""
        found = []
        for new in texts:
            end = next((at + 1 for at, token in enumerate(new) if token in stops), len(new))
            pieces = list(Detokenizer(tokenizer).push(new[:end], last=True))
            found.append(Made(new[:end], pieces, "eos" if new[:end] and new[end - 1] in stops else "length"))
        before, out = self._start, 0
        for at, (now, count) in enumerate(self._heard):
            there = [one for one in found if len(one.token_ids) > out]
            for one in there:
                emitted = min(count, len(one.token_ids) - out)
                if at == 0:
                    one.prefill_tokens, one.prefill_seconds = emitted, (now - before) / len(there)
                else:
                    one.step(emitted=emitted, seconds=(now - before) / len(there))
            before, out = now, out + count
        return found
