"""Models of other kinds than a bare decoder in full precision: adapters, quantised layers, encoder-decoders, spread layers."""

from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers

import outrider
from outrider import Target
from outrider.target.probe import probe
from support import CACHE, VOCAB, Scripted, char_tokenizer, plain_loop, prompt_of, right_tree, tiny_model


def _adapted(model: Any) -> Any:
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    torch.manual_seed(0)
    return peft.get_peft_model(model, config).double().eval()


def test_an_adapter_s_text_is_served() -> None:
    plain, prompt = tiny_model(0), prompt_of(9)
    bare = plain_loop(plain, prompt, 20)
    adapted = _adapted(plain)
    text = prompt + plain_loop(adapted, prompt, 20)
    assert text[9:] != bare
    target = outrider.load(adapted)
    result = outrider.generate(target, prompt, Scripted(target, right_tree(text)), max_new_tokens=20, adaptive=False)
    assert list(result.token_ids) == text[9:]
    assert result.stats.num_accepted_draft_tokens > 5
    with adapted.disable_adapter():
        assert list(outrider.generate(target, prompt, "ngram", max_new_tokens=20, adaptive=False).token_ids) == bare


def test_an_adapter_s_generate_goes_through_the_door() -> None:
    adapted, ids = _adapted(tiny_model(0, 0.1)), torch.tensor([prompt_of(9)])
    options: dict[str, Any] = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 30, "do_sample": False}
    expected = adapted.generate(input_ids=ids, **options)
    assert torch.equal(adapted.generate(input_ids=ids, **options, custom_generate=outrider.decoder("ngram")), expected)


def test_a_learned_prompt_is_refused() -> None:
    config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    with pytest.raises(outrider.InputError, match="learned prompt is not served"):
        outrider.load(peft.get_peft_model(tiny_model(0), config))


class RowScaled(torch.nn.Linear):
    """Quantises what it is given, with a scale of its own for every token or one for all of them."""

    per_token = True

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        largest = hidden.abs().amax(-1, keepdim=True) if self.per_token else hidden.abs().max()
        scale = largest / 127
        return super().forward((hidden / scale).round() * scale)


class TensorScaled(RowScaled):
    per_token = False


def _quantised(kind: type[RowScaled], dtype: torch.dtype) -> Any:
    model = tiny_model(0, dtype=dtype)
    for layer in model.model.layers:
        layer.mlp.down_proj.__class__ = kind
    return model


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_activations_quantised_token_by_token_are_served(dtype: torch.dtype) -> None:
    assert probe(Target(_quantised(RowScaled, dtype))).tier == "tree"


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_activations_quantised_by_one_scale_for_all_tokens_are_refused(dtype: torch.dtype) -> None:
    """A draft's tokens would change what the others give."""
    with pytest.raises(outrider.ModelError, match="can't be verified exactly"):
        outrider.load(_quantised(TensorScaled, dtype))


def test_weights_quantised_to_eight_bits_are_served() -> None:
    model = tiny_model(0, dtype=torch.float32)
    for layer in model.model.layers:
        for linear in (layer.mlp.up_proj, layer.mlp.down_proj):
            scale = linear.weight.data.abs().amax(1, keepdim=True) / 127
            linear.weight.data = (linear.weight.data / scale).round() * scale
    target, prompt = outrider.load(model), prompt_of(9)
    text = prompt + plain_loop(model, prompt, 20)
    result = outrider.generate(target, prompt, Scripted(target, right_tree(text)), max_new_tokens=20)
    assert list(result.token_ids) == text[9:]


def _t5() -> Any:
    shape: dict[str, Any] = {"vocab_size": VOCAB, "d_model": 32, "num_layers": 2, "num_heads": 4, "d_kv": 8, "d_ff": 64}
    torch.manual_seed(0)
    model: Any = transformers.T5ForConditionalGeneration(transformers.T5Config(**shape)).eval()
    model.generation_config = transformers.GenerationConfig(decoder_start_token_id=0, pad_token_id=0)
    return model


def test_an_encoder_decoder_is_loaded_from_its_folder(tmp_path: Path) -> None:
    model, prompt = _t5(), prompt_of(11)
    model.save_pretrained(tmp_path)
    target = outrider.load(tmp_path, dtype="float64")
    ids = torch.tensor([prompt])
    expected = target.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=20, do_sample=False)  # type: ignore[operator]
    text: list[int] = expected[0].tolist()
    drafter = Scripted(target, right_tree(text))
    result = outrider.generate(target, prompt, drafter, max_new_tokens=20, adaptive=False)
    assert list(result.token_ids) == text[1:]
    assert result.stats.num_accepted_draft_tokens > 5
    sampled = [
        outrider.generate(target, prompt, name, max_new_tokens=20, seed=3, do_sample=True, adaptive=False)
        for name in ("none", "ngram")
    ]
    assert sampled[0].token_ids == sampled[1].token_ids
    assert outrider.inspect(target).tier == "paths"


def test_a_drafter_learns_what_the_encoder_reads() -> None:
    target, prompt = outrider.load(_t5().double()), prompt_of(11)
    seen: list[tuple[int, ...]] = []

    class Reading(Scripted):
        def begin(self, rows: Any) -> None:
            seen.extend(row.source for row in rows)

    outrider.generate(target, prompt, Reading(target, lambda ids: outrider.DraftTree()), max_new_tokens=3)
    assert seen == [tuple(prompt)]


def test_layers_may_be_spread_by_a_device_map(tmp_path: Path) -> None:
    tiny_model(0).save_pretrained(tmp_path)
    target = outrider.load(tmp_path, dtype="float64", device_map={"": "cpu"})
    assert list(outrider.generate(target, prompt_of(5), "ngram", max_new_tokens=10).token_ids) == plain_loop(
        target.model, prompt_of(5), 10
    )
    with pytest.raises(outrider.InputError, match="device or device_map, not both"):
        outrider.load(tmp_path, device="cpu", device_map="auto")
    for name, value in {"device_map": "auto", "revision": "main", "device": "cpu"}.items():
        with pytest.raises(outrider.InputError, match=f"a loaded model keeps its {name}"):
            outrider.load(tiny_model(0), **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["Gemma", "Qwen3"])
def test_a_tokenizer_of_special_tokens_alone_is_none(tmp_path: Path, kind: str) -> None:
    """transformers makes one up for some models that come without."""
    shape: dict[str, Any] = {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    shape |= {"num_key_value_heads": 2, "intermediate_size": 64, "head_dim": 8}
    config = getattr(transformers, f"{kind}Config")(**shape)
    getattr(transformers, f"{kind}ForCausalLM")(config).save_pretrained(tmp_path)
    assert outrider.load(tmp_path).tokenizer is None


def test_a_static_cache_keeps_its_addresses() -> None:
    target, prompt = outrider.load(tiny_model(0), tokenizer=char_tokenizer()), prompt_of(9)
    text = prompt + plain_loop(target.model, prompt, 30)
    seen: set[tuple[int, int]] = set()

    def look(module: Any, args: Any, kwargs: Any) -> None:
        layers = kwargs[CACHE].layers
        if layers:
            seen.add((layers[0].buffers[0].data_ptr(), layers[0].buffers[0].shape[-2]))

    handle = target.model.register_forward_pre_hook(look, with_kwargs=True)
    drafter = Scripted(target, right_tree(text))
    result = outrider.generate(
        target, prompt, drafter, max_new_tokens=30, cache_implementation="static", adaptive=False
    )
    handle.remove()
    assert list(result.token_ids) == text[9:]
    assert result.stats.num_accepted_draft_tokens > 10
    assert len(seen) == 1
    plain = outrider.generate(target, prompt, "none", max_new_tokens=30, cache_implementation="static")
    assert plain.token_ids == result.token_ids


def test_a_static_cache_is_refused_where_it_can_t_be_had() -> None:
    with pytest.raises(outrider.ModelError, match="static cache is served in the tier tree only"):
        outrider.generate(outrider.load(_t5().double()), prompt_of(4), "none", cache_implementation="static")


def test_a_long_prompt_is_read_in_chunks() -> None:
    target, prompt = outrider.load(tiny_model(0, max_position_embeddings=8192)), prompt_of(5000)
    fed: list[int] = []
    handle = target.model.register_forward_pre_hook(
        lambda module, args, kwargs: fed.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    result = outrider.generate(target, prompt, "none", max_new_tokens=3)
    handle.remove()
    assert fed[:3] == [2048, 2048, 904]
    assert list(result.token_ids) == plain_loop(target.model, prompt, 3)
