"""The Python door: load a target, generate or stream with a drafter picked by name."""

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch

from outrider.decode.detokenizer import Detokenizer
from outrider.decode.loop import decode
from outrider.decode.request import read_request
from outrider.decode.row import Evidence, Step
from outrider.decode.stats import Stats
from outrider.decode.stopping import FinishReason
from outrider.draft.guard import Guard
from outrider.errors import InputError, first_line
from outrider.plugins.words import DrafterWord, make_drafter
from outrider.target.model import Target

Prompt = str | Sequence[int] | torch.Tensor | Sequence[Mapping[str, str]]
"""Text, the ids of one row, or the messages of a chat."""


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


class Stream(Iterator[Step]):
    """A generation that yields its steps as they come; made by `outrider.stream`.

    `seed`, `drafter` and the `stats` so far can be read at any time. Leaving it early, by `close` or by leaving its `with`
    block, ends the row.
    """

    def __init__(self, target: Target, drafter: Guard, ids: Sequence[int], options: Mapping[str, Any]) -> None:
        request = read_request(target, ids, options)
        self.seed = request.seed
        self.drafter = drafter.drafter.name
        self.stats = Stats()
        self._steps = decode(target, drafter, request, self.stats)
        self._pieces = Detokenizer(target.tokenizer)
        self._tokens: list[int] = []
        self._texts: list[str] = []
        self._evidence: list[Evidence] = []
        self._reason: FinishReason | None = None

    def __next__(self) -> Step:
        step = next(self._steps)
        texts = self._pieces.push(step.tokens, last=step.finish_reason is not None)
        self._tokens.extend(step.tokens)
        self._texts.extend(texts)
        self._evidence.append(step.evidence)
        self._reason = step.finish_reason
        return replace(step, texts=texts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the row; nothing is left behind in the drafter."""
        self._steps.close()  # type: ignore[attr-defined]

    def result(self) -> Result:
        """Run to the end and return everything, what was already taken included.

        Raises:
            InputError: the stream was closed before its end.
        """
        for _ in self:
            pass
        if self._reason is None:
            raise InputError("the stream was closed before its end, so there is no result")
        found = Evidence.join(self._evidence)
        text, tokens = "".join(self._texts), tuple(self._tokens)
        return Result(
            text, tokens, self.stats, self._reason, self.seed, self.drafter, found.logits, found.scores, found.logprobs
        )


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
    if not isinstance(target, Target):
        raise InputError(f"{target!r} is no target; make one with outrider.load")
    guard = Guard(make_drafter(drafter, drafter_options, target.info))
    return Stream(target, guard, encode(target, prompt, chat), options)


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

    Raises:
        InputError: a wrong prompt, option, or drafter.
        DrafterError: the drafter failed or broke its contract.
    """
    with stream(target, prompt, drafter, drafter_options, chat=chat, **options) as steps:
        return steps.result()


def encode(target: Target, prompt: Prompt, chat: bool | None = None) -> list[int]:
    """Return a prompt's ids.

    Raises:
        InputError: the prompt is empty, or is text and the target has no tokenizer.
    """
    if isinstance(prompt, str):
        return _encode_text(target, prompt, chat)
    if isinstance(prompt, Sequence) and prompt and all(isinstance(one, Mapping) for one in prompt):
        return _encode_chat(target, prompt)
    if chat:
        raise InputError("chat=True needs a text prompt; ids are taken as they are")
    values: Any = prompt.tolist() if hasattr(prompt, "tolist") else prompt
    if not isinstance(values, Sequence):
        raise InputError(f"the prompt is a {type(prompt).__name__}: give a text, or the ids of one row in order")
    ids = values[0] if len(values) == 1 and isinstance(values[0], list) else values
    try:
        if any(isinstance(token, bool) for token in ids):
            raise TypeError
        return [operator.index(token) for token in ids]
    except TypeError:
        raise InputError("the prompt must be one text, one row of ids, or the messages of one chat") from None


def _encode_text(target: Target, prompt: str, chat: bool | None) -> list[int]:
    if not prompt:
        raise InputError("the prompt is empty: give at least one character")
    if target.tokenizer is None:
        raise InputError("the model was loaded without a tokenizer, so the prompt must be ids")
    template = getattr(target.tokenizer, "chat_template", None)
    if chat or (chat is None and template):
        return _encode_chat(target, [{"role": "user", "content": prompt}])
    return list(target.tokenizer(prompt).input_ids)


def _encode_chat(target: Target, messages: Sequence[Any]) -> list[int]:
    tokenizer = target.tokenizer
    if not getattr(tokenizer, "chat_template", None):
        raise InputError("the model has no chat template; leave chat out and pass the bare text or ids")
    try:
        text = tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
    except Exception as error:  # templates are the model's own programs
        raise InputError(f"the prompt can't be put into the chat template: {first_line(error)}") from error
    return list(tokenizer(text, add_special_tokens=False).input_ids)
