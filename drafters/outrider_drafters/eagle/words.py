"""What the layouts of EAGLE heads can say: a head with anything else can't be written in one.

A layout has a word for what its own implementation computes; keys that it would pass over in silence are none.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from outrider import InputError
from outrider_drafters.eagle.config import EagleConfig, LayerIds, Layout, Method

LAYOUTS: Final[Mapping[str, Layout]] = {
    "eagle": "safeailab",
    "specforge": "specforge",
    "speculators": "speculators",
}
"""Layouts that can be written, by the names that users give."""

_IDS: Final = "eagle_aux_hidden_state_layer_ids"
_EVERY: Final = frozenset(
    ["norm_before_residual", "norm_before_fc", "fc_norm", "norm_output", _IDS, "target_hidden_size"]
)
_WORDS: Final[Mapping[tuple[Method, Layout], frozenset[str]]] = {
    ("eagle", "safeailab"): frozenset(["qkv_bias", "num_hidden_layers"]),
    ("eagle", "speculators"): frozenset(["attention_bias", "mlp_bias"]),
    ("eagle3", "safeailab"): frozenset(["target_hidden_size"]),
    ("eagle3", "specforge"): frozenset(["target_hidden_size", "fc_norm", "norm_output = false", _IDS]),
    ("eagle3", "speculators"): _EVERY
    | {"attention_bias", "mlp_bias", "num_hidden_layers", "sliding_window", "q_norm and k_norm"},
}


def layouts_of(method: Method) -> tuple[str, ...]:
    """Return the layouts, by the names that users give, in which heads of a kind are written."""
    return tuple(name for name, layout in LAYOUTS.items() if (method, layout) in _WORDS)


def check_words(config: EagleConfig, layout: Layout) -> None:
    """Refuse a head that a layout has no words for.

    Raises:
        InputError: with the keys, and with the layouts that have them.
    """
    asked = set(_asked(config))
    lacking = {
        name: sorted(asked - _WORDS[config.method, one])
        for name, one in LAYOUTS.items()
        if (config.method, one) in _WORDS
    }
    name = next(name for name, one in LAYOUTS.items() if one == layout)
    if name not in lacking:
        raise InputError(f"{config.folder}: the layout '{name}' is for other heads than those of {config.method}")
    if lacking[name]:
        others = [one for one, words in lacking.items() if not words]
        rest = (
            f"export it as {' or '.join(others)}" if others else "no layout that can be written has all that it needs"
        )
        raise InputError(
            f"{config.folder}: the layout '{name}' has no word for {', '.join(lacking[name])} of this head; {rest}"
        )


def _asked(config: EagleConfig) -> Iterator[str]:
    """Yield what a head needs words for beyond the plainest one of its kind."""
    flags = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
    yield from (name for name in flags if getattr(config, name))
    if not config.norm_logits:
        yield "norm_output = false"
    if config.attention_bias or config.output_bias:
        both = config.attention_bias and config.output_bias
        yield "attention_bias" if both else "qkv_bias" if config.attention_bias else "o_proj.bias"
    if config.mlp_bias:
        yield "mlp_bias with q_norm" if config.qk_norm else "mlp_bias"
    if config.qk_norm:
        yield "q_norm and k_norm"
    if config.num_layers > 1:
        yield "num_hidden_layers"
    if config.sliding_window is not None:
        yield "sliding_window"
    if config.target_hidden_size != config.hidden_size:
        yield "target_hidden_size"
    if config.layer_ids.ids is not None:
        yield _IDS
    elif config.method == "eagle3" and config.features != 3:
        yield f"{config.features} features without {_IDS}"
    if config.method == "eagle" and config.own_head:
        yield "lm_head.weight"


def spell_layers(config: EagleConfig, layout: Layout, num_layers: int | None) -> LayerIds:
    """Return the layers that a head reads as a layout counts them.

    Args:
        config: of the head.
        layout: that counts inputs, outputs, or knows none but the default.
        num_layers: of its target; None where that is not known.

    Raises:
        InputError: which layers they are depends on the target, or the layout can't count them.
    """
    given = config.layer_ids
    if given.ids is None or (layout == "specforge" and given.outputs):
        return given
    if num_layers is None and given.outputs and _like_default(given.ids):
        raise InputError(
            f"{config.folder}: {_IDS} = {list(given.ids)} may count outputs, or inputs as the default does; the target's "
            f"layers tell: -m MODEL"
        )
    ids = tuple(one + 1 for one in given.ids) if num_layers is None and given.outputs else given.ids
    if num_layers is not None:
        ids = given.resolve(num_layers)
    if layout == "speculators":
        return LayerIds(ids)
    if layout == "safeailab":
        if num_layers is not None and ids == LayerIds(None).resolve(num_layers):
            return LayerIds(None)
        if num_layers is None and _like_default(ids):
            raise InputError(
                f"{config.folder}: the layout 'eagle' has no word for {_IDS} and means 2, n/2 and n - 3; whether "
                f"{list(ids)} are these, the target's layers tell: -m MODEL"
            )
        return LayerIds(ids)  # for which there is no word
    outputs = tuple(one - 1 for one in ids)
    if 0 in ids or (_like_default(outputs) and outputs[2] + 3 == (num_layers or outputs[2] + 3)):
        why = "the embeddings are no layer's output" if 0 in ids else "they would be taken for the default inputs"
        raise InputError(f"{config.folder}: the layout 'specforge' can't count {_IDS} = {list(ids)} by outputs: {why}")
    return LayerIds(outputs, outputs=True)


def _like_default(ids: tuple[int, ...]) -> bool:
    """Say whether some number of layers makes these the default."""
    return len(ids) == 3 and ids == (2, (ids[2] + 3) // 2, ids[2])
