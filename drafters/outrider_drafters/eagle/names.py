"""The tensors of EAGLE heads: how the layouts name them, and which a head of some config has."""

from collections.abc import Collection, Mapping
from typing import Final

from outrider_drafters.eagle.config import EagleConfig, Layout

_FIRST: Final = "layers.0."
RENAMED: Final[Mapping[Layout, tuple[tuple[str, str], ...]]] = {
    "safeailab": (("midlayer.", _FIRST),),
    "specforge": (("midlayer.", _FIRST),),
    "speculators": (("fusion_fc.", "fc."), ("transformer.", _FIRST)),
    "vllm-eagle": (("model.model.", ""), ("model.", "")),
}
"""Beginnings of names in a layout, and what they are in the network."""

OPTIONAL: Final = frozenset(["embed_tokens.weight", "d2t", "t2d", "token_map"])
"""Tensors that a head may have or not: what their absence means is checked with the target at hand."""


def canonical(name: str, layout: Layout) -> str:
    """Return what a file's tensor is called in the network."""
    for first, meant in RENAMED[layout]:
        if name.startswith(first):
            return meant + name.removeprefix(first)
    return name


def spelt(name: str, layout: Layout, names: Collection[str]) -> str:
    """Return how a file whose tensors have these names would call a tensor of the network."""
    for first, meant in RENAMED[layout]:
        # Only the model's own parts lie below what has no name in the network.
        inside = name.startswith(meant or ("layers.", "embed_tokens."))
        if inside and any(one.startswith(first) for one in names):
            return first + name.removeprefix(meant)
    return name


def is_ignored(name: str, layout: Layout) -> bool:
    """Whether a tensor is computed anew, or is one that its writer does not use either."""
    unused = layout == "vllm-eagle" and name == f"{_FIRST}input_layernorm.weight"
    return unused or name.endswith("rotary_emb.inv_freq")


def expected_shapes(config: EagleConfig) -> dict[str, tuple[int, ...]]:
    """Return every tensor that a head's network has, with its shape; those of `OPTIONAL` too."""
    size, wide = config.hidden_size, config.target_hidden_size
    joined = config.features * wide if config.method == "eagle3" else 2 * size
    found: dict[str, tuple[int, ...]] = _linear("fc", joined, size, config.fc_bias)
    for index in range(config.num_layers):
        found |= _layer(config, index)
    if config.method == "eagle3":
        found["norm.weight"] = (size,)
        if config.norm_before_fc:
            found["input_norm.weight"] = (joined,)
        if config.fc_norm:
            found |= {f"fc_norm.{index}.weight": (wide,) for index in range(config.features)}
        found |= {"d2t": (config.draft_vocab_size,), "t2d": (config.vocab_size,)}
    elif config.own_head:
        found["token_map"] = (config.draft_vocab_size,)
    if config.own_head:
        found["lm_head.weight"] = (config.draft_vocab_size, size)
    return found | {"embed_tokens.weight": (config.vocab_size, size)}


def _layer(config: EagleConfig, index: int) -> dict[str, tuple[int, ...]]:
    size, inner, bias = config.hidden_size, config.intermediate_size, config.attention_bias
    joins = index == 0 and config.method == "eagle3"
    width = 2 * size if joins else size
    queries, shared = (count * config.head_dim for count in (config.num_heads, config.num_kv_heads))
    attention = _linear("self_attn.q_proj", width, queries, bias)
    attention |= _linear("self_attn.k_proj", width, shared, bias) | _linear("self_attn.v_proj", width, shared, bias)
    attention |= _linear("self_attn.o_proj", queries, size, config.output_bias)
    if config.qk_norm:
        attention |= {f"self_attn.{one}_norm.weight": (config.head_dim,) for one in "qk"}
    mlp = _linear("mlp.gate_proj", size, inner, config.mlp_bias) | _linear("mlp.up_proj", size, inner, config.mlp_bias)
    mlp |= _linear("mlp.down_proj", inner, size, config.mlp_bias)
    norms = ["post_attention_layernorm", *["input_layernorm"] * (index > 0 or joins), *["hidden_norm"] * joins]
    found = attention | mlp | {f"{one}.weight": (size,) for one in norms}
    return {f"layers.{index}.{name}": shape for name, shape in found.items()}


def _linear(name: str, inputs: int, outputs: int, bias: bool) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {f"{name}.weight": (outputs, inputs)}
    return found | {f"{name}.bias": (outputs,)} if bias else found
