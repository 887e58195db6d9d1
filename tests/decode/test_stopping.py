"""Where a text stops: exactly where plain decoding does, with every drafter that exists."""

from typing import Any

import pytest
import torch

import outrider
from support import (
    NAMES,
    Scripted,
    Watched,
    every_drafter,
    plain_loop,
    prompt_of,
    right_chain,
    tiny_target,
    transformers_generate,
)


@pytest.mark.parametrize("name", NAMES)
def test_eos_inside_a_block_ends_the_text(name: str) -> None:
    """Case 1, for every token of the text, alone and beside another."""
    target, prompt = Watched(tiny_target(0)), prompt_of(7)
    text = plain_loop(target.model, prompt, 30)
    for eos in sorted(set(text)):
        for ids in ([eos], [eos, text[-1]]):
            expected = plain_loop(target.model, prompt, 30, ids)
            drafter = every_drafter(target, prompt + text)[name]
            result = outrider.generate(target, prompt, drafter, max_new_tokens=30, eos_token_id=ids)
            assert list(result.token_ids) == expected
            assert result.finish_reason == "eos"
            assert len(target.caches.pop()) == len(prompt) + len(expected) - 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(4))
def test_a_stop_string_across_tokens_ends_the_text(name: str, seed: int) -> None:
    """Case 2: cut after the token that completes it, whatever the block."""
    target, prompt = tiny_target(seed, 0.1), prompt_of(8, seed)
    new = plain_loop(target.model, prompt, 24)
    text = target.tokenizer.decode(new)
    for start, length in ((2, 1), (3, 2), (5, 3), (11, 3)):
        stop = text[start : start + length]
        expected = transformers_generate(
            target.model, prompt, max_new_tokens=24, stop_strings=[stop], tokenizer=target.tokenizer
        )
        assert text[: len(expected)].endswith(stop)
        drafter = every_drafter(target, prompt + new)[name]
        result = outrider.generate(target, prompt, drafter, max_new_tokens=24, stop_strings=[stop])
        assert list(result.token_ids) == expected
        assert result.finish_reason == "stop_string"


@pytest.mark.parametrize("name", NAMES)
def test_the_length_is_exact(name: str) -> None:
    """Case 3, in new tokens and in all."""
    target, prompt = tiny_target(1), prompt_of(5, 1)
    text = plain_loop(target.model, prompt, 12)
    for count in range(1, 13):
        drafter = every_drafter(target, prompt + text)[name]
        options: list[dict[str, Any]] = [{"max_new_tokens": count}, {"max_length": 5 + count}]
        for option in options:
            result = outrider.generate(target, prompt, drafter, **option)
            assert list(result.token_ids) == text[:count]
            assert result.finish_reason == "length"


@pytest.mark.parametrize("size", [1, 3, 8])
def test_no_draft_is_longer_than_the_budget(size: int) -> None:
    target, prompt = tiny_target(1), prompt_of(5, 1)
    text = prompt + plain_loop(target.model, prompt, 12)
    for count in range(1, 13):
        drafter = Scripted(target, right_chain(text, size))
        result = outrider.generate(target, prompt, drafter, max_new_tokens=count, adaptive=False)
        assert list(result.token_ids) == text[5 : 5 + count]
        assert result.stats.num_draft_tokens == result.stats.num_accepted_draft_tokens


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["none", "int", "list", "tensor"])
def test_eos_may_be_nothing_an_id_a_list_or_a_tensor(name: str, kind: str) -> None:
    """Case 4."""
    target, prompt = tiny_target(2), [5, 6, 7, 8, 9, 10, 11, 7, 8]
    text = plain_loop(target.model, prompt, 15)
    eos: dict[str, Any] = {"none": None, "int": text[6], "list": [text[6]], "tensor": torch.tensor([text[6]])}
    expected = plain_loop(target.model, prompt, 15, [] if kind == "none" else [text[6]])
    drafter = every_drafter(target, prompt + text)[name]
    result = outrider.generate(target, prompt, drafter, max_new_tokens=15, eos_token_id=eos[kind])
    assert list(result.token_ids) == expected


@pytest.mark.parametrize("name", NAMES)
def test_a_minimum_length_masks_eos_at_each_position(name: str) -> None:
    """Case 5: the draft knows the text without the minimum, with EOS in the middle of its block."""
    target, prompt = tiny_target(3), prompt_of(6, 3)
    bare = plain_loop(target.model, prompt, 20)
    for least in (0, 1, 5, 6, 7):
        options: dict[str, Any] = {"max_new_tokens": 20, "eos_token_id": bare[3], "min_new_tokens": least}
        expected = transformers_generate(target.model, prompt, pad_token_id=0, **options)
        assert bare[3] not in expected[:least]
        drafter = every_drafter(target, prompt + bare)[name]
        assert list(outrider.generate(target, prompt, drafter, **options).token_ids) == expected


@pytest.mark.parametrize("name", NAMES)
def test_a_caller_s_own_criterion_is_asked_token_by_token(name: str) -> None:
    target, prompt = tiny_target(4), prompt_of(6, 4)
    text = plain_loop(target.model, prompt, 20)
    asked: list[int] = []

    def criterion(ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        asked.append(ids.shape[1])
        return ids[:, -1] == text[9]

    expected = text[: text.index(text[9]) + 1]
    drafter = every_drafter(target, prompt + text)[name]
    criteria: Any = [criterion]
    result = outrider.generate(
        target, prompt, drafter, max_new_tokens=20, stopping_criteria=transformers_list(criteria)
    )
    assert list(result.token_ids) == expected
    assert result.finish_reason == "criteria"
    assert asked == list(range(7, 7 + len(expected)))


def transformers_list(criteria: list[Any]) -> Any:
    from transformers import StoppingCriteriaList

    return StoppingCriteriaList(criteria)


def test_time_may_run_out() -> None:
    result = outrider.generate(tiny_target(), prompt_of(4), "none", max_new_tokens=500, max_time=0.05)
    assert result.finish_reason == "time"
    assert len(result.token_ids) < 500


def test_the_first_stop_in_token_order_wins() -> None:
    target, prompt = tiny_target(0), prompt_of(7)
    text = plain_loop(target.model, prompt, 12)
    drafter = Scripted(target, right_chain(prompt + text, 8))
    stop = target.tokenizer.decode(text[4:5])
    first = min(text.index(text[4]), text.index(text[6]))
    result = outrider.generate(target, prompt, drafter, max_new_tokens=12, eos_token_id=text[6], stop_strings=stop)
    assert list(result.token_ids) == text[: first + 1]
    assert result.finish_reason == ("stop_string" if text[first] == text[4] else "eos")
