"""Prompts: a text, ids, or a chat's messages, made into ids."""

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from outrider.errors import InputError, first_line
from outrider.target.model import Target

Prompt = str | Sequence[int] | torch.Tensor | Sequence[Mapping[str, str]]
"""Text, the ids of one row, or the messages of a chat."""


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


def encode_batch(
    target: Target, prompts: Any, attention_mask: torch.Tensor | None, chat: bool | None
) -> list[list[int]]:
    """Return every prompt's ids, without padding.

    Raises:
        InputError: there is none, one of them is wrong (with its index), or the mask does not fit.
    """
    if isinstance(prompts, torch.Tensor):
        return _unpad(prompts, attention_mask)
    if attention_mask is not None:
        raise InputError("attention_mask belongs to a tensor of prompts; a list of prompts needs none")
    if isinstance(prompts, str | Mapping) or not isinstance(prompts, Sequence):
        raise InputError(f"prompts is a {type(prompts).__name__}: give a list of prompts, or a tensor [rows, length]")
    if not prompts:
        raise InputError("there are no prompts: give at least one")
    found = []
    for index, prompt in enumerate(prompts):
        try:
            ids = encode(target, prompt, chat)
            if not ids:
                raise InputError("the prompt is empty: give at least one token")
        except InputError as error:
            raise InputError(f"prompt {index}: {error}") from error
        found.append(ids)
    return found


def _unpad(ids: torch.Tensor, mask: torch.Tensor | None) -> list[list[int]]:
    if ids.ndim != 2 or ids.is_floating_point() or ids.dtype == torch.bool:
        raise InputError(
            f"prompts is a tensor of {ids.dtype} and shape {list(ids.shape)}: give int64 ids [rows, length]"
        )
    if mask is not None and not isinstance(mask, torch.Tensor):
        raise InputError(f"attention_mask is a {type(mask).__name__}: give a tensor [rows, length]")
    kept = torch.ones_like(ids) if mask is None else mask
    if kept.shape != ids.shape:
        raise InputError(f"attention_mask has shape {list(kept.shape)}, but the prompts {list(ids.shape)}")
    rows: list[list[int]] = ids.tolist()
    found = []
    for index, (row, seen) in enumerate(zip(rows, kept.tolist(), strict=True)):
        count = sum(map(bool, seen))
        if not count:
            raise InputError(f"prompt {index}: the prompt is empty: give at least one token")
        if not all(seen[-count:]):
            raise InputError(f"prompt {index}: attention_mask must be 0s, then 1s: prompts are padded on the left")
        found.append(row[-count:])
    if not found:
        raise InputError("there are no prompts: give at least one")
    return found


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
