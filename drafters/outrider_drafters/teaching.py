"""The target as a teacher: what it would say at every place of a text, over the tokens that are learnt."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

from outrider import InputError, TrainBatch

RANKS: Final = 10
"""Ranks of a draft that are told apart."""


@dataclass(frozen=True, slots=True, eq=False)
class DepthLoss:
    """How wrong a draft was at one depth.

    Args:
        total: a scalar, the mean over what was learnt; zero where there was nothing.
        loss: the sum, without gradient.
        right: how many of the target's likeliest tokens it had as its own.
        count: how many places were looked at, those outside the draft vocabulary too.
        ranks: `[RANKS]`, how often each rank of the draft was the target's likeliest token.
    """

    total: torch.Tensor
    loss: torch.Tensor
    right: torch.Tensor
    count: torch.Tensor
    ranks: torch.Tensor


class Taught:
    """A batch as the teacher sees it.

    Args:
        laws: `[places, draft vocab]` of the target, at all places that are looked at.
        index: `[rows, n - 1]` int64, which of the places a token's state is; -1 where none.
        known: `[places]` bool, whether the text's own next token can be drafted; the others are not learnt.
        top_k: likeliest tokens that are learnt once more.
        weight: of these.
    """

    def __init__(self, laws: torch.Tensor, index: torch.Tensor, known: torch.Tensor, top_k: int, weight: float) -> None:
        self._laws, self._index, self._known = laws, index, known
        self._best = laws.argmax(-1) if len(laws) else laws.new_zeros(0, dtype=torch.long)
        self._top_k, self._weight = top_k, weight

    def loss(self, states: torch.Tensor, shift: int, logits: Callable[[torch.Tensor], torch.Tensor]) -> DepthLoss:
        """Compare drafts with the target.

        Args:
            states: `[rows, n - 1 - shift, hidden]` of places from the first on.
            shift: how many tokens after them the target's state stands that they are compared with.
            logits: makes logits `[places, draft vocab]` of states.
        """
        places = self._index[:, shift : shift + states.shape[1]]
        looked = places >= 0
        chosen = places[looked]
        known = self._known[chosen]
        zero = states.sum() * 0
        count = looked.sum()
        if not len(chosen):
            return DepthLoss(zero, zero.detach(), count, count, count.new_zeros(RANKS))
        law = logits(states[looked]).float().log_softmax(-1)
        wanted = self._laws[chosen]
        each = -(wanted * law).sum(-1)
        if self._top_k:
            best, ids = wanted.topk(min(self._top_k, wanted.shape[-1]), -1)
            each = each - self._weight * (best * law.gather(-1, ids)).sum(-1)
        learnt = known.sum()
        total = (each * known).sum() / learnt.clamp(min=1)
        best = self._best[chosen, None]
        rank = (law > law.gather(-1, best)).sum(-1).masked_fill(~known, RANKS).clamp(max=RANKS)
        ranks = torch.bincount(rank, minlength=RANKS + 1)[:RANKS]
        return DepthLoss(total, (each * known).sum().detach(), ranks[0], count, ranks)

    def feature_loss(self, states: torch.Tensor, wanted: torch.Tensor, shift: int) -> torch.Tensor:
        """Return EAGLE-1's smooth L1 distance between states and the target's, over what is learnt."""
        count = min(states.shape[1], self._index.shape[1] - shift)
        looked = self._index[:, shift : shift + count] >= 0
        if not bool(looked.any()):
            return states.sum() * 0
        return torch.nn.functional.smooth_l1_loss(states[:, :count][looked], wanted[:, :count][looked])


class Teacher:
    """Makes laws of the target's final states.

    Args:
        parts: of the target.
        tokens: `[draft vocab]` int64, the target's ids that are learnt, rising.
        top_k: likeliest tokens that are learnt once more.
        weight: of these.
    """

    def __init__(self, parts: Any, tokens: torch.Tensor, top_k: int = 0, weight: float = 1.0) -> None:
        self._head = parts.head.narrow(tokens)
        self._tokens, self._top_k, self._weight = tokens, top_k, weight

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Return the target's own logits `[..., draft vocab]` of final states."""
        found: torch.Tensor = self._head(states)
        return found

    @torch.no_grad()
    def of(self, batch: TrainBatch, final: torch.Tensor) -> Taught:
        """Look at a batch.

        Args:
            batch: texts; the state of a token tells the next, so it counts where the next is an answer's.
            final: `[rows, n, hidden]`, the target's states after its last norm.
        """
        looked = batch.answers[:, 1:]
        index = torch.full(looked.shape, -1, device=looked.device)
        index[looked] = torch.arange(int(looked.sum()), device=looked.device)
        laws = self._head(final[:, :-1][looked]).float().softmax(-1)
        known = torch.isin(batch.ids[:, 1:][looked], self._tokens.to(looked.device))
        return Taught(laws, index, known, self._top_k, self._weight)


def draft_tokens(counts: torch.Tensor, size: int) -> torch.Tensor:
    """Return the ids `[draft vocab]` that are learnt, rising: the commonest ones, or all where `size` is 0.

    Args:
        counts: `[vocab]` int64 of the data; among tokens that it has equally often the lower ids are taken.
        size: how many.
    """
    if not size or size >= len(counts):
        return torch.arange(len(counts))
    order = counts.argsort(descending=True, stable=True)
    return order[:size].sort().values


def widened(known: torch.Tensor, counts: torch.Tensor, size: int) -> torch.Tensor:
    """Return the ids `[draft vocab]` that earlier heads know, rising, and the commonest others up to `size` of them.

    Args:
        known: `[their draft vocab]` int64.
        counts: `[vocab]` int64 of the data.
        size: how many there are to be; 0 is all.

    Raises:
        InputError: they know more.
    """
    if 0 < size < len(known):
        raise InputError(
            f"draft_vocab = {size}, and the heads to go on from know {len(known)} tokens: they can't forget any"
        )
    counts = counts.clone()
    counts[known] = counts.max() + 1
    return draft_tokens(counts, size)
