"""The loop on tiny float64 models, against an independent plain loop and `generate` of the untouched model."""

from typing import Any

import pytest
import torch

import outrider
from outrider import DraftTree
from support import (
    NAMES,
    VOCAB,
    Scripted,
    Watched,
    every_drafter,
    lively,
    plain_loop,
    prompt_of,
    right_chain,
    right_tree,
    tiny_model,
    tiny_target,
    transformers_generate,
)


@pytest.mark.parametrize("seed", range(20))
def test_the_text_is_that_of_plain_decoding_whatever_the_draft(seed: int) -> None:
    target = tiny_target(seed)
    for length in (1, 2, 3, 40):
        prompt = prompt_of(length, seed)
        new = plain_loop(target.model, prompt, 24)
        assert transformers_generate(target.model, prompt, max_new_tokens=24) == new
        for name, drafter in every_drafter(target, prompt + new).items():
            result = outrider.generate(target, prompt, drafter, max_new_tokens=24, adaptive=False)
            assert list(result.token_ids) == new, (name, length)
            _check_acceptance(name, result.stats)


def _check_acceptance(name: str, stats: outrider.Stats) -> None:
    """A dead drafter must not pass for a lossless one."""
    accepted = stats.num_accepted_draft_tokens
    if name == "none":
        assert stats.num_draft_tokens == 0
    elif name.startswith("right"):
        # 23 tokens after the prefill's, 6 (chain of 5) or 5 (tree of depth 4) a step
        assert stats.num_steps == (4 if name == "right chain" else 5)
    elif name.startswith("wrong"):
        assert accepted == 0
        assert stats.num_draft_tokens > 0
    elif name.startswith("partly"):
        assert accepted > 0
        assert stats.num_steps < 23


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_text_whatever_the_drafter(name: str, temperature: float) -> None:
    for seed in range(3):
        target, prompt = tiny_target(seed, 0.1), prompt_of(9, seed)
        for filters in ({}, {"top_k": 5}, {"top_p": 0.8, "top_k": 0}):
            options: dict[str, Any] = {"max_new_tokens": 20, "temperature": temperature, "seed": seed, **filters}
            plain = outrider.generate(target, prompt, "none", **options)
            drafter = every_drafter(target, [*prompt, *plain.token_ids])[name]
            result = outrider.generate(target, prompt, drafter, **options, adaptive=False)
            assert result.token_ids == plain.token_ids
            _check_sampled(name, result.stats)


def _check_sampled(name: str, stats: outrider.Stats) -> None:
    if name == "right chain":
        assert stats.num_steps == 4


def test_another_seed_gives_another_text() -> None:
    target = tiny_target()
    texts = {
        outrider.generate(target, [1, 2], "none", max_new_tokens=12, temperature=1.0, seed=s).token_ids
        for s in range(9)
    }
    assert len(texts) == 9


def test_a_seed_that_was_drawn_is_reported_and_gives_the_text_again() -> None:
    target = tiny_target()
    first = outrider.generate(target, [1, 2], "ngram", max_new_tokens=12, temperature=1.0)
    again = outrider.generate(target, [1, 2], "none", max_new_tokens=12, temperature=1.0, seed=first.seed)
    assert again.token_ids == first.token_ids


def test_sampling_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    outrider.generate(tiny_target(), [1, 2], "ngram", max_new_tokens=12, temperature=1.0)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", NAMES)
def test_processors_of_the_target_hold_under_every_drafter(name: str) -> None:
    """Context-dependent ones too: every node is processed on its own path."""
    target, prompt = tiny_target(1, 0.1), prompt_of(9, 1)
    bare = transformers_generate(target.model, prompt, max_new_tokens=24)
    for option in ({"repetition_penalty": 1.7}, {"no_repeat_ngram_size": 2}, {"bad_words_ids": [[bare[0]]]}):
        expected = transformers_generate(target.model, prompt, max_new_tokens=24, **option)
        assert expected != bare
        drafter = every_drafter(target, prompt + expected)[name]
        result = outrider.generate(target, prompt, drafter, max_new_tokens=24, **option)
        assert list(result.token_ids) == expected


@pytest.mark.parametrize("name", NAMES)
def test_the_stream_is_the_result(name: str) -> None:
    """Case 28: one committed prefix feeds the stream, the return value and the text."""
    target, prompt = tiny_target(2), prompt_of(6, 2)
    new = plain_loop(target.model, prompt, 20)
    eos = new[13]
    expected = new[: new.index(eos) + 1]
    drafter = every_drafter(target, prompt + new)[name]
    with outrider.stream(target, prompt, drafter, max_new_tokens=20, eos_token_id=eos) as steps:
        seen = list(steps)
        result = steps.result()
    assert [token for step in seen for token in step.tokens] == list(result.token_ids) == expected
    assert "".join(text for step in seen for text in step.texts) == result.text == target.tokenizer.decode(expected)
    assert [step.finish_reason for step in seen[:-1]] == [None] * (len(seen) - 1)
    assert seen[-1].finish_reason == result.finish_reason == "eos"
    assert sum(sum(step.from_draft) for step in seen) == result.stats.num_accepted_draft_tokens


def test_what_is_drafted_is_marked_in_the_stream() -> None:
    target, prompt = tiny_target(2), prompt_of(6, 2)
    text = prompt + plain_loop(target.model, prompt, 13)
    with outrider.stream(
        target, prompt, Scripted(target, right_chain(text, 3)), max_new_tokens=13, adaptive=False
    ) as steps:
        marks = [step.from_draft for step in steps]
    assert marks == [(False,), *[(True, True, True, False)] * 3]


def test_a_stream_that_is_left_early_ends_its_row() -> None:
    target = tiny_target()
    drafter = Scripted(target, lambda ids: DraftTree())
    with outrider.stream(target, prompt_of(4), drafter, max_new_tokens=20) as steps:
        next(steps)
        next(steps)
    assert len(drafter.ended) == 1
    with pytest.raises(outrider.InputError, match="closed before its end"):
        steps.result()
    assert outrider.generate(target, prompt_of(4), drafter, max_new_tokens=3).finish_reason == "length"


def test_the_time_between_steps_is_not_counted() -> None:
    import time

    with outrider.stream(tiny_target(), prompt_of(4), "none", max_new_tokens=6) as steps:
        for _ in steps:
            time.sleep(0.2)
        assert steps.stats.seconds < 1.0


@pytest.mark.parametrize("name", NAMES)
def test_the_context_end_is_reached_as_by_plain_decoding(name: str) -> None:
    """Case 20: drafts shrink to the room left, and beyond the last position decoding follows `generate`."""
    model = tiny_model(5, max_position_embeddings=32)
    target = outrider.load(model)
    for length, count in ((28, 4), (31, 1), (30, 6)):
        prompt = prompt_of(length, 5)
        new = plain_loop(model, prompt, count)
        drafter = every_drafter(target, prompt + new)[name]
        result = outrider.generate(target, prompt, drafter, max_new_tokens=count)
        assert list(result.token_ids) == new == transformers_generate(model, prompt, max_new_tokens=count)


def test_no_draft_reaches_past_the_last_position() -> None:
    target = outrider.load(tiny_model(5, max_position_embeddings=32))
    prompt = prompt_of(26, 5)
    depths: list[int] = []

    class Deep(Scripted):
        def propose_row(self, view: outrider.DraftView) -> DraftTree:
            depths.append(len(view.ids) + view.max_depth)
            return DraftTree()

    outrider.generate(target, prompt, Deep(target, lambda ids: DraftTree()), max_new_tokens=40)
    assert depths
    assert max(depths) == 32


def test_a_learned_position_table_is_never_overrun() -> None:
    """A model with an embedding a position would raise beyond it; up to there it must serve."""
    import transformers

    config = transformers.GPT2Config(
        vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=24, eos_token_id=None
    )
    torch.manual_seed(1)
    model: Any = transformers.GPT2LMHeadModel(config).double().eval()
    target, prompt = outrider.load(model), prompt_of(14)
    new = plain_loop(model, prompt, 10)
    for script in (right_chain, right_tree):
        result = outrider.generate(
            target, prompt, Scripted(target, script(prompt + new, 8)), max_new_tokens=10, adaptive=False
        )
        assert list(result.token_ids) == new
        assert result.stats.num_accepted_draft_tokens > 0


@pytest.mark.parametrize("name", NAMES)
def test_nothing_but_the_text_is_left_in_the_cache(name: str) -> None:
    target, prompt = Watched(tiny_target(3)), prompt_of(5, 3)
    new = plain_loop(target.model, prompt, 20)
    result = outrider.generate(
        target, prompt, every_drafter(target, prompt + new)[name], max_new_tokens=20, adaptive=False
    )
    (cache,) = target.caches
    assert len(cache) == cache.layers.get_seq_length() == len(prompt) + len(result.token_ids) - 1


def test_tokens_fed_to_the_target_grow_with_the_text() -> None:
    """Case 22, the target's side: the prompt once, then at most the tree and its root a step."""
    target, prompt = tiny_target(4), prompt_of(40, 4)
    text = prompt + plain_loop(target.model, prompt, 30)
    fed: list[int] = []
    handle = target.model.register_forward_pre_hook(
        lambda module, args, kwargs: fed.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    try:
        result = outrider.generate(
            target, prompt, Scripted(target, right_chain(text, 4)), max_new_tokens=30, adaptive=False
        )
    finally:
        handle.remove()
    assert fed[0] == 40
    assert len(fed) == 1 + result.stats.num_steps
    assert max(fed[1:]) <= 5


def _rope(kind: str, **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **more}}


@pytest.mark.parametrize("name", NAMES)
def test_no_draft_reaches_past_a_change_of_rotary_frequencies(name: str) -> None:
    """The text may end where they would change."""
    model = tiny_model(6, max_position_embeddings=24, **_rope("dynamic", factor=4.0))
    target, prompt = outrider.load(model), prompt_of(16, 6)
    expected = transformers_generate(model, prompt, max_new_tokens=8)
    result = outrider.generate(target, prompt, every_drafter(target, prompt + expected)[name], max_new_tokens=8)
    assert list(result.token_ids) == expected


def test_beyond_dynamic_frequencies_no_text_is_promised() -> None:
    model = tiny_model(6, max_position_embeddings=24, **_rope("dynamic", factor=4.0))
    with pytest.raises(outrider.InputError, match="depend on the texts that it read before"):
        outrider.generate(outrider.load(model), prompt_of(30, 6), "ngram", max_new_tokens=4)


def test_a_text_that_would_be_read_again_is_refused() -> None:
    factors = {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4, "original_max_position_embeddings": 24}
    model = tiny_model(6, max_position_embeddings=96, **_rope("longrope", factor=4.0, **factors))
    target, prompt = outrider.load(model), prompt_of(16, 6)
    with pytest.raises(outrider.InputError, match="past 24 tokens .* at most 8 new tokens"):
        outrider.generate(target, prompt, "ngram", max_new_tokens=9)
    assert len(outrider.generate(target, prompt, "ngram", max_new_tokens=8).token_ids) == 8
    long_prompt = prompt_of(30, 6)
    expected = transformers_generate(model, long_prompt, max_new_tokens=8)
    assert list(outrider.generate(target, long_prompt, "ngram", max_new_tokens=8).token_ids) == expected


def _windowed(attention: str) -> Any:
    return lively("mistral", sliding_window=8, attn_implementation=attention)


def _check_against_generate(target: outrider.Target, name: str) -> None:
    """A long text under a drafter is that of the untouched model's `generate`."""
    prompt = prompt_of(6)
    expected = transformers_generate(target.model, prompt, max_new_tokens=60)
    drafters = every_drafter(target, prompt + expected)
    if name not in drafters:
        with pytest.raises(outrider.InputError, match=f"drafter '{name}': "):
            outrider.generate(target, prompt, name, adaptive=False)
        return
    result = outrider.generate(target, prompt, drafters[name], max_new_tokens=60, adaptive=False)
    assert list(result.token_ids) == expected
    if name.startswith("right"):
        assert result.stats.num_accepted_draft_tokens > 40


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", NAMES)
def test_a_window_shorter_than_the_text_holds_under_every_drafter(name: str, attention: str) -> None:
    """Case 14: past the window a rollback must bring back what had left it."""
    _check_against_generate(outrider.load(_windowed(attention)), name)


@pytest.mark.parametrize("name", NAMES)
def test_a_convolution_s_state_is_taken_back_under_every_drafter(name: str) -> None:
    """Case 15: no token is skipped, since what was rejected never stays in the state."""
    target = outrider.load(lively("lfm2", layer_types=["conv", "full_attention"]))
    assert target.tier.name == "replay"
    _check_against_generate(target, name)


@pytest.mark.parametrize("name", NAMES)
def test_every_tensor_is_where_the_target_takes_it(name: str) -> None:
    """Case S10: whatever a drafter's device, the target gets its input on its own."""
    target, prompt = tiny_target(2), prompt_of(6)
    text, seen = prompt + plain_loop(target.model, prompt, 20), set[torch.device]()

    def look(module: Any, args: Any, kwargs: Any) -> None:
        seen.update(value.device for value in kwargs.values() if isinstance(value, torch.Tensor))

    handle = target.model.register_forward_pre_hook(look, with_kwargs=True)
    outrider.generate(target, prompt, every_drafter(target, text)[name], max_new_tokens=20)
    handle.remove()
    assert seen == {target.info.device}
