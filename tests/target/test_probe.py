import re
from typing import Any

import pytest
import torch
import transformers

import outrider
from outrider import Target, TreeBatch
from outrider.target import attention
from outrider.target.call import Caller
from outrider.target.probe import probe
from support import VOCAB, tiny_model


def _refusal(model: Any) -> str:
    """Why one forward under a tree mask can't serve a model, which another tier may."""
    return probe(Target(model)).refused["tree"]


SHAPE: dict[str, Any] = {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_good_model_passes(dtype: torch.dtype) -> None:
    result = probe(Target(tiny_model(0, dtype=dtype)))
    assert (result.error is None) == (dtype is torch.bfloat16)
    assert result.error is None or result.error < 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_leak_between_branches_is_found(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    """Every node sees every earlier one: wrong, and in half precision only the swap test can tell."""
    monkeypatch.setattr(
        "outrider.draft.batch.TreeBatch.ancestors",
        lambda self: torch.ones(1, self.width + 1, self.width + 1, dtype=torch.bool).tril(),
    )
    assert re.search(
        "depend on tokens that are not its ancestors|its path's alone", _refusal(tiny_model(0, dtype=dtype))
    )


def test_a_node_that_does_not_see_its_ancestors_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(self: TreeBatch) -> torch.Tensor:
        reach = torch.eye(self.width + 1, dtype=torch.bool)[None]
        reach[:, :, 0] = True
        return reach

    monkeypatch.setattr("outrider.draft.batch.TreeBatch.ancestors", blind)
    assert re.search("don't depend on its ancestors|its path's alone", _refusal(tiny_model(0, dtype=torch.bfloat16)))


@pytest.mark.parametrize("vocab", [5, 8, 55, 64, 104, 605])
def test_no_vocabulary_is_refused_for_its_size(vocab: int) -> None:
    probe(Target(tiny_model(0, vocab_size=vocab)))


def test_a_window_is_crossed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mask without the model's window is right in short contexts and wrong in longer ones."""
    config = transformers.MistralConfig(**SHAPE, num_key_value_heads=2, intermediate_size=64, sliding_window=30)
    torch.manual_seed(0)
    model: Any = transformers.MistralForCausalLM(config).double().eval()
    probe(Target(model))
    causal: Any = transformers.masking_utils.causal_mask_function
    original: Any = attention._table_mask

    def windowless(*args: Any, **kwargs: Any) -> torch.Tensor:
        mask: torch.Tensor = original(*args, **(kwargs | {"mask_function": causal}))
        return mask

    known = transformers.masking_utils.ALL_MASK_ATTENTION_FUNCTIONS._global_mapping
    monkeypatch.setitem(known, attention.MASK_NAME, windowless)
    assert "its path's alone" in _refusal(model)


def test_rounding_by_experts_batches_is_no_leak() -> None:
    """A mixture of experts rounds by which tokens share an expert; in float32 that is told from a leak by its size."""
    config = transformers.MixtralConfig(**SHAPE, num_key_value_heads=2, intermediate_size=64, num_local_experts=4)
    torch.manual_seed(0)
    model: Any = transformers.MixtralForCausalLM(config).float().eval()
    probe(Target(model))


def test_eager_attention_in_float64_rounds_as_float32_does() -> None:
    probe(Target(tiny_model(0, attn_implementation="eager")))


def test_a_stale_row_after_a_commit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outrider.target.cache.RowLayer.move", lambda self, columns, start: None)
    assert "its path's alone" in _refusal(tiny_model(0))


def test_positions_by_node_index_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Caller.__call__

    def shifted(self: Any, cache: Any, ids: Any, positions: Any, masks: Any = None, **rest: Any) -> Any:
        return original(self, cache, ids, positions.amin(1, keepdim=True) + torch.arange(ids.shape[1]), masks, **rest)

    monkeypatch.setattr(Caller, "__call__", shifted)
    assert "its path's alone" in _refusal(tiny_model(0))


def test_rows_that_depend_on_each_other_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As per-tensor dynamic quantisation does: a scale taken over all rows of the forward."""
    model = tiny_model(0, dtype=torch.bfloat16)
    original = model.lm_head.forward
    model.lm_head.forward = lambda hidden: original(hidden * (1 + hidden.abs().max() / 100))
    with pytest.raises(outrider.ModelError, match="tokens that are not its ancestors"):
        probe(Target(model))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: transformers.T5ForConditionalGeneration(transformers.T5Config(**_t5())), "decoder_start_token_id"),
        (lambda: transformers.MambaForCausalLM(transformers.MambaConfig(**_mamba())), "replay: a tree node's logits"),
        (lambda: tiny_model(0).train(), "model.eval"),
    ],
    ids=["no start", "recurrent, one token at a time", "training"],
)
def test_what_cannot_be_verified_is_refused_with_its_reason(build: Any, message: str) -> None:
    model = build()
    if not model.training or message != "model.eval":
        model = model.eval()
    with pytest.raises(outrider.ModelError, match=message):
        outrider.load(model)


@pytest.mark.parametrize(
    ("build", "tier", "reason"),
    [
        (lambda: transformers.BloomForCausalLM(transformers.BloomConfig(**_bloom())), "paths", "no position_ids"),
        (lambda: transformers.MptForCausalLM(transformers.MptConfig(**_mpt())), "paths", "no position_ids"),
        (lambda: transformers.GPTNeoForCausalLM(transformers.GPTNeoConfig(**_gpt_neo())), "paths", "its path's alone"),
        (lambda: transformers.Lfm2ForCausalLM(transformers.Lfm2Config(**_lfm2())), "replay", "layers of kind conv"),
        (lambda: transformers.T5ForConditionalGeneration(_t5_config()), "paths", "its decoder's masks"),
    ],
    ids=["alibi", "no positions", "own causal buffer", "convolution", "encoder-decoder"],
)
def test_what_no_tree_mask_serves_is_served_path_by_path(build: Any, tier: str, reason: str) -> None:
    result = probe(Target(build().double().eval()))
    assert result.tier == tier
    assert reason in result.refused["tree"]


def test_attention_that_takes_no_mask_is_refused() -> None:
    model = tiny_model(0)
    model.config._attn_implementation_internal = "flash_attention_2"
    with pytest.raises(outrider.ModelError, match="flash_attention_2.*attn_implementation='sdpa' or 'eager'"):
        outrider.load(model)


def test_the_probe_draws_nothing_from_the_global_generator() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    probe(Target(tiny_model(0)))
    assert torch.equal(torch.get_rng_state(), before)


def _bloom() -> dict[str, Any]:
    return {"vocab_size": VOCAB, "hidden_size": 32, "n_layer": 2, "n_head": 4}


def _mpt() -> dict[str, Any]:
    return {"vocab_size": VOCAB, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64}


def _gpt_neo() -> dict[str, Any]:
    kinds = [[["global", "local"], 1]]
    return {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "num_layers": 2,
        "num_heads": 4,
        "attention_types": kinds,
        "window_size": 16,
    }


def _t5() -> dict[str, Any]:
    return {"vocab_size": VOCAB, "d_model": 32, "num_layers": 2, "num_heads": 4, "d_kv": 8, "d_ff": 64}


def _t5_config() -> Any:
    config: Any = transformers.T5Config(**_t5())
    config.decoder_start_token_id = 0
    return config


def _lfm2() -> dict[str, Any]:
    shape = {**SHAPE, "num_key_value_heads": 2, "intermediate_size": 64}
    return shape | {"layer_types": ["conv", "full_attention"]}


def _mamba() -> dict[str, Any]:
    return {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}
