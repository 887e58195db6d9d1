"""Writing EAGLE heads in the layouts that engines load."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch

from outrider import InputError
from outrider_drafters.eagle_config import EagleConfig, Layout
from outrider_drafters.files import write_files

LAYOUTS: Final[Mapping[str, Layout]] = {
    "eagle": "safeailab",
    "specforge": "specforge",
    "speculators": "speculators",
}
"""Layouts that can be written, by the names that users give."""

_ADDED: Final = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")


def write_eagle(
    folder: Path, config: EagleConfig, tensors: Mapping[str, torch.Tensor], layout: Layout, target: Mapping[str, Any]
) -> None:
    """Write a head to an existing folder, each file whole or not at all.

    Args:
        folder: where.
        config: what the head is.
        tensors: by their names in the network, `d2t` and `t2d` as files hold them.
        layout: how.
        target: what the files say of the target: its `name` and `architecture`.

    Raises:
        InputError: the layout can't hold such a head.
        OSError: a file can't be written.
    """
    _check(config, layout)
    renamed = {_named(name, config, layout): one for name, one in tensors.items()}
    write_files(folder, _config_of(config, layout, target, tensors), "model.safetensors", renamed)


def _check(config: EagleConfig, layout: Layout) -> None:
    """Refuse what a layout has no words for."""
    added = [name for name in _ADDED if getattr(config, name)]
    allowed: Mapping[str, tuple[str, ...]] = {
        "safeailab": (),
        "specforge": ("norm_before_residual", "norm_before_fc", "fc_norm"),
        "speculators": _ADDED,
    }
    wrong = [name for name in added if name not in allowed[layout]]
    if wrong or (layout != "speculators" and not config.norm_logits and layout == "safeailab"):
        raise InputError(
            f"the head in {config.folder} was made with {' and '.join(wrong or ['norm_output = false'])}, which the "
            f"layout '{layout}' has no word for; export it as speculators"
        )
    if layout == "speculators" and not config.norm_logits:
        raise InputError(
            f"the head in {config.folder} makes logits of states that are not normed, which only specforge writes"
        )


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


def _config_of(
    config: EagleConfig, layout: Layout, target: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]
) -> dict[str, Any]:
    dtype = str(tensors["fc.weight"].dtype).removeprefix("torch.")
    layer = _layer_config(config)
    if layout == "speculators":
        return _speculators(config, layer, target, dtype)
    found = layer | {"torch_dtype": dtype, "tie_word_embeddings": False}
    if target.get("name"):
        found["base_model_name_or_path"] = target["name"]
    if config.method == "eagle":
        return found | {"architectures": ["LlamaForCausalLM"], "bias": config.fc_bias}
    found["draft_vocab_size"] = config.draft_vocab_size
    if config.target_hidden_size != config.hidden_size:
        found["target_hidden_size"] = config.target_hidden_size
    if layout == "safeailab":
        return found | {"architectures": ["LlamaForCausalLM"], **_inputs(config)}
    outputs = config.layer_ids.ids
    if outputs is not None and not config.layer_ids.outputs:
        outputs = tuple(one - 1 for one in outputs)
    found |= {"architectures": ["LlamaForCausalLMEagle3"]}
    found |= {name: True for name in _ADDED[:3] if getattr(config, name)}
    if not config.norm_logits:
        found["norm_output"] = False
    ids = {} if outputs is None else {"eagle_aux_hidden_state_layer_ids": list(outputs)}
    return found | ({"eagle_config": {"use_aux_hidden_state": True} | ids})


def _speculators(config: EagleConfig, layer: dict[str, Any], target: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    name = config.method
    proposal = {"proposal_type": "greedy", "speculative_tokens": 5, "verifier_accept_k": 1, "accept_tolerance": 0.0}
    verifier = {"name_or_path": target.get("name"), "architectures": [target.get("architecture")]}
    found: dict[str, Any] = {
        "speculators_model_type": name,
        "speculators_version": "0.5.0",
        "architectures": ["Eagle3Speculator" if name == "eagle3" else "EagleSpeculator"],
        "torch_dtype": dtype,
        "transformer_layer_config": layer,
        "speculators_config": {
            "algorithm": name,
            "proposal_methods": [proposal],
            "default_proposal_method": "greedy",
            "verifier": verifier,
        },
    }
    if name == "eagle":
        return found | {"layernorms": False, "fusion_bias": config.fc_bias}
    found |= {"draft_vocab_size": config.draft_vocab_size} | {one: getattr(config, one) for one in _ADDED}
    if config.target_hidden_size != config.hidden_size:
        found["target_hidden_size"] = config.target_hidden_size
    return found | _inputs(config)


def _inputs(config: EagleConfig) -> dict[str, Any]:
    ids = config.layer_ids.ids
    if ids is None:
        return {}
    return {"eagle_aux_hidden_state_layer_ids": [one + 1 for one in ids] if config.layer_ids.outputs else list(ids)}


def _layer_config(config: EagleConfig) -> dict[str, Any]:
    """Return the decoder layers' config, every figure written out."""
    rope = dict(config.rope)
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
        "rope_theta": rope.pop("rope_theta"),
        "attention_bias": config.attention_bias,
        "mlp_bias": config.mlp_bias,
    }
    if rope.get("rope_type", "default") != "default":
        found["rope_scaling"] = rope
    if config.sliding_window is not None:
        kinds = ("full_attention", "sliding_attention")
        found["sliding_window"] = config.sliding_window
        found["layer_types"] = [kinds[index in config.sliding_layers] for index in range(config.num_layers)]
    return found
