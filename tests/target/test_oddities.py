"""Models that are odd in one way each: what is served must be right, and the rest refused."""

import gc
from typing import Any

import pytest
import torch
import transformers

import outrider
from matrix.architectures import build_with
from outrider import DraftTree
from support import (
    CACHE,
    VOCAB,
    Scripted,
    plain_loop,
    prompt_of,
    right_chain,
    right_tree,
    tiny_model,
    transformers_generate,
)


def _text(target: outrider.Target, prompt: list[int], drafter: Any, count: int = 40) -> list[int]:
    return list(outrider.generate(target, prompt, drafter, max_new_tokens=count, do_sample=False).token_ids)


def _refusal(model: Any) -> str:
    with pytest.raises(outrider.ModelError) as caught:
        outrider.load(model)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_window_that_the_model_s_code_does_not_know_is_refused(dtype: torch.dtype) -> None:
    """`generate`'s cache drops what the model's own mask would still see, so its text is that of no mask."""
    for window in (8, 40):
        assert "plain steps differ from generate's" in _refusal(tiny_model(sliding_window=window, dtype=dtype))


def test_such_a_window_beyond_the_probe_stops_the_text_where_it_would_part() -> None:
    model = tiny_model(sliding_window=700, max_position_embeddings=4096)
    target, prompt = outrider.load(model), prompt_of(690)
    with pytest.raises(outrider.ModelError, match="can't be served in contexts of more than 700 tokens"):
        _text(target, prompt, "ngram")


def _wide(text: list[int]) -> Any:
    """Forty wrong siblings before the coming tokens, so that these lie in columns far beyond their positions."""

    def script(ids: Any) -> DraftTree:
        coming = text[len(ids) : len(ids) + 4]
        if not coming:
            return DraftTree()
        wrong = [(coming[0] + more) % VOCAB for more in range(1, 40)]
        return DraftTree((*wrong, *coming), (*[-1] * 40, *range(39, 38 + len(coming))))

    return script


def test_a_model_that_goes_by_the_column_is_not_served_by_a_tree_mask() -> None:
    """GPT-Neo cuts its window out of a buffer by the number of columns."""
    model = build_with("gpt_neo", window_size=256)
    target, prompt = outrider.load(model), [2 + token % 60 for token in prompt_of(240, 3)]
    assert target.tier.name != "tree"
    expected = transformers_generate(model, prompt, max_new_tokens=15)
    assert _text(target, prompt, Scripted(target, _wide(prompt + expected)), 15) == expected


@pytest.mark.parametrize(
    "settings", [{"floor_scale": 24, "attention_chunk_size": 24}, {"floor_scale": 16, "attn_scale": 0.5}]
)
def test_attention_that_is_scaled_by_the_column_is_served_row_by_row(settings: dict[str, Any]) -> None:
    model = build_with("llama4_text", **settings)
    target = outrider.load(model)
    prompts = [[2 + token % 60 for token in prompt_of(length, length)] for length in (40, 60, 20)]
    results = outrider.generate_batch(target, prompts, "none", max_new_tokens=60, do_sample=False)
    for prompt, result in zip(prompts, results, strict=True):
        assert list(result.token_ids) == transformers_generate(model, prompt, max_new_tokens=60)


@pytest.mark.parametrize("kind", ["mamba", "falcon_mamba", "moshi"])
def test_what_float32_refuses_half_precision_refuses_too(kind: str) -> None:
    """A state that is lost between forwards is no rounding."""
    model: Any = build_with(kind)
    for dtype in (torch.float32, torch.bfloat16):
        _refusal(model.to(dtype))


class Coupled(transformers.LlamaForCausalLM):
    """Rows of a batch change each other."""

    def forward(self, input_ids: Any = None, cache: Any = None, position_ids: Any = None, **rest: Any) -> Any:
        forward: Any = super().forward
        output = forward(input_ids=input_ids, cache=cache, position_ids=position_ids, **rest)
        if len(output.logits) > 1:
            output.logits = output.logits + 0.5 * output.logits.flip(0).roll(1, -1)
        return output


class Narrow(transformers.LlamaForCausalLM):
    """A forward of many tokens has less for each, as experts of a fixed capacity have."""

    def forward(self, input_ids: Any = None, cache: Any = None, position_ids: Any = None, **rest: Any) -> Any:
        forward: Any = super().forward
        output = forward(input_ids=input_ids, cache=cache, position_ids=position_ids, **rest)
        if input_ids.shape[1] > 20:
            output.logits = output.logits.roll(1, -1)
        return output


class Random(transformers.LlamaForCausalLM):
    """Never the same twice."""

    def forward(self, input_ids: Any = None, cache: Any = None, position_ids: Any = None, **rest: Any) -> Any:
        forward: Any = super().forward
        output = forward(input_ids=input_ids, cache=cache, position_ids=position_ids, **rest)
        output.logits = output.logits + torch.randn_like(output.logits) * 1e-3
        return output


class Bare(transformers.LlamaForCausalLM):
    """Returns a tuple whatever it is asked for."""

    def forward(self, input_ids: Any = None, cache: Any = None, position_ids: Any = None, **rest: Any) -> Any:
        forward: Any = super().forward
        output = forward(input_ids=input_ids, cache=cache, position_ids=position_ids, **rest)
        return (output.logits,)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Coupled, "other rows and nodes"),
        (Random, "two equal forwards differ"),
        (Bare, "returns a tuple without logits"),
    ],
)
def test_a_forward_that_is_no_function_of_each_text_is_refused(kind: type[Any], reason: str) -> None:
    if CACHE != "cache":
        pytest.skip("these classes spell the cache as newer versions do")
    model: Any = kind(tiny_model().config)
    model = model.double().eval()
    model.load_state_dict(tiny_model().state_dict())
    assert reason in _refusal(model)


def test_a_forward_that_holds_only_so_many_tokens_is_served_path_by_path() -> None:
    if CACHE != "cache":
        pytest.skip("the class spells the cache as newer versions do")
    model: Any = Narrow(tiny_model().config)
    model = model.double().eval()
    model.load_state_dict(tiny_model().state_dict())
    target = outrider.load(model)
    assert target.probed is not None
    assert target.tier.name == "paths"
    assert "other rows and nodes" in target.probed.refused["tree"]


def test_dropout_left_on_in_a_layer_is_told() -> None:
    model = tiny_model()
    model.model.layers[1].mlp.act_fn = torch.nn.Sequential(torch.nn.SiLU(), torch.nn.Dropout(0.5).train())
    assert "dropout is on in a layer" in _refusal(model)


@pytest.mark.skipif("dory" not in transformers.CONFIG_MAPPING, reason="this transformers does not know the type")
def test_layers_beyond_those_that_the_config_names_slide_nowhere() -> None:
    model = build_with("dory", sliding_window=24)
    target, prompt = outrider.load(model), [2 + token % 60 for token in prompt_of(12)]
    expected = transformers_generate(model, prompt, max_new_tokens=60)
    assert _text(target, prompt, Scripted(target, right_tree(prompt + expected)), 60) == expected


@pytest.mark.parametrize(("kind", "name"), [("whisper", "max_target_positions"), ("mpt", "max_seq_len")])
def test_the_last_position_is_found_under_any_name(kind: str, name: str) -> None:
    """Case 20: no draft reaches past it, where a step would fail that plain decoding makes."""
    settings: dict[str, Any] = {name: 64}
    model = build_with(kind, **settings)
    target, prompt = outrider.load(model), [2 + token % 60 for token in prompt_of(24)]
    assert target.info.max_positions == 64
    expected = transformers_generate(model, prompt, max_new_tokens=40)
    assert _text(target, prompt, Scripted(target, right_chain(prompt + expected))) == expected


def test_a_text_begun_in_inference_mode_can_go_on_outside() -> None:
    target, prompt = outrider.load(tiny_model(3)), prompt_of(7)
    expected = plain_loop(target.model, prompt, 20)
    with torch.inference_mode():
        steps = outrider.stream(target, prompt, Scripted(target, right_tree(prompt + expected)), max_new_tokens=20)
        next(steps)
        next(steps)
    assert list(steps.result().token_ids) == expected


def test_dynamic_frequencies_are_refused_where_a_text_would_change_them() -> None:
    """They are the model's own state: another text in between would change this one's."""
    rope: dict[str, Any] = {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}}
    target = outrider.load(tiny_model(max_position_embeddings=24, **rope))
    for length, reason in ((10, "at most 14 new tokens"), (24, "depend on the texts that it read before")):
        with pytest.raises(outrider.InputError, match=reason):
            outrider.generate(target, prompt_of(length), "none", max_new_tokens=20)
    assert len(_text(target, prompt_of(10), "ngram", 14)) == 14


def test_vision_language_models_are_served_with_texts() -> None:
    text: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "head_dim": 8,
    }
    text |= {"num_key_value_heads": 2, "intermediate_size": 64, "initializer_range": 0.3}
    vision = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 16,
    }
    config = transformers.LlavaConfig(
        text_config={"model_type": "llama", **text},
        vision_config={"model_type": "clip_vision_model", "patch_size": 8, **vision},
        image_token_index=VOCAB - 1,
    )
    torch.manual_seed(0)
    model: Any = transformers.LlavaForConditionalGeneration(config).double().eval()
    model.generation_config = transformers.GenerationConfig(pad_token_id=0)
    target, prompt = outrider.load(model), [token % 60 for token in prompt_of(9)]
    expected = transformers_generate(model, prompt, max_new_tokens=20)
    assert _text(target, prompt, Scripted(target, right_tree(prompt + expected)), 20) == expected
    ids = torch.tensor([prompt])
    options: dict[str, Any] = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 20, "do_sample": False}
    door = model.generate(ids, **options, custom_generate=outrider.decoder("ngram"))
    assert door[0, 9:].tolist() == expected
    pixels = torch.zeros(1, 3, 16, 16, dtype=torch.float64)
    with pytest.raises(outrider.InputError, match="images, sounds"):
        model.generate(ids, **options, pixel_values=pixels, custom_generate=outrider.decoder("ngram"))


def test_a_learned_prompt_is_refused_at_the_door_too() -> None:
    import peft

    base, ids = tiny_model(dtype=torch.float32), torch.tensor([prompt_of(12)])
    wrapped: Any = peft.get_peft_model(
        base, peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    ).eval()
    options: dict[str, Any] = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 5, "do_sample": False}
    base.generate(ids, **options, custom_generate=outrider.decoder("none"))
    with pytest.raises(outrider.InputError, match="learned prompt is not served"):
        wrapped.generate(input_ids=ids, **options, custom_generate=outrider.decoder("none"))


def test_a_cache_goes_with_its_text_and_not_with_the_next_collection() -> None:
    target = outrider.load(tiny_model())

    def tensors() -> int:
        return sum(isinstance(one, torch.Tensor) for one in gc.get_objects())

    outrider.generate(target, prompt_of(10), max_new_tokens=12)
    gc.collect()
    gc.disable()
    try:
        before = tensors()
        for _ in range(5):
            outrider.generate(target, prompt_of(10), max_new_tokens=12)
        assert tensors() - before < 5
    finally:
        gc.enable()
