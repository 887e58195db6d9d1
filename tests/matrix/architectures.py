"""Tiny random models of every causal model type that the installed transformers knows.

`python -m matrix.architectures [name ...]`, run from the tests folder, builds them, lets each write and prints a line for it.
"""

import contextlib
import copy
import dataclasses
import io
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING, GenerationConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

VOCAB = 64
WINDOW = 8
PROMPT, LENGTH = 12, 40
SWITCH = 24  # where rotary scalings change: a text of these lengths crosses it
MOST_PARAMETERS = 2_000_000


class BuildError(Exception):
    """A model type that cannot be built here, and why."""


def _each(names: str, value: Any) -> dict[str, Any]:
    return dict.fromkeys(names.split(), value)


# Of these a config gets the fields that it has, so every name that any type has for a setting stands here.
TINY: dict[str, Any] = {
    **_each("vocab_size vocab_size_per_layer_input decoder_vocab_size unpadded_vocab_size", VOCAB),
    **_each("pronunciation_vocab_size shape_vocab_size encoder_hash_byte_group_vocab", VOCAB),
    **_each("hidden_size d_model n_embd emb_dim embedding_size input_embedding_size output_embedding_size", 32),
    **_each("hidden_size_global out_hidden_size mm_embed_dim output_proj_dims audio_embed_dim output_channels", 32),
    **_each("ext_pw_out_channel nemo_conv_channels", 32),
    **_each("hidden_size_per_layer_input laurel_rank router_hidden_size hc_lowrank loop_gate_rank", 8),
    **_each("pronunciation_embed_dim shape_embed_dim", 8),
    **_each("intermediate_size ffn_dim encoder_ffn_dim decoder_ffn_dim ffn_hidden_size dff dim_ff d_inner mlp_dim", 64),
    **_each("feed_forward_size intermediate_size_mlp dense_intermediate_size mamba_d_ssm", 64),
    **_each("moe_intermediate_size shared_intermediate_size shared_expert_intermediate_size", 32),
    **_each("shared_experts_intermediate_size expert_ffn_hidden_size moe_shared_expert_intermediate_size", 32),
    **_each("num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers depth num_blocks", 2),
    **_each("num_encoder_layers num_decoder_layers", 2),
    **_each("num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads", 4),
    **_each("num_encoder_attention_heads num_decoder_attention_heads attention_heads swa_num_attention_heads", 4),
    **_each("linear_num_heads linear_num_value_heads mamba_n_heads mamba_num_heads", 4),
    **_each("num_key_value_heads num_kv_heads swa_num_key_value_heads linear_num_key_heads n_groups kv_n_heads", 2),
    **_each("head_dim attention_head_size kv_channels dim_head d_head v_head_dim qk_nope_head_dim", 8),
    **_each("qk_rope_head_dim index_head_dim linear_head_dim linear_key_head_dim linear_value_head_dim", 8),
    **_each("swa_head_dim query_pre_attn_scalar mamba_d_state ssm_state_size state_size", 8),
    **_each("mamba_head_dim kv_lora_rank q_lora_rank o_lora_rank", 16),
    # With few heads many places score exactly nothing, and which of equals are the best is anybody's choice.
    **_each("index_n_heads", 16),
    **_each("rotary_dim d_rel", 4),
    **_each("num_experts num_local_experts n_routed_experts moe_num_experts", 4),
    **_each("num_experts_per_tok moe_topk moe_k moe_top_k zero_expert_num", 2),
    **_each("n_group topk_group first_k_dense_replace num_dense_layers n_shared_experts num_shared_experts", 1),
    **_each("max_position_embeddings n_positions n_ctx max_seq_len context_length max_target_positions", 512),
    **_each("model_max_length", 512),
    **_each("initializer_range init_std embed_init_std", 0.3),
    **_each("bos_token_id eos_token_id pad_token_id forced_eos_token_id encoder_no_repeat_ngram_size", None),
    **_each("is_decoder causal", True),
    # A tied head likes best the token that it has just read: such texts are one token again and again.
    "tie_word_embeddings": False,
}
# How far a layer looks back, for the types that do not look back all the way.
WINDOWS: dict[str, Any] = _each(
    "sliding_window window_size attention_window_size sliding_window_size local_attention attention_chunk_size "
    "block_size chunk_size mamba_chunk_size local_attn_chunk_length lsh_attn_chunk_length rel_extent "
    "local_attention_window_len index_block_size log_scaling_n_floor floor_scale",
    WINDOW,
) | {"index_topk": SWITCH}  # room for drafts before the text passes it
PATTERNS = ("layer_types", "layers_block_type", "mlp_layer_types", "indexer_types")
SLIDING = ["sliding_attention", "full_attention"]
HYBRID = ["linear_attention", "hybrid"]

# What a config class of this model type needs besides.
EXTRAS: dict[str, dict[str, Any]] = {
    # Positions are counted from the pad token on.
    **_each("camembert data2vec-text roberta roberta-prelayernorm xlm-roberta xlm-roberta-xl", {"pad_token_id": 1}),
    **_each("gemma4_text gemma4_unified_text prophetnet", {"pad_token_id": 0}),
    "bamba": {"attn_layer_indices": [1]},
    # Its sparse attention knows no cache.
    "big_bird": {"attention_type": "original_full"},
    "blt": {"num_hidden_layers": 2},
    "cohere_compass_text": {
        "layer_types": SLIDING,
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": 1e4} for kind in SLIDING},
    },
    "dbrx": {
        "attn_config": {"clip_qkv": 8, "kv_n_heads": 2, "rope_theta": 1e4},
        "ffn_config": {"ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "deepseek_v4": {
        "num_hidden_layers": 3,
        "layer_types": ["sliding_attention", "heavily_compressed_attention", "compressed_sparse_attention"],
        "mlp_layer_types": ["hash_moe", "moe", "moe"],
        "compress_rates": {"heavily_compressed_attention": 8, "compressed_sparse_attention": 4},
    },
    "dory": {"n_input_layers": 1, "n_output_layers": 1, "num_hidden_layers": 4, "layer_types": SLIDING * 2},
    "dots3_note_text": {
        "sliding_window": WINDOW,
        **_each("swa_num_attention_heads swa_num_key_value_heads", 4),
        **_each("swa_q_lora_rank swa_kv_lora_rank swa_head_dim", 16),
        **_each("swa_qk_nope_head_dim swa_v_head_dim", 8),
    },
    "flint": {"mlp_only_layers": [0]},
    "gemma3n_text": {"num_hidden_layers": 4, "num_kv_shared_layers": 2, "layer_types": SLIDING * 2},
    "gemma4_unified_vision": {"patch_size": 4},
    "got_ocr2_vision": {"image_size": 64},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"]},
    "inkling2_loop_text": {
        **_each("loop_layer_index_start n_layers_per_attn_res_block", 1),
        **_each("loop_layer_index_end loop_num_passes", 2),
    },
    "inkling2_text": {"n_layers_per_attn_res_block": 1},
    "inkling_text": {"mlp_layer_types": ["dense", "sparse"], "log_scaling_n_floor": WINDOW},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "laguna": {"layer_types": SLIDING},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "llama4_text": {"no_rope_layers": [1, 0], "interleave_moe_layer_step": 2},
    "mamba2": {"head_dim": 16},
    "mellum": {"layer_types": SLIDING},
    "minimax_m3_vl_text": {
        "layer_types": ["full_attention", "minimax_m3_sparse"],
        "mlp_layer_types": ["dense", "sparse"],
        **_each("index_n_heads index_topk_blocks", 2),
    },
    # Texts read at once have no shorter time steps than this; those read token by token have.
    "nemotron_h": {"time_step_min": 1e-12},
    "qwen4_exp_text": {
        "eos_token_id": VOCAB,
        "ple_layer_ids": [1],
        "ple_embed_dim": 32,
        "heads_per_ngram": 2,
        "ngram_vocab_size_base": 64,
        "make_ngram_vocab_size_divisible_by": 8,
        "split_ngram_parts": 4,
        "indexer_n_heads": 4,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 8,
        "indexer_budget": WINDOW,
        "indexer_compress_ratio": 2,
    },
    "recurrent_gemma": {"num_hidden_layers": 3},
    "reformer": {
        "attn_layers": ["local", "lsh"],
        "axial_pos_shape": [16, 32],
        "axial_pos_embds_dim": [16, 16],
        "pad_token_id": 0,
        "hash_seed": 0,
    },
    "smollm3": {"no_rope_layers": [1, 0]},
    "xlm": {"pad_token_id": 0, "mask_token_id": 5},
    "xlstm": {"hidden_size": 64, "qk_dim_factor": 1.0},
    "xmod": {"pad_token_id": 1, "default_language": "en_XX"},
    "zamba": {"num_hidden_layers": 4, "layers_block_type": HYBRID * 2},
    "zamba2": {"num_hidden_layers": 4, "layers_block_type": HYBRID * 2, "time_step_min": 1e-12},
    "zaya": {"num_experts_per_tok": 1, "sliding_window": WINDOW, "layer_types": ["hybrid", "hybrid_sliding"]},
}
# The types whose own code makes float32 tensors that float64 ones cannot meet.
SINGLE = {"xglm", "xlnet"}
REFUSED = {
    "gemma3n": "its vision tower needs the timm package",
    **_each("gemma4_assistant gemma4_unified_assistant", "a drafter: it reads its target's keys and values"),
    **_each("musicgen musicgen_melody", "its generate writes delayed codebooks of sound"),
}
# Under the usual seed, nought, these write few different tokens.
SEEDS: dict[str, int] = {
    **_each("phi", 1),
    **_each("dory megatron-bert modernbert-decoder", 2),
    **_each("gptj olmo2 xmod", 3),
    **_each("rembert xglm", 4),
    **_each("bert-generation big_bird plbart", 5),
    **_each("persimmon rwkv xlnet", 6),
    **_each("roformer", 7),
    **_each("camembert xlm-roberta zaya", 8),
    **_each("codegen", 9),
}


def model_types() -> list[str]:
    """Every causal model type of the installed transformers."""
    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def build(model_type: str, dtype: torch.dtype = torch.float64) -> PreTrainedModel:
    """A tiny random model of the type, the same at every call; in float32 where its code can do no other.

    Raises:
        BuildError: It cannot be built.
    """
    return build_with(model_type, dtype)


def variants() -> dict[str, Callable[[], PreTrainedModel]]:
    """Further models, by name: rotary scalings that grow with the text, windows, other ways to attend."""
    llama, phi3 = partial(build_with, "llama"), partial(build_with, "phi3")
    stretched = {"factor": 4.0, "original_max_position_embeddings": SWITCH}
    long = {"original_max_position_embeddings": SWITCH, "short_factor": [1.0] * 4, "long_factor": [1.0, 2.0, 3.0, 4.0]}
    made: dict[str, Callable[[], PreTrainedModel]] = {
        "falcon-alibi": partial(build_with, "falcon", alibi=True),
        "falcon-new": partial(build_with, "falcon", new_decoder_architecture=True),
        "llama-dynamic": partial(llama, max_position_embeddings=SWITCH, rope_parameters=_rope("dynamic", factor=4.0)),
        "llama-eager": partial(llama, attn_implementation="eager"),
        "llama-linear": partial(llama, rope_parameters=_rope("linear", factor=4.0)),
        "llama-llama3": partial(
            llama, rope_parameters=_rope("llama3", **stretched, low_freq_factor=1.0, high_freq_factor=4.0)
        ),
        "llama-yarn": partial(llama, rope_parameters=_rope("yarn", **stretched)),
        "mixtral-sliding": partial(build_with, "mixtral", sliding_window=WINDOW),
        "phi3-longrope": partial(
            phi3, original_max_position_embeddings=SWITCH, rope_parameters=_rope("longrope", **long)
        ),
        "phi3-sliding": partial(phi3, sliding_window=WINDOW),
        "qwen2-sliding": partial(
            build_with,
            "qwen2",
            use_sliding_window=True,
            sliding_window=WINDOW,
            max_window_layers=1,
            layer_types=SLIDING,
        ),
    }
    # The tiny settings already make these what they are wanted for.
    return made | {
        name: partial(build_with, name) for name in ("bloom", "gemma3_text", "gpt_neo", "llama4_text", "mistral", "mpt")
    }


def _rope(kind: str, **more: Any) -> dict[str, Any]:
    return {"rope_type": kind, "rope_theta": 1e4, **more}


def build_with(model_type: str, dtype: torch.dtype = torch.float64, **settings: Any) -> PreTrainedModel:
    """As `build`, with some of the config's own settings."""
    if model_type in REFUSED:
        raise BuildError(REFUSED[model_type])
    try:
        return _make(model_type, torch.float32 if model_type in SINGLE else dtype, settings)
    except Exception as error:
        raise BuildError(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}") from error


def _make(model_type: str, dtype: torch.dtype, settings: dict[str, Any]) -> PreTrainedModel:
    model_class, config_class = _model_class(model_type), _config_class(model_type)
    config = config_class(**(_settings(config_class) | settings))
    # The other ways to call experts know no float64.
    how = {"dtype": dtype, "experts_implementation": "eager"}
    with torch.device("meta"):
        count = model_class._from_config(copy.deepcopy(config), **how).num_parameters()
    if count > MOST_PARAMETERS:
        raise ValueError(f"{count:,} parameters are too many")
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(SEEDS.get(model_type, 0))
        model: PreTrainedModel = model_class._from_config(config, **how).eval()
        _stir(model)
        _level(model)
    # Nothing ends a text, and nothing but the model has a say in it.
    model.generation_config = GenerationConfig()
    return model


def _model_class(model_type: str) -> Any:
    return getattr(transformers, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[model_type])


def _config_class(model_type: str) -> Any:
    """The type's config class, or the one inside it that its causal class takes."""
    outer: Any = CONFIG_MAPPING[model_type]
    inner = _model_class(model_type).config_class
    return inner if inner in outer.sub_configs.values() else outer


def _settings(config_class: Any) -> dict[str, Any]:
    """What makes a config of this class tiny."""
    fields = {field.name: field for field in dataclasses.fields(config_class)}
    tiny = {name: value for name, value in TINY.items() if name in fields}
    tiny |= {name: value for name, value in WINDOWS.items() if name in fields and fields[name].default is not None}
    for name, value in tiny.items():
        if value is None and "None" not in str(fields[name].type):
            tiny[name] = 0
    if "kv_lora_rank" in fields:
        tiny["num_key_value_heads"] = 4
    return tiny | _layers(config_class, fields) | _parts(config_class) | EXTRAS.get(config_class.model_type, {})


def _layers(config_class: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """As many layers as show each kind of layer in the type's own pattern."""
    whole = config_class() if any(name in fields for name in PATTERNS) else None
    kinds = {name: list(dict.fromkeys(getattr(whole, name, None) or ())) for name in PATTERNS if name in fields}
    count = max([2, *map(len, kinds.values())])
    filled: dict[str, Any] = {name: [of[i % len(of)] for i in range(count)] for name, of in kinds.items() if of}
    return filled | {name: count for name in ("num_hidden_layers", "num_layers", "n_layer") if name in fields}


def _parts(config_class: Any) -> dict[str, Any]:
    """The tiny settings of the configs inside a composite one."""
    parts: dict[str, Any] = {}
    for name, spec in config_class.sub_configs_defaults.items():
        known = hasattr(spec.config_class, "model_type")
        part = _settings(spec.config_class if known else CONFIG_MAPPING[spec.model_type])
        parts[name] = {**part, "model_type": spec.model_type}
    return parts


def _stir(model: PreTrainedModel) -> None:
    """Give each parameter that is born constant, such as a bias or a gate, values that make a difference."""
    for parameter in model.parameters():
        if bool((parameter == parameter.flatten()[:1]).all()):
            parameter.add_(torch.randn_like(parameter), alpha=0.3)


def _level(model: PreTrainedModel) -> None:
    """Take from the head what it says in every place, whatever the text: in random models that drowns the rest."""
    probe: Any = copy.deepcopy(model)  # a call may leave something behind, such as rescaled frequencies
    seen: list[torch.Tensor] = []
    with probe.get_output_embeddings().register_forward_pre_hook(lambda _, given: seen.append(given[0])):
        probe(torch.randint(1, VOCAB, (1, PROMPT + LENGTH)))
    usual = torch.nn.functional.normalize(seen[-1].flatten(0, -2).mean(0), dim=0)
    head: Any = model.get_output_embeddings()
    head.weight.sub_(torch.outer(head.weight @ usual, usual))


def greedy(model: PreTrainedModel) -> list[int]:
    """What the model writes by itself after a prompt of random tokens."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        prompt = torch.randint(2, VOCAB, (1, PROMPT))
    mask = torch.ones_like(prompt)
    writer: Any = model
    out = writer.generate(prompt, attention_mask=mask, max_new_tokens=LENGTH, do_sample=False)
    return [int(token) for token in out[0, PROMPT:]]


def _line(name: str, make: Callable[[], PreTrainedModel]) -> str:
    # Some types print at every call.
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            model = make()
            text = greedy(model)
    except Exception as error:
        return f"{name:26} {str(error) or type(error).__name__}"
    state = "ok" if len(text) == LENGTH else f"{len(text)} tokens"
    kinds = len(set(text))
    numbers = f"{model.num_parameters():9,} {str(model.dtype).removeprefix('torch.')}"
    return f"{name:26} {type(model).__name__:36} {numbers} {state}, {kinds} different tokens"


def main(names: list[str]) -> None:
    """Print a line for each of the models of these names, or for every model."""
    transformers.utils.logging.set_verbosity_error()
    known = {name: partial(build, name) for name in model_types()} | variants()
    lines = [_line(name, known[name]) for name in names or known]
    print(*lines, sep="\n")
    print(f"{sum(' ok, ' in line for line in lines)} of {len(lines)} models write")


if __name__ == "__main__":
    main(sys.argv[1:])
