"""Training Medusa heads on a frozen target (Medusa-1, Cai et al. 2024, arXiv:2401.10774, section 2.2.1).

Heads learn the target's own law of the tokens ahead, in place of single tokens of a text.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch
from pydantic import Field

from outrider import DrafterOptions, InputError, Losses, TrainBatch, Trainee, TrainStart
from outrider_drafters.medusa.checkpoint import read_heads
from outrider_drafters.medusa.heads import Heads, HeadsShape
from outrider_drafters.medusa.writing import FASTER, Written, write_medusa
from outrider_drafters.teaching import RANKS, DepthLoss, Teacher, draft_tokens, widened

_KEPT: Final = 0.99
"""Share of what was counted that counts on after a batch."""


class MedusaTrainOptions(DrafterOptions):
    """Options of training `medusa`."""

    heads: int = Field(default=4, ge=1, le=16, description="how many heads, each for a token further ahead")
    layers: int = Field(default=1, ge=1, le=8, description="residual blocks of a head")
    draft_vocab: int = Field(
        default=8192,
        ge=0,
        description="tokens that are learnt, the commonest; 0 is all; more than earlier heads have adds to theirs",
    )
    head_decay: float = Field(default=0.8, gt=0.0, le=1.0, description="weight of a head against the one before")


class MedusaTrainee(Trainee):
    """Heads on the target's own output rows.

    Args:
        heads: that are trained.
        tokens: `[draft vocab]` int64, the target's ids that are learnt.
        start: what they are trained for.
        decay: weight of a head against the one before.
    """

    def __init__(self, heads: Heads, tokens: torch.Tensor, start: TrainStart, decay: float) -> None:
        super().__init__()
        self.heads, self._tokens, self._start, self._decay = heads, tokens, start, decay
        self._teacher = Teacher(start.target.parts, tokens)
        self.layers = (start.target.num_layers,)
        self.hits: torch.Tensor
        self.register_buffer("hits", torch.zeros(heads.shape.heads, 1 + RANKS, dtype=torch.float64))

    def forward(self, batch: TrainBatch) -> Losses:
        """Compare every head with the target."""
        final = batch.states[self.layers[0]]
        taught = self._teacher.of(batch, final)
        found, total = [], final.sum() * 0
        for at, block in enumerate(self.heads.blocks[: final.shape[1] - 2]):
            # Head k guesses the token t + 2 + k, which the target's state at t + 1 + k tells.
            one = taught.loss(block(final[:, : final.shape[1] - 2 - at]), at + 1, self._output(at))
            total = total + self._decay**at * one.total
            found.append(one)
            self._look(at, one)
        return Losses(
            total,
            torch.stack([one.loss for one in found]),
            torch.stack([one.right for one in found]),
            torch.stack([one.count for one in found]),
        )

    @torch.no_grad()
    def _look(self, at: int, one: DepthLoss) -> None:
        """Keep in mind how often each rank of a head was right of late."""
        self.hits[at] = _KEPT * self.hits[at] + torch.cat([one.count[None], one.ranks]).double()

    @property
    def accuracies(self) -> tuple[tuple[float, ...], ...]:
        """How often each rank of each head was right; rank by rank no more than the one before."""
        shares = (self.hits[:, 1:] / self.hits[:, :1].clamp(min=1)).cummin(1).values.clamp(min=1e-4)
        return tuple(tuple(round(one, 4) for one in row) for row in shares.tolist())

    def _output(self, at: int) -> Any:
        own = self.heads.lm_heads
        return self._teacher.logits if not len(own) else own[min(at, len(own) - 1)]

    def save(self, folder: Path) -> None:
        """Write the heads with the names of the first implementation, and the ids that they know."""
        held = self.heads.state_dict()
        weights = {name: one.detach().to("cpu", torch.bfloat16) for name, one in held.items()}
        whole, tokens = self._start.target.vocab_size, self._tokens.cpu()
        write_medusa(
            folder, Written(self.heads.shape, weights, tokens, whole, self._start.model, self.accuracies), FASTER
        )


def make_trainee(start: TrainStart, options: MedusaTrainOptions) -> MedusaTrainee:
    """Make heads to train, or read some to go on with.

    Raises:
        InputError: the target shows no parts of itself, or earlier heads don't fit.
    """
    target = start.target
    if target.parts is None:
        raise InputError("medusa can't be trained: the target shows no parts of itself")
    if start.heads is not None:
        heads, tokens = read_heads(start.heads, target)
        known = tokens if tokens is not None else torch.arange(target.vocab_size)
        if "draft_vocab" in options.model_fields_set:
            known = _widened(heads, known, start, options.draft_vocab)
        return MedusaTrainee(heads.float().requires_grad_(True), known, start, options.head_decay)
    tokens = draft_tokens(start.counts, options.draft_vocab)
    shape = HeadsShape(options.heads, options.layers, target.hidden_size, True, 0, len(tokens))
    heads = Heads(shape)
    for name, weight in heads.named_parameters():
        torch.nn.init.zeros_(weight) if name.endswith("bias") else torch.nn.init.normal_(weight, std=1e-3)
    return MedusaTrainee(heads, tokens, start, options.head_decay)


def _widened(heads: Heads, known: torch.Tensor, start: TrainStart, size: int) -> torch.Tensor:
    """Let heads on the target's own rows guess more tokens, which costs no weights."""
    tokens = widened(known, start.counts, size)
    if len(tokens) > len(known) and len(heads.lm_heads):
        raise InputError(f"draft_vocab = {size}: {start.heads} has output layers of its own, for {len(known)} tokens")
    heads.shape = replace(heads.shape, vocab=len(tokens))
    return tokens
