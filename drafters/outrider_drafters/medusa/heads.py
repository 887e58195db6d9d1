"""Medusa's heads as a module (Cai et al. 2024, arXiv:2401.10774, section 2.1.1).

Head k reads the target's final state (after the last norm) at the last text position that has one, t, and guesses token
t + 2 + k; the target's own head guesses t + 1. It is a few residual blocks x + SiLU(W x + b), and an output layer.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

Output = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class HeadsShape:
    """What heads are made of.

    Args:
        heads: how many, K.
        layers: residual blocks of each.
        hidden: width of the target's states.
        bias: whether the blocks have biases.
        outputs: output layers: one a head, one for all, or none where the target's own rows serve.
        vocab: tokens that output layers score.
    """

    heads: int
    layers: int
    hidden: int
    bias: bool
    outputs: int
    vocab: int


class ResidualBlocks(nn.Module):
    """A head without its output layer; every block has weights of its own."""

    def __init__(self, shape: HeadsShape) -> None:
        super().__init__()
        linears = (nn.Linear(shape.hidden, shape.hidden, bias=shape.bias) for _ in range(shape.layers))
        self.layers = nn.ModuleList(linears)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Return states `[..., hidden]`."""
        for layer in self.layers:
            states = states + nn.functional.silu(layer(states))
        return states


class Heads(nn.Module):
    """All heads; the names of its weights are `blocks.{k}.layers.{i}.weight`, `.bias`, and `lm_heads.{k}.weight`.

    Args:
        shape: what they are made of.
        output: makes logits of the blocks' states where there are no output layers, `[..., hidden]` to `[..., vocab]`.
    """

    def __init__(self, shape: HeadsShape, output: Output | None = None) -> None:
        super().__init__()
        self.shape, self._output = shape, output
        self.blocks = nn.ModuleList(ResidualBlocks(shape) for _ in range(shape.heads))
        outputs = (nn.Linear(shape.hidden, shape.vocab, bias=False) for _ in range(shape.outputs))
        self.lm_heads = nn.ModuleList(outputs)

    def forward(self, states: torch.Tensor, depth: int) -> torch.Tensor:
        """Guess the tokens of the first `depth` heads.

        Args:
            states: `[rows, hidden]`, the target's.
            depth: how many heads are asked.

        Returns:
            Logits `[rows, depth, vocab]`.
        """
        found = [block(states) for block in self.blocks[:depth]]
        if len(self.lm_heads) > 1:
            heads = zip(self.lm_heads[:depth], found, strict=True)
            return torch.stack([head(state) for head, state in heads], 1)
        output: Output | None = self.lm_heads[0] if len(self.lm_heads) else self._output
        if output is None:
            raise ValueError("heads without output layers need the target's")
        return output(torch.stack(found, 1))
