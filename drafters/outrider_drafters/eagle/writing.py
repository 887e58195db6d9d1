"""Writing EAGLE heads in the layouts that engines load."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from outrider_drafters.eagle.config import EagleConfig, Layout
from outrider_drafters.eagle.words import check_words
from outrider_drafters.files import write_files

_FLAGS: Final = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")


@dataclass(frozen=True, slots=True)
class Named:
    """What a head's files say of its target.

    Args:
        name: a folder or a Hub id; None where it is not known.
        architectures: classes of its model.
    """

    name: str | None
    architectures: tuple[str, ...] = ()


def write_eagle(
    folder: Path,
    config: EagleConfig,
    tensors: Mapping[str, torch.Tensor],
    ids: torch.Tensor | None,
    layout: Layout,
    target: Named,
) -> None:
    """Write a head to an existing folder, each file whole or not at all.

    Args:
        folder: where.
        config: what the head is.
        tensors: by their names in the network.
        ids: `[draft vocab]` int64, the target's ids of the head's tokens in order; None where they are the same.
        layout: how; its layers are counted as in `config.layer_ids`.
        target: whom it serves.

    Raises:
        InputError: the layout can't hold such a head.
        OSError: a file can't be written.
    """
    check_words(config, layout)
    renamed = {_named(name, config, layout): one for name, one in tensors.items()}
    written = _config_of(config, layout, target, str(tensors["fc.weight"].dtype).removeprefix("torch."))
    write_files(folder, written, "model.safetensors", renamed | _vocabulary(config, ids, layout))


def _vocabulary(config: EagleConfig, ids: torch.Tensor | None, layout: Layout) -> dict[str, torch.Tensor]:
    """Return `d2t` (offsets) and `t2d` (marks): SpecForge has them for whole vocabularies too."""
    if config.method == "eagle" or (ids is None and layout != "specforge"):
        return {}
    ids = torch.arange(config.vocab_size) if ids is None else ids.cpu()
    marks = torch.zeros(config.vocab_size, dtype=torch.bool)
    marks[ids] = True
    return {"d2t": ids - torch.arange(len(ids)), "t2d": marks}


def _named(name: str, config: EagleConfig, layout: Layout) -> str:
    """Return what a layout calls a tensor of the network."""
    first = "layers.0."
    if config.method == "eagle3" and layout != "speculators" and name.startswith(first):
        return "midlayer." + name.removeprefix(first)
    if config.method == "eagle" and layout == "speculators":
        for own, theirs in ((first, "transformer."), ("fc.", "fusion_fc.")):
            if name.startswith(own):
                return theirs + name.removeprefix(own)
    return name


def _config_of(config: EagleConfig, layout: Layout, target: Named, dtype: str) -> dict[str, Any]:
    if layout == "speculators":
        return _speculators(config, target, dtype)
    found = _layers(config) | _old_rope(config, layout) | {"torch_dtype": dtype, "tie_word_embeddings": False}
    if target.name:
        found["base_model_name_or_path"] = target.name
    if config.method == "eagle":
        biases = {"bias": config.fc_bias, "qkv_bias": config.attention_bias}
        return found | {"architectures": ["LlamaForCausalLM"]} | biases
    found |= _eagle3(config)
    if layout == "safeailab":
        return found | {"architectures": ["LlamaForCausalLM"]}
    found["architectures"] = ["LlamaForCausalLMEagle3"]
    found |= {"fc_norm": True} if config.fc_norm else {}
    # Here it only says of what logits are made; normed states are never fed back.
    found |= {} if config.norm_logits else {"norm_output": False}
    ids = config.layer_ids.ids
    listed = {} if ids is None else {"eagle_aux_hidden_state_layer_ids": list(ids)}
    return found | {"eagle_config": {"use_aux_hidden_state": True} | listed}


def _eagle3(config: EagleConfig) -> dict[str, Any]:
    found: dict[str, Any] = {"draft_vocab_size": config.draft_vocab_size}
    if config.target_hidden_size != config.hidden_size:
        found["target_hidden_size"] = config.target_hidden_size
    return found


def _speculators(config: EagleConfig, target: Named, dtype: str) -> dict[str, Any]:
    name = config.method
    proposal = {"proposal_type": "greedy", "speculative_tokens": 5, "verifier_accept_k": 1, "accept_tolerance": 0.0}
    found: dict[str, Any] = {
        "speculators_model_type": name,
        # `eagle` was there up to this version.
        "speculators_version": "0.5.0" if name == "eagle3" else "0.4.0",
        "architectures": ["Eagle3Speculator" if name == "eagle3" else "EagleSpeculator"],
        "torch_dtype": dtype,
        "tie_word_embeddings": False,
        "transformer_layer_config": _layers(config) | {"rope_parameters": dict(config.rope)},
        "speculators_config": {
            "algorithm": name,
            "proposal_methods": [proposal],
            "default_proposal_method": "greedy",
            "verifier": {"name_or_path": target.name, "architectures": list(target.architectures)},
        },
    }
    if name == "eagle":
        return found | {"layernorms": False, "fusion_bias": config.fc_bias}
    # All of them, since engines take other defaults for what is left out.
    found |= _eagle3(config) | {one: getattr(config, one) for one in _FLAGS}
    ids = config.layer_ids.ids
    return found if ids is None else found | {"eagle_aux_hidden_state_layer_ids": list(ids)}


def _old_rope(config: EagleConfig, layout: Layout) -> dict[str, Any]:
    """Return the rotary embedding in the keys of transformers before 5."""
    rope = dict(config.rope)
    found: dict[str, Any] = {"rope_theta": rope.pop("rope_theta"), "rope_scaling": None}
    if rope != {"rope_type": "default"}:
        # SafeAILab reads the older of the two names, engines the newer.
        found["rope_scaling"] = rope | ({"type": rope["rope_type"]} if layout == "safeailab" else {})
    return found


def _layers(config: EagleConfig) -> dict[str, Any]:
    """Return the decoder layers' config, every figure written out."""
    found: dict[str, Any] = {
        "model_type": "qwen3" if config.qk_norm else "llama",
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.rms_norm_eps,
        "hidden_act": config.hidden_act,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_positions,
        "attention_bias": config.attention_bias and config.output_bias,
        "mlp_bias": config.mlp_bias,
    }
    if config.sliding_window is not None:
        kinds = ("full_attention", "sliding_attention")
        found |= {"sliding_window": config.sliding_window, "use_sliding_window": True}
        found["layer_types"] = [kinds[index in config.sliding_layers] for index in range(config.num_layers)]
    return found
