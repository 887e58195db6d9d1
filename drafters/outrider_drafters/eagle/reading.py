"""Reading what EAGLE heads' config files say, with the tensors beside them where a file leaves it open."""

from collections.abc import Mapping
from typing import Any, Final

from transformers import AutoConfig
from transformers.activations import ACT2FN

from outrider import InputError
from outrider_drafters.eagle import keys as eagle_keys
from outrider_drafters.eagle.config import EagleConfig, LayerIds
from outrider_drafters.eagle.rope import check_rope, read_rope
from outrider_drafters.eagle.source import SPECULATORS, Source
from outrider_drafters.head_keys import Keys

_POSITIONS: Final = "max_position_embeddings"
_ORIGINAL: Final = "original_max_position_embeddings"
_KINDS: Final = ("llama", "qwen2", "qwen3", "mistral")


def read_config(source: Source) -> EagleConfig:
    """Understand a head's config.

    Raises:
        InputError: a key is unknown, missing or wrong, with the file and the key.
    """
    top, body, method = source.top, source.body, source.method
    _check_keys(source)
    kind = body.values.get("model_type", "llama")
    if kind not in _KINDS:
        raise body.wrong("model_type", f"one of {', '.join(_KINDS)}")
    # Files leave out what is the default of their kind.
    default: Any = AutoConfig.for_model(kind)
    size = _needed(body, "hidden_size", source.shape("fc.weight", 0))
    vocab = _needed(body, "vocab_size", source.shape("embed_tokens.weight", 0))
    wide = (method == "eagle3" and top.whole("target_hidden_size")) or size
    heads = body.whole("num_attention_heads") or int(default.num_attention_heads)
    fallback = heads if kind == "llama" else int(default.num_key_value_heads)
    shared = body.whole("num_key_value_heads") or fallback
    head_dim = body.whole("head_dim") or (default.head_dim if kind == "qwen3" else max(1, size // heads))
    positions = body.whole(_POSITIONS) or int(default.max_position_embeddings)
    _check_attention(body, heads, shared, head_dim)
    rope = read_rope(body)
    check_rope(rope, head_dim, heads, positions, body)
    layers = _needed(body, "num_hidden_layers", _count(source.stored, "layers."))
    ids = _layer_ids(source) if method == "eagle3" else LayerIds(None)
    window, sliding = _sliding(body, layers)
    return EagleConfig(
        folder=source.folder,
        method=method,
        layout=source.layout,
        hidden_size=size,
        target_hidden_size=wide,
        intermediate_size=_needed(body, "intermediate_size", source.shape("layers.0.mlp.gate_proj.weight", 0)),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=shared,
        head_dim=head_dim,
        rms_norm_eps=_eps(body, default.rms_norm_eps),
        hidden_act=_activation(body, default.hidden_act),
        vocab_size=vocab,
        draft_vocab_size=_draft_vocab(source) or vocab,
        rope=rope,
        **_longest(body, rope, positions),
        features=_features(source, wide, ids) if method == "eagle3" else 1,
        layer_ids=ids,
        qk_norm=kind == "qwen3",
        sliding_window=window,
        sliding_layers=sliding,
        own_head=method == "eagle3" or "lm_head.weight" in source.stored,
        own_embeddings="embed_tokens.weight" in source.stored,
        trained_for=_trained_for(top),
        **_biases(source, kind),
        **(_norms(source) if method == "eagle3" else {}),
    )


def _check_keys(source: Source) -> None:
    top, body, fixed = source.top, source.body, eagle_keys.FIXED
    if source.layout == "speculators":
        if top.values["speculators_model_type"] not in SPECULATORS:
            raise top.wrong("speculators_model_type", "eagle or eagle3")
        top.check(eagle_keys.EAGLE3, eagle_keys.SPECULATORS, fixed=fixed)
        body.check(eagle_keys.LAYERS, fixed=fixed)
        _check_lossless(top.inner("speculators_config"))
    elif source.layout == "vllm-eagle":
        top.check(eagle_keys.LAYERS, eagle_keys.VLLM, fixed=fixed)
        body.check(eagle_keys.LAYERS, fixed=fixed)
    else:
        top.check(eagle_keys.LAYERS, eagle_keys.EAGLE3, fixed=fixed)
        top.inner("eagle_config").check(eagle_keys.EAGLE_CONFIG, fixed=fixed)


def _check_lossless(proposals: Keys) -> None:
    """Refuse settings that ask for tokens which the target would not have chosen."""
    methods = proposals.values.get("proposal_methods")
    for method in methods if isinstance(methods, list) else []:
        for name, lossless in (("verifier_accept_k", 1), ("accept_tolerance", 0)):
            if isinstance(method, dict) and method.get(name, lossless) != lossless:
                raise InputError(
                    f"{proposals.path}: {proposals.where}proposal_methods asks for {name} {method[name]}, which is lossy; "
                    f"set it to {lossless}"
                )


def _needed(keys: Keys, name: str, found: int | None) -> int:
    """Return a figure of the config, or that of the tensors where it has none."""
    given = keys.whole(name) or found
    if not given:
        raise InputError(f"{keys.path} lacks {keys.where}{name}")
    return given


def _check_attention(keys: Keys, heads: int, shared: int, head_dim: int) -> None:
    """Refuse figures with which attention can't be computed, whatever the tensors' shapes are.

    Raises:
        InputError: with the keys and the figures.
    """
    where = f"{keys.path}: {keys.where}"
    if heads % shared:
        raise InputError(
            f"{where}num_attention_heads is {heads} and num_key_value_heads {shared}, which must divide it"
        )
    if head_dim % 2:
        how = "" if keys.values.get("head_dim") else f" (hidden_size by {heads} num_attention_heads, as none is given)"
        raise InputError(f"{where}head_dim is {head_dim}{how}, and must be even to be turned by pairs")


def _count(names: Mapping[str, object], start: str) -> int | None:
    """Return how many numbered parts of a name there are."""
    found = {name.removeprefix(start).split(".")[0] for name in names if name.startswith(start)}
    return len(found) or None


def _eps(keys: Keys, default: float) -> float:
    found = keys.values.get("rms_norm_eps", default)
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < 1:
        raise keys.wrong("rms_norm_eps", "a small number")
    return float(found)


def _activation(keys: Keys, default: str) -> str:
    found = keys.values.get("hidden_act", default)
    # One with weights of its own would need tensors that no layout has.
    if not isinstance(found, str) or found not in ACT2FN or ACT2FN[found].state_dict():
        raise keys.wrong("hidden_act", "an activation of transformers without weights, such as silu")
    return found


def _longest(keys: Keys, rope: Mapping[str, Any], positions: int) -> dict[str, Any]:
    """Return the longest context of a head, and which figure says so."""
    # Longer texts would turn by other frequencies (`eagle_rope.Rotary`).
    original = int(rope.get(_ORIGINAL) or positions)
    if rope["rope_type"] == "longrope" and original < positions:
        return {"max_positions": original, "positions_key": f"{_ORIGINAL} of longrope"}
    told = keys.values.get(_POSITIONS) is not None
    return {"max_positions": positions, "positions_key": f"{keys.where}{_POSITIONS}{' by default' * (not told)}"}


def _draft_vocab(source: Source) -> int | None:
    if source.method == "eagle":
        return source.top.whole("truncated_vocab_size") or source.shape("lm_head.weight", 0)
    return source.top.whole("draft_vocab_size") or source.shape("lm_head.weight", 0)


def _layer_ids(source: Source) -> LayerIds:
    """Return the layers that it reads: vLLM and speculators count inputs, SpecForge and SGLang outputs."""
    name = "eagle_aux_hidden_state_layer_ids"
    inside, outside = source.top.inner("eagle_config").layers(name), source.top.layers(name)
    if inside and outside and inside != outside:
        raise InputError(f"{source.top.path}: {name} is {list(outside)}, and in eagle_config {list(inside)}; set one")
    return LayerIds(outside) if outside or not inside else LayerIds(inside, outputs=True)


def _features(source: Source, wide: int, ids: LayerIds) -> int:
    """Return how many states are joined; where no layers are named, the width of `fc.weight` tells."""
    joined = source.shape("fc.weight", 1)
    if ids.ids is not None or joined is None or joined % wide:
        return len(ids.ids or (0, 0, 0))
    return joined // wide


def _biases(source: Source, kind: str) -> dict[str, Any]:
    """Return which projections have biases: as the config says, else as the tensors are."""
    stored, body = source.stored, source.body
    first = "layers.0.self_attn."
    attention = _first(body.flag("qkv_bias"), body.flag("attention_bias"), f"{first}q_proj.bias" in stored)
    # Only Llama's and Qwen3's word for it means the last projection too.
    whole = body.flag("attention_bias") if kind in ("llama", "qwen3") else None
    fusion = (source.top.flag(name) for name in ("fusion_bias", "eagle_fc_bias", "bias"))
    return {
        "attention_bias": attention,
        "output_bias": _first(whole, f"{first}o_proj.bias" in stored),
        "mlp_bias": _first(body.flag("mlp_bias"), "layers.0.mlp.gate_proj.bias" in stored),
        "fc_bias": source.method == "eagle" and _first(*fusion, "fc.bias" in stored),
    }


def _norms(source: Source) -> dict[str, Any]:
    """Return the flags of EAGLE-3's variants.

    `norm_output` means two things: in speculators' files that normed states are fed back, in SpecForge's only whether logits
    are made of normed ones.
    """
    top, stored = source.top, source.stored
    before = _first(top.flag("norm_before_fc"), "input_norm.weight" in stored)
    each = _first(top.flag("fc_norm"), any(name.startswith("fc_norm.") for name in stored))
    if before and each:
        raise InputError(f"{top.path}: norm_before_fc and fc_norm exclude each other")
    output, specforge = top.flag("norm_output"), source.layout == "specforge"
    if output is not None and source.layout == "safeailab":
        raise InputError(
            f"{top.path}: norm_output means one thing to SpecForge and another to speculators, and the file is neither's; "
            f"write it in one of these layouts"
        )
    return {
        "norm_before_residual": _first(top.flag("norm_before_residual"), False),
        "norm_before_fc": before,
        "fc_norm": each,
        "norm_output": bool(output) and not specforge,
        "norm_logits": not (specforge and output is False),
    }


def _first(*values: bool | None) -> bool:
    """Return the first that is told."""
    return next(one for one in values if one is not None)


def _sliding(keys: Keys, layers: int) -> tuple[int | None, frozenset[int]]:
    """Return how far sliding layers look back, and which these are.

    Raises:
        InputError: there is a window, but nothing says of which layers.
    """
    window, kinds = keys.whole("sliding_window"), keys.values.get("layer_types")
    if kinds is not None:
        known = ("full_attention", "sliding_attention")
        if not isinstance(kinds, list) or len(kinds) != layers or any(one not in known for one in kinds):
            raise keys.wrong("layer_types", f"a list of {layers} of {' and '.join(known)}")
        found = frozenset(index for index, one in enumerate(kinds) if one == "sliding_attention")
        if found and window is None:
            raise keys.wrong("sliding_window", "a number, since layer_types names sliding layers")
        return (window if found else None), found
    used = keys.flag("use_sliding_window")
    if window is None or used is False:
        return None, frozenset()
    if used is None:
        raise InputError(
            f"{keys.path}: {keys.where}sliding_window is {window}, and layer_types doesn't say of which layers"
        )
    first = keys.values.get("max_window_layers", 28)
    if type(first) is not int or first < 0:
        raise keys.wrong("max_window_layers", "a whole number of at least 0")
    found = frozenset(range(first, layers))
    return (window if found else None), found


def _trained_for(top: Keys) -> str | None:
    verifier = top.inner("speculators_config").inner("verifier").values.get("name_or_path")
    found = verifier or top.values.get("base_model_name_or_path")
    return found if isinstance(found, str) else None
