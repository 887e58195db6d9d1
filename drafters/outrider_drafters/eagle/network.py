"""The network of EAGLE heads: one for EAGLE-1 and -2, and one for EAGLE-3 with the variants that are published.

It keeps no cache: whoever drafts owns keys, values and masks, and gives the attention (EAGLE-1, arXiv:2401.15077, section 3;
EAGLE-3, arXiv:2503.01840, section 3.1).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers.activations import ACT2FN

from outrider_drafters.eagle.config import EagleConfig
from outrider_drafters.eagle.rope import Rotary, Rotation, frequencies_of

Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""Takes a layer's number, its query `[rows, heads, n, head_dim]`, and key and value `[rows, kv heads, n, head_dim]`, query and
key turned; returns `[rows, heads, n, head_dim]`."""


class Norm(nn.Module):
    """Root mean square norm, in float32 or better.

    Args:
        size: of the last dimension.
        eps: added to the mean square.
    """

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Return states of the same shape and dtype."""
        wide = states.to(torch.promote_types(states.dtype, torch.float32))
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(states.dtype)


class Attention(nn.Module):
    """The projections around attention.

    Args:
        config: of the head.
        width: of what it reads.
    """

    def __init__(self, config: EagleConfig, width: int) -> None:
        super().__init__()
        queries, shared = (count * config.head_dim for count in (config.num_heads, config.num_kv_heads))
        self.head_dim = config.head_dim
        self.q_proj = nn.Linear(width, queries, bias=config.attention_bias)
        self.k_proj = nn.Linear(width, shared, bias=config.attention_bias)
        self.v_proj = nn.Linear(width, shared, bias=config.attention_bias)
        self.o_proj = nn.Linear(queries, config.hidden_size, bias=config.output_bias)
        self.q_norm, self.k_norm = (
            Norm(config.head_dim, config.rms_norm_eps) if config.qk_norm else nn.Identity() for _ in range(2)
        )

    def forward(self, states: torch.Tensor, turn: Rotation, attend: Attend, layer: int) -> torch.Tensor:
        """Return `[rows, n, hidden]` of states `[rows, n, width]`."""
        query = turn(self.q_norm(self._split(self.q_proj(states))))
        key = turn(self.k_norm(self._split(self.k_proj(states))))
        seen = attend(layer, query, key, self._split(self.v_proj(states)))
        found: torch.Tensor = self.o_proj(seen.transpose(1, 2).flatten(2))
        return found

    def _split(self, states: torch.Tensor) -> torch.Tensor:
        return states.view(*states.shape[:-1], -1, self.head_dim).transpose(1, 2)


class Mlp(nn.Module):
    """A gated MLP."""

    def __init__(self, config: EagleConfig) -> None:
        super().__init__()
        inner, bias = config.intermediate_size, config.mlp_bias
        self.gate_proj = nn.Linear(config.hidden_size, inner, bias=bias)
        self.up_proj = nn.Linear(config.hidden_size, inner, bias=bias)
        self.down_proj = nn.Linear(inner, config.hidden_size, bias=bias)
        self.act: Any = ACT2FN[config.hidden_act]

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Return states of the same shape."""
        found: torch.Tensor = self.down_proj(self.act(self.gate_proj(states)) * self.up_proj(states))
        return found


class Layer(nn.Module):
    """A decoder layer; a head's first one reads otherwise than the layers of a model.

    EAGLE-1's has no norm before its attention. EAGLE-3's attends over embedding and state side by side, each with a norm.

    Args:
        config: of the head.
        index: which layer it is.
    """

    def __init__(self, config: EagleConfig, index: int) -> None:
        super().__init__()
        size, eps = config.hidden_size, config.rms_norm_eps
        self.index = index
        self.joins = index == 0 and config.method == "eagle3"
        self.norm_before_residual = config.norm_before_residual
        self.self_attn = Attention(config, 2 * size if self.joins else size)
        self.mlp = Mlp(config)
        self.post_attention_layernorm = Norm(size, eps)
        if index or self.joins:
            self.input_layernorm = Norm(size, eps)
        if self.joins:
            self.hidden_norm = Norm(size, eps)

    def forward(self, state: torch.Tensor, embeds: torch.Tensor, turn: Rotation, attend: Attend) -> torch.Tensor:
        """Return the next state `[rows, n, hidden]`, not normed."""
        residual, read = self._read(state, embeds)
        state = residual + self.self_attn(read, turn, attend, self.index)
        found: torch.Tensor = state + self.mlp(self.post_attention_layernorm(state))
        return found

    def _read(self, state: torch.Tensor, embeds: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the residual, and what attention reads."""
        if self.joins:
            normed = self.hidden_norm(state)
            both = torch.cat((self.input_layernorm(embeds), normed), dim=-1)
            return (normed if self.norm_before_residual else state), both
        return state, self.input_layernorm(state) if self.index else state


class EagleNetwork(nn.Module):
    """An EAGLE head.

    The state of position t goes with the embedding of token t + 1, and both stand at position t.

    Args:
        config: of the head.

    Attributes:
        d2t_ids: `[draft vocab]` int64, the target's ids of the head's tokens; None where they are the same.
        embed_tokens: its own embeddings, or None where the target's are used.
        lm_head: its own head, or None where the target's is used.
    """

    d2t_ids: torch.Tensor | None

    def __init__(self, config: EagleConfig) -> None:
        super().__init__()
        size, eps, wide = config.hidden_size, config.rms_norm_eps, config.target_hidden_size
        self.config = config
        joined = config.features * wide if config.method == "eagle3" else 2 * size
        self.fc = nn.Linear(joined, size, bias=config.fc_bias)
        self.layers = nn.ModuleList(Layer(config, index) for index in range(config.num_layers))
        self.embed_tokens = nn.Embedding(config.vocab_size, size) if config.own_embeddings else None
        self.lm_head = nn.Linear(size, config.draft_vocab_size, bias=False) if config.own_head else None
        self.norm = Norm(size, eps) if config.method == "eagle3" else None
        self.input_norm = Norm(joined, eps) if config.norm_before_fc else None
        self.fc_norm = nn.ModuleList(Norm(wide, eps) for _ in range(config.features)) if config.fc_norm else None
        self.rotary = Rotary(*frequencies_of(config.rope, config.head_dim, config.num_heads, config.max_positions))
        self.register_buffer("d2t_ids", None, persistent=False)

    def fuse(self, features: torch.Tensor) -> torch.Tensor:
        """Return the states `[rows, n, hidden]` that stand for the target's `[rows, n, features x target hidden]`.

        Those of EAGLE-1 are the target's final states themselves.
        """
        if self.config.method == "eagle":
            return features
        if self.input_norm is not None:
            features = self.input_norm(features)
        if self.fc_norm is not None:
            parts = features.chunk(len(self.fc_norm), dim=-1)
            features = torch.cat([norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], dim=-1)
        found: torch.Tensor = self.fc(features)
        return found

    def forward(
        self, embeds: torch.Tensor, hidden: torch.Tensor, positions: torch.Tensor, attend: Attend
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Take one step, of any number of positions.

        Args:
            embeds: `[rows, n, hidden]` of the tokens after the positions.
            hidden: `[rows, n, hidden]` of the positions: `fuse` of the target's, or what an earlier step fed back.
            positions: `[rows, n]`.
            attend: computes attention.

        Returns:
            What is fed back for the positions that follow, and what logits are made of, both `[rows, n, hidden]`.
        """
        turn = self.rotary(positions, hidden.dtype)
        state = self.fc(torch.cat((embeds, hidden), dim=-1)) if self.config.method == "eagle" else hidden
        for layer in self.layers:
            state = layer(state, embeds, turn, attend)
        normed = state if self.norm is None else self.norm(state)
        return normed if self.config.norm_output else state, normed if self.config.norm_logits else state

    def logits(self, for_logits: torch.Tensor) -> torch.Tensor | None:
        """Return logits `[rows, n, draft vocab]` of its own head; None where the target's head is used."""
        if self.lm_head is None:
            return None
        found: torch.Tensor = self.lm_head(for_logits)
        return found
