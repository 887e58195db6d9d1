"""An EAGLE head's own rotary embedding, with the frequencies that transformers computes."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from outrider import InputError
from outrider_drafters.eagle.keys import ROPE
from outrider_drafters.head_keys import Keys

BASE: Final = 10000.0
"""The base of heads whose files name none, whatever their target's is."""
_SAME_AS_DEFAULT: Final = ("mrope",)  # several axes of positions, which are one in a text


def read_rope(keys: Keys) -> dict[str, Any]:
    """Return `rope_parameters` as transformers 5 spells them, from these or from the older `rope_theta` and `rope_scaling`.

    Raises:
        InputError: they are spelt in both ways that differ, or hold what is unknown.
    """
    new, old = keys.inner("rope_parameters"), keys.inner("rope_scaling")
    if "sliding_attention" in new.values:  # one for each kind of layer; speculators takes this one
        new = new.inner("sliding_attention")
    given = new if new.values else old
    unknown = sorted(set(given.values) - ROPE)
    if unknown:
        raise InputError(f"{keys.path}: unknown key {given.where}{unknown[0]}; known are {', '.join(sorted(ROPE))}")
    for one in (given, keys):
        _check_base(one)
    given.whole("original_max_position_embeddings")
    found = dict(given.values)
    for name in ("type", "rope_type"):
        if not isinstance(found.get(name), str | None):
            raise given.wrong(name, "the name of a kind of rotary embedding, such as linear")
    kinds = {found.pop(name) for name in ("type", "rope_type") if found.get(name) is not None}
    bases = {one for one in (found.get("rope_theta"), keys.values.get("rope_theta")) if one is not None}
    if len(kinds) > 1 or len(bases) > 1:
        raise InputError(f"{keys.path}: its rotary embedding is spelt twice, as {sorted(map(str, kinds or bases))}")
    found["rope_theta"] = float(next(iter(bases), BASE))
    kind = next(iter(kinds), "default")
    found["rope_type"] = "default" if kind in _SAME_AS_DEFAULT else kind
    outer = keys.whole("original_max_position_embeddings")
    if outer is not None:
        found.setdefault("original_max_position_embeddings", outer)
    return found


def _check_base(keys: Keys) -> None:
    base = keys.values.get("rope_theta")
    if base is not None and (type(base) not in (int, float) or not 0 < base < math.inf):
        raise keys.wrong("rope_theta", "a number above 0")


def check_rope(rope: Mapping[str, Any], size: int, heads: int, positions: int, keys: Keys) -> None:
    """Refuse parameters from which transformers can't make frequencies for heads of a size.

    Raises:
        InputError: with its reason.
    """
    try:
        frequencies, factor = frequencies_of(rope, size, heads, positions)
        if not (bool(frequencies.isfinite().all()) and math.isfinite(factor)):
            raise ValueError("its frequencies are not finite")
    except Exception as error:  # transformers raises what the parameters lead to
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{keys.path}: its rotary embedding {dict(rope)} can't be made: {reason[:200]}") from error


def frequencies_of(rope: Mapping[str, Any], size: int, heads: int, positions: int) -> tuple[torch.Tensor, float]:
    """Return the frequencies `[size / 2]` in float32, and the factor on sine and cosine.

    Args:
        rope: `rope_parameters`.
        size: of a head.
        heads: of attention.
        positions: longest context.
    """
    shape: Any = {"hidden_size": size * heads, "num_attention_heads": heads, "head_dim": size}
    config = LlamaConfig(**shape, max_position_embeddings=positions, rope_parameters=dict(rope))
    with torch.device("cpu"):  # wherever the network is being made
        made = LlamaRotaryEmbedding(config)
    # Detached it is no buffer any more, which a module would take over.
    found: torch.Tensor = made.inv_freq.detach()
    return found.float(), float(made.attention_scaling)


@dataclass(frozen=True, slots=True)
class Rotation:
    """Turns queries and keys of some positions.

    Args:
        cos: `[rows, 1, n, head_dim]`.
        sin: the same.
    """

    cos: torch.Tensor
    sin: torch.Tensor

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """Return states `[rows, heads, n, head_dim]`, turned."""
        first, second = states.chunk(2, dim=-1)
        return states * self.cos + torch.cat((-second, first), dim=-1) * self.sin


class Rotary(torch.nn.Module):
    """Makes rotations, in float32 whatever dtype the head runs in.

    Kinds whose frequencies change with the text's length (`dynamic`, `longrope`) keep those of the lengths that they were
    made for: keys in a cache are not turned again.

    Args:
        frequencies: `[head_dim / 2]` float32.
        factor: on sine and cosine.
    """

    def __init__(self, frequencies: torch.Tensor, factor: float) -> None:
        super().__init__()
        self.frequencies: torch.Tensor
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.factor = factor
        self._exact = frequencies

    def forward(self, positions: torch.Tensor, dtype: torch.dtype) -> Rotation:
        """Return the rotation of positions `[rows, n]` for states of a dtype."""
        angles = positions[:, None, :, None].float() * self.frequencies
        both = torch.cat((angles, angles), dim=-1)
        return Rotation((both.cos() * self.factor).to(dtype), (both.sin() * self.factor).to(dtype))

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> "Rotary":
        """Move to another device, but not to another dtype."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.frequencies = self._exact.to(self.frequencies.device)
        return self
