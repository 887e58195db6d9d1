"""A target is verified again where a text first passes a length that its config names."""

from typing import Any

import pytest
import torch
import transformers

import outrider
from outrider.target import attention
from outrider.target.thresholds import choices, thresholds
from outrider.target.trust import Trust
from support import VOCAB, Scripted, plain_loop, prompt_of, right_tree, tiny_model

SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "initializer_range": 0.3,
}


def _mistral(window: int) -> Any:
    torch.manual_seed(0)
    config = transformers.MistralConfig(**SHAPE, sliding_window=window, max_position_embeddings=2048)
    return transformers.MistralForCausalLM(config).double().eval()


def test_lengths_are_read_off_the_config() -> None:
    assert thresholds(transformers.MistralConfig(sliding_window=4096)) == (4096,)
    assert thresholds(transformers.LlamaConfig()) == ()
    assert thresholds(transformers.Llama4TextConfig(attention_chunk_size=100, floor_scale=50)) == (50, 100)
    assert 2048 in choices(transformers.DeepseekV32Config(index_topk=2048))
    assert thresholds(transformers.Qwen2MoeConfig(max_window_layers=28, sliding_window=None)) == ()


def _by_length(drafter: Scripted, length: int) -> list[tuple[int, outrider.Outcome]]:
    """Every outcome, with how many ids its step began with."""
    found = []
    for outcome in drafter.outcomes:
        found.append((length, outcome))
        length += len(outcome.tokens)
    return found


def _record(lengths: list[int]) -> Any:
    return lambda target, ids: lengths.append(len(ids))


def test_no_draft_reaches_past_a_length_that_no_text_has_passed() -> None:
    lengths: list[int] = []
    trust = Trust([10, 20], _record(lengths))
    assert [trust.room(None, [0] * size) for size in (4, 9, 10, 12)] == [6, 1, 0, 0]
    assert lengths == []
    assert trust.room(None, [0] * 13) == 7
    assert trust.room(None, [0] * 14) == 6
    assert lengths == [13]
    assert trust.room(None, [0] * 40) is None
    assert trust.room(None, [0] * 2) is None
    assert lengths == [13, 40]


def test_one_check_serves_all_lengths_that_a_long_prompt_passes() -> None:
    lengths: list[int] = []
    trust = Trust([10, 20, 30], _record(lengths))
    assert trust.room(None, [0] * 25) == 5
    assert lengths == [25]


def test_a_window_too_long_for_the_probe_is_checked_when_a_text_passes_it() -> None:
    model = _mistral(600)
    target, prompt = outrider.load(model), prompt_of(590)
    assert list(target.trust.pending) == [600]
    text = prompt + plain_loop(model, prompt, 30)
    drafter = Scripted(target, right_tree(text))
    result = outrider.generate(target, prompt, drafter, max_new_tokens=30)
    assert list(result.token_ids) == text[590:]
    assert not target.trust.pending
    assert target.trust.limit is None
    assert any(len(outcome.path) > 2 for length, outcome in _by_length(drafter, 590) if length > 610)


def test_where_trees_are_not_exact_beyond_a_length_the_text_goes_on_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mask that forgets the window is right until a text passes it."""
    model = _mistral(600)
    causal: Any = transformers.masking_utils.causal_mask_function
    original: Any = attention._table_mask
    known = transformers.masking_utils.ALL_MASK_ATTENTION_FUNCTIONS._global_mapping
    monkeypatch.setitem(
        known, attention.MASK_NAME, lambda *args, **kwargs: original(*args, **(kwargs | {"mask_function": causal}))
    )
    target, prompt = outrider.load(model), prompt_of(590)
    text = prompt + plain_loop(model, prompt, 30)
    drafter = Scripted(target, right_tree(text))
    with pytest.warns(UserWarning, match="more than 600 tokens MistralForCausalLM can't be verified exactly"):
        result = outrider.generate(target, prompt, drafter, max_new_tokens=30, adaptive=False)
    assert list(result.token_ids) == text[590:]
    assert result.stats.num_accepted_draft_tokens > 0
    assert target.trust.limit == 600
    assert outrider.inspect(target).drafts_up_to == 600
    assert all(len(outcome.tree) == 0 for length, outcome in _by_length(drafter, 590) if length >= 600)


def test_what_is_not_exact_beyond_a_short_window_may_be_within_it() -> None:
    """Sparse attention takes the best few tokens, and which of equal ones depends on how many there are."""
    torch.manual_seed(0)
    more: dict[str, Any] = {"index_topk": 24, "index_n_heads": 4, "index_head_dim": 8, "kv_lora_rank": 16}
    more |= {"q_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 4}
    more |= {"num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_group": 1, "topk_group": 1}
    shape = SHAPE | {"num_key_value_heads": 4}
    config = transformers.DeepseekV32Config(**shape, **more, first_k_dense_replace=1)
    config._experts_implementation = "eager"
    model: Any = transformers.DeepseekV32ForCausalLM(config).double().eval()
    model.generation_config.eos_token_id = None
    target, prompt = outrider.load(model), prompt_of(10)
    assert target.trust.limit == 24
    ids = torch.tensor([prompt])
    plain = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=40, do_sample=False)[0].tolist()
    drafter = Scripted(target, right_tree(plain))
    result = outrider.generate(target, prompt, drafter, max_new_tokens=40)
    assert list(result.token_ids) == plain[10:]
    assert any(len(outcome.path) > 1 for outcome in drafter.outcomes)
    assert all(len(outcome.tree) == 0 for length, outcome in _by_length(drafter, 10) if length >= 24)


def test_a_model_without_such_lengths_is_never_checked_again() -> None:
    target = outrider.load(tiny_model(0))
    assert target.trust.pending == ()
    assert target.room([1] * 100) == 412
    assert target.room([1] * 600) == 0
