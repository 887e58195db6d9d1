"""The Python door: load a target, generate or stream with a drafter picked by name."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch

from outrider.decode.detokenizer import Detokenizer
from outrider.decode.evidence import Evidence
from outrider.decode.loop import Emitted, decode
from outrider.decode.request import Request, read_request, read_seed
from outrider.decode.row import Row, Step
from outrider.decode.stats import Stats
from outrider.decode.stopping import FinishReason
from outrider.draft.guard import Guard
from outrider.draft.led import guard_for
from outrider.errors import InputError
from outrider.plugins.words import DrafterWord, make_shared
from outrider.prompt import Prompt, encode, encode_batch
from outrider.target.model import Target
from outrider.verify.noise import derive


@dataclass(frozen=True, slots=True)
class Result:
    """A finished generation.

    Args:
        text: the new text without special tokens; empty where the target has no tokenizer.
        token_ids: the new ids only.
        stats: counts and times.
        finish_reason: which stop ended the text.
        seed: the seed that gives this text again.
        drafter: the drafter's name.
        logits: `[tokens, vocab]` float32 of the model itself, with `output_logits=True`.
        scores: `[tokens, vocab]` float32 after the processors, with `output_scores=True`.
        logprobs: of every token in the law that it was drawn from, with `output_logprobs=True`.
    """

    text: str
    token_ids: tuple[int, ...]
    stats: Stats
    finish_reason: FinishReason
    seed: int
    drafter: str
    logits: torch.Tensor | None = field(default=None, compare=False, repr=False)
    scores: torch.Tensor | None = field(default=None, compare=False, repr=False)
    logprobs: tuple[float, ...] | None = None


class Collected:
    """The steps of one row so far.

    Args:
        row: whose they are.
        tokenizer: the target's, or None.
    """

    def __init__(self, row: Row, tokenizer: Any) -> None:
        # A session's row goes on to other turns, with another request.
        self._stats, self._seed = row.stats, row.request.seed
        self._pieces = Detokenizer(tokenizer)
        self._steps: list[Step] = []

    def add(self, step: Step) -> Step:
        """Take in a step; returns it with the texts that its tokens complete."""
        texts = self._pieces.push(step.tokens, last=step.finish_reason is not None)
        told = replace(step, texts=texts)
        self._steps.append(replace(told, work=None))  # its laws and scores are large
        return told

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(text for step in self._steps for text in step.texts)

    def result(self, drafter: str) -> Result:
        """Put the steps together.

        Raises:
            InputError: the row was given up before its end.
        """
        reason = self._steps[-1].finish_reason if self._steps else None
        if reason is None:
            raise InputError("the stream was closed before its end, so there is no result")
        found = Evidence.join([step.evidence for step in self._steps])
        tokens = tuple(token for step in self._steps for token in step.tokens)
        return Result(
            text=self.text,
            token_ids=tokens,
            stats=self._stats,
            finish_reason=reason,
            seed=self._seed,
            drafter=drafter,
            logits=found.logits,
            scores=found.scores,
            logprobs=found.logprobs,
        )


class Stream(Iterator[Step]):
    """A generation that yields its steps as they come; made by `outrider.stream`.

    `seed`, `drafter` and the `stats` so far can be read at any time. Leaving it early, by `close` or by leaving its `with`
    block, ends the row.
    """

    def __init__(self, target: Target, drafter: str, row: Row, steps: Iterator[Emitted]) -> None:
        self.seed = row.request.seed
        self.drafter = drafter
        self.stats = row.stats
        self._steps = steps
        self.collected = Collected(row, target.tokenizer)

    def __next__(self) -> Step:
        ((_, step),) = next(self._steps)
        return self.collected.add(step)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the row; nothing is left behind in the drafter."""
        self._steps.close()  # type: ignore[attr-defined]

    @property
    def text(self) -> str:
        """The text so far."""
        return self.collected.text

    def result(self) -> Result:
        """Run to the end and return everything, what was already taken included.

        Raises:
            InputError: the stream was closed before its end.
        """
        for _ in self:
            pass
        return self.collected.result(self.drafter)


def stream(
    target: Target,
    prompt: Prompt,
    drafter: DrafterWord = "ngram",
    drafter_options: Mapping[str, Any] | None = None,
    *,
    chat: bool | None = None,
    **options: Any,
) -> Stream:
    """Generate step by step; the arguments are those of `generate`.

    Every step holds its new `tokens`, `from_draft` for each of them, and `texts`, the text that each completes.
    """
    guard = prepare(target, drafter, drafter_options)
    row = Row(read_request(target, encode(target, prompt, chat), options), Stats())
    return Stream(target, guard.drafter.name, row, decode(target, guard, [row]))


def generate(
    target: Target,
    prompt: Prompt,
    drafter: DrafterWord = "ngram",
    drafter_options: Mapping[str, Any] | None = None,
    *,
    chat: bool | None = None,
    **options: Any,
) -> Result:
    """Generate a text: the target's own, sooner.

    Args:
        target: from `outrider.load`.
        prompt: text, ids as a sequence or a tensor of one row, or the messages of a chat as `{"role": ..., "content": ...}`.
        drafter: a name (`ngram`, `none`, `dist/name`, `path/to/file.py::Class`), vLLM's mapping, or a drafter object.
        drafter_options: the drafter's own options.
        chat: put a text prompt into the model's chat template; by default where there is one.
        **options: those of `generate` of transformers (`max_new_tokens`, `temperature`, `stop_strings`, ...) and `seed`.
            `temperature=0` is greedy; without a length at most 256 new tokens are made. `rule` is how drafts are verified:
            `match`, or `rejection` or `block`, which trust the drafter to declare the laws that it draws from.
            `adaptive` (True) drafts as far as pays by measured costs and acceptance, and not at all where plain decoding is
            faster; False drafts as the drafter's options say; `outrider.Costs` are gone by in place of measured ones.

    Raises:
        InputError: a wrong prompt, option, or drafter.
        DrafterError: the drafter failed or broke its contract.
    """
    with stream(target, prompt, drafter, drafter_options, chat=chat, **options) as steps:
        return steps.result()


def generate_batch(
    target: Target,
    prompts: Sequence[Prompt] | torch.Tensor,
    drafter: DrafterWord = "ngram",
    drafter_options: Mapping[str, Any] | None = None,
    *,
    attention_mask: torch.Tensor | None = None,
    chat: bool | None = None,
    num_return_sequences: int = 1,
    first_index: int = 0,
    **options: Any,
) -> list[Result]:
    """Generate several texts together; each is that of its prompt alone with the seed that its result reports.

    Args:
        target: from `outrider.load`.
        prompts: any prompts of `generate`, or a tensor `[rows, length]`, padded on the left.
        drafter: as in `generate`; one object serves all rows.
        drafter_options: as in `generate`.
        attention_mask: `[rows, length]` for a tensor of prompts, 0 at the padding.
        chat: as in `generate`.
        num_return_sequences: texts of every prompt, one after another.
        first_index: of the first prompt among all, where they come in several batches: every row's seed is derived from
            `seed` and its index.
        **options: as in `generate`.

    Returns:
        The results in the order of the prompts.

    Raises:
        InputError: a wrong prompt (with its index), option, or drafter.
        DrafterError: the drafter failed or broke its contract.
    """
    if isinstance(num_return_sequences, bool) or not isinstance(num_return_sequences, int) or num_return_sequences < 1:
        raise InputError(f"num_return_sequences = {num_return_sequences!r}: must be a whole number, 1 or more")
    guard = prepare(target, drafter, drafter_options)
    every = encode_batch(target, prompts, attention_mask, chat)
    ids = [one for one in every for _ in range(num_return_sequences)]
    seed, first = target.ranks.decided(lambda: read_seed(options)), first_index * num_return_sequences
    requests = [
        _read_row(target, at // num_return_sequences, one, options | {"seed": derive(seed, first + at)})
        for at, one in enumerate(ids)
    ]
    rows = [Row(request, Stats()) for request in requests]
    found = {row.id: Collected(row, target.tokenizer) for row in rows}
    for emitted in decode(target, guard, rows):
        for row, step in emitted:
            found[row.id].add(step)
    return [one.result(guard.drafter.name) for one in found.values()]


def prepare(target: Target, drafter: DrafterWord, options: Mapping[str, Any] | None) -> Guard:
    """Return the drafter that a caller means, guarded.

    Raises:
        InputError: `target` is none, or a wrong drafter.
    """
    if not isinstance(target, Target):
        raise InputError(f"{target!r} is no target; make one with outrider.load")
    return guard_for(make_shared(drafter, options, target.info, target.ranks), target.ranks)


def _read_row(target: Target, index: int, ids: Sequence[int], options: Mapping[str, Any]) -> Request:
    try:
        return read_request(target, ids, options)
    except InputError as error:
        raise InputError(f"prompt {index}: {error}") from error
