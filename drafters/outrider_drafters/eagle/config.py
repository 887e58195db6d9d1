"""What an EAGLE head is, whatever wrote it, and whether it fits a target.

EAGLE-1 and -2 (Li et al. 2024, arXiv:2401.15077 and arXiv:2406.16858) share one kind of head; EAGLE-3 (Li et al. 2025,
arXiv:2503.01840) has another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from outrider import InputError, TargetInfo

Method = Literal["eagle", "eagle3"]
Layout = Literal["safeailab", "specforge", "speculators", "vllm-eagle"]


@dataclass(frozen=True, slots=True)
class LayerIds:
    """Which layers' states a head reads, as its file counts them.

    Args:
        ids: of layers; None where the file names none.
        outputs: whether a layer stands for what it gives, else for what it reads.
    """

    ids: tuple[int, ...] | None
    outputs: bool = False

    def resolve(self, num_layers: int) -> tuple[int, ...]:
        """Return them in transformers' numbering of hidden states: a low, a middle and a high one where none are named.

        Files that count outputs are also written with the default in the other numbering, which is seen by its figures:
        heads of published 61-layer targets have both (1, 29, 57) and (2, 30, 58).
        """
        default = (2, num_layers // 2, num_layers - 3)
        if self.ids is None or not self.outputs or self.ids == default:
            return default if self.ids is None else self.ids
        return tuple(one + 1 for one in self.ids)


@dataclass(frozen=True, slots=True)
class EagleConfig:
    """Everything that an EAGLE head's network and its drafter need.

    Args:
        folder: where it was read.
        method: `eagle` for EAGLE-1 and -2, `eagle3`.
        layout: whose way of writing it is.
        hidden_size: of the head.
        target_hidden_size: of the target's states that it reads.
        intermediate_size: of its MLPs.
        num_layers: decoder layers.
        num_heads: of attention.
        num_kv_heads: of keys and values.
        head_dim: of one.
        rms_norm_eps: of every norm.
        hidden_act: activation of its MLPs.
        vocab_size: the target's.
        draft_vocab_size: tokens that it can draft.
        rope: its own rotary embedding, never the target's, as transformers' `rope_parameters`.
        max_positions: longest context that its config was written for.
        features: how many of the target's states it reads.
        layer_ids: which these are, as the file counts them.
        fc_bias: whether the layer that joins its inputs has a bias.
        attention_bias: whether queries, keys and values have one.
        output_bias: whether attention's last projection has one.
        mlp_bias: whether its MLPs have biases.
        qk_norm: whether queries and keys are normed, as in Qwen3.
        norm_before_residual: the first layer's residual is normed.
        norm_before_fc: all features together are normed before they are joined.
        fc_norm: each feature is normed before.
        norm_output: states are fed back normed (speculators' meaning of the word).
        norm_logits: logits are made of normed states.
        sliding_window: how far the layers of `sliding_layers` look back.
        sliding_layers: which layers slide.
        own_head: whether it has a head, or uses the target's.
        own_embeddings: whether it has embeddings, or uses the target's.
        trained_for: the target's name in its file.
        positions_key: the key that says `max_positions`.
        feature_layers: the states that it reads, in transformers' numbering; empty before `for_target`.
    """

    folder: Path
    method: Method
    layout: Layout
    hidden_size: int
    target_hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    hidden_act: str
    vocab_size: int
    draft_vocab_size: int
    rope: Mapping[str, Any]
    max_positions: int
    features: int
    layer_ids: LayerIds
    fc_bias: bool = False
    attention_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False
    norm_logits: bool = True
    sliding_window: int | None = None
    sliding_layers: frozenset[int] = frozenset()
    own_head: bool = True
    own_embeddings: bool = False
    trained_for: str | None = None
    positions_key: str = "max_position_embeddings"
    feature_layers: tuple[int, ...] = field(default=())

    def for_target(self, target: TargetInfo, feature_layers: Sequence[int] | None = None) -> "EagleConfig":
        """Return it with the target's layers that it reads.

        Args:
            target: what it will draft for.
            feature_layers: in transformers' numbering, in place of the file's.

        Raises:
            InputError: it is for another target; with its figure and the target's.
        """
        self._compare("hidden states of width", self.target_hidden_size, "hidden states of width", target.hidden_size)
        self._compare("a vocabulary of", self.vocab_size, "a vocabulary of", target.vocab_size)
        if self.method == "eagle":
            if feature_layers is not None and tuple(feature_layers) != (target.num_layers,):
                raise InputError(f"{self.folder}: EAGLE-1 heads read the final states; leave the option layers out")
            return replace(self, feature_layers=(target.num_layers,))
        return replace(self, feature_layers=self._layers(target.num_layers, feature_layers))

    def _compare(self, what: str, own: int, whose: str, theirs: int) -> None:
        if own != theirs:
            raise InputError(
                f"{self.folder}: this {self.method} head was made for {what} {own}, and the target has {whose} {theirs}"
            )

    def _layers(self, total: int, given: Sequence[int] | None) -> tuple[int, ...]:
        """Return the layers to read, each of them one whose states can be had."""
        layers = self.layer_ids.resolve(total) if given is None else tuple(given)
        told = self.layer_ids.ids is not None or given is not None
        source = "" if told else " by default"
        if len(layers) != self.features:
            raise InputError(
                f"{self.folder}: this eagle3 head reads {self.features} layers, and these are {len(layers)}{source}: "
                f"{_listed(layers)}; name them by the option layers"
            )
        # The states after the last layer are had normed only; files count them without the norm.
        last = total if given is not None else total - 1
        wrong = [one for one in layers if not 0 <= one <= last]
        if wrong or len(set(layers)) < len(layers):
            fault = f"layer {wrong[0]} is not one of 0 to {last}" if wrong else "they are not distinct"
            raise InputError(
                f"{self.folder}: this eagle3 head reads the target's hidden states {_listed(layers)}{source}; {fault}, "
                f"since the target has {total} layers; name others by the option layers"
            )
        return layers


def _listed(layers: Sequence[int]) -> str:
    return ", ".join(map(str, layers)) or "none"
