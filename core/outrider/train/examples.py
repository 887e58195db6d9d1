"""Chats as ids, with the tokens that are learnt marked."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from outrider.errors import InputError, first_line
from outrider.train.chats import Chat, Message


@dataclass(frozen=True, slots=True)
class Example:
    """A text to learn from.

    Args:
        ids: of its tokens.
        answers: for every token, whether it is an answer's; what ends an answer is, too.
    """

    ids: tuple[int, ...]
    answers: tuple[bool, ...]


def encode_chats(tokenizer: Any, chats: Iterable[Chat], longest: int) -> list[Example]:
    """Return the texts of chats, each cut to a length; those without an answer in it are left out.

    Raises:
        InputError: the model's template can't write a chat, or no chat has an answer.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise InputError("the model has no chat template; training text is made and read as chats")
    found = [_encode(tokenizer, chat, longest) for chat in chats]
    kept = [example for example in found if any(example.answers)]
    if not kept:
        raise InputError(f"none of the {len(found)} chats has an assistant's answer within its first {longest} tokens")
    return kept


def count_tokens(examples: Sequence[Example], vocab_size: int) -> torch.Tensor:
    """Return `[vocab]` int64, how often each token is learnt."""
    learnt = [token for one in examples for token, answer in zip(one.ids, one.answers, strict=True) if answer]
    return torch.bincount(torch.tensor(learnt, dtype=torch.long), minlength=vocab_size)


def _encode(tokenizer: Any, chat: Chat, longest: int) -> Example:
    ids: list[int] = []
    learnt: list[bool] = []
    pieces, rest = _pieces(tokenizer, chat.messages)
    for text, answer in pieces:
        new = tokenizer(text, add_special_tokens=False).input_ids
        # What stands before a later question begins with what ends the answer before it.
        marks = [answer or (bool(ids) and at == 0) for at in range(len(new))]
        ids, learnt = ids + new, learnt + marks
    if chat.finished and pieces:
        end = tokenizer(rest, add_special_tokens=False).input_ids[:1]
        ids, learnt = ids + end, learnt + [True] * len(end)
    return Example(tuple(ids[:longest]), tuple(learnt[:longest]))


def _pieces(tokenizer: Any, messages: Sequence[Message]) -> tuple[list[tuple[str, bool]], str]:
    """Split a chat's text into what is no answer and what is, in turns, and what follows the last answer."""
    pieces: list[tuple[str, bool]] = []
    told = whole = ""
    for at, message in enumerate(messages):
        if message["role"] != "assistant" or not message["content"].strip():
            continue
        said = message["content"].strip()
        before = _render(tokenizer, messages[:at], prompt=True)
        whole = _render(tokenizer, messages[: at + 1], prompt=False)
        if not before.startswith(told) or not whole.startswith(before + said):
            raise InputError("the model's chat template rewrites earlier turns, so answers can't be told from the rest")
        pieces += [(before[len(told) :], False), (said, True)]
        told = before + said
    return pieces, whole[len(told) :]


def _render(tokenizer: Any, messages: Sequence[Message], *, prompt: bool) -> str:
    try:
        plain = [dict(message) for message in messages]
        text: str = tokenizer.apply_chat_template(plain, tokenize=False, add_generation_prompt=prompt)
    except Exception as error:  # templates are programs
        raise InputError(f"the model's chat template can't write a chat of the data: {first_line(error)}") from error
    return text
