"""The logits processors of a row, sorted by what they need, with a cheaper top-p."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from transformers import (
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    InfNanRemoveLogitsProcessor,
    LogitNormalization,
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopHLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from outrider.errors import GenerationError, first_line

# These never look at the ids, so one call serves all nodes of a tree.
_CONTEXT_FREE: Final = (
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    InfNanRemoveLogitsProcessor,
    LogitNormalization,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopHLogitsWarper,
    TopKLogitsWarper,
    TypicalLogitsWarper,
)
_HEAD: Final = 512


@dataclass(frozen=True, slots=True)
class TopP:
    """Keep the likeliest tokens until their mass reaches `top_p` (nucleus sampling, Holtzman et al. 2019, section 3.1).

    The same tokens as transformers' `TopPLogitsWarper` keeps, up to rounding at the border, without sorting the vocabulary: the
    head of the distribution nearly always holds the mass, and whether it does is known exactly from the log-sum-exp.
    """

    top_p: float
    filter_value: float
    least: int

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        """Return the scores `[rows, vocab]` with the tail's set to the filter value."""
        head = min(_HEAD, scores.shape[-1])
        total = scores.logsumexp(-1, keepdim=True)
        while True:
            values, order = scores.topk(head, dim=-1)
            mass = (values - total).exp()
            before = mass.cumsum(-1) - mass
            keep = before < self.top_p
            keep[..., : self.least] = True
            # On a GPU asking whether the head suffices would be a read from the device, so there the head is everything.
            if head == scores.shape[-1] or (scores.is_cpu and not bool(keep[..., -1].any())):
                break
            head = min(8 * head, scores.shape[-1]) if scores.is_cpu else scores.shape[-1]
        kept = torch.full_like(scores, self.filter_value)
        return kept.scatter_(-1, order, values.masked_fill(~keep, self.filter_value))


@dataclass(frozen=True, slots=True)
class Processors:
    """A row's processors in their order.

    Args:
        chain: called one after another with ids `[1, length]` and scores `[rows, vocab]`.
        context_free: none of them looks at the ids.
        padding: ids that `generate` puts before a shorter row's, and that processors see with it.
    """

    chain: tuple[Any, ...]
    context_free: bool
    padding: tuple[int, ...] = ()

    @classmethod
    def of(cls, processors: LogitsProcessorList, padding: Sequence[int] = ()) -> "Processors":
        """Take over what `generate` prepared."""
        free = all(type(one) in (*_CONTEXT_FREE, TopPLogitsWarper) for one in processors)
        return cls(tuple(_cheaper(one) for one in processors), free, tuple(padding))

    def warp(self, logits: torch.Tensor) -> torch.Tensor:
        """Apply those that never look at the ids (temperature, filters) to logits `[rows, vocab]`; returns float32."""
        scores = logits.to(torch.float32, copy=True)
        for one in self.chain:
            if type(one) in (*_CONTEXT_FREE, TopP):
                scores = one(None, scores)
        return scores

    @property
    def empty(self) -> bool:
        """Whether scores are the logits."""
        return not self.chain

    @property
    def needs_ids(self) -> bool:
        """Whether any of them looks at the ids."""
        return not self.context_free

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Process scores `[rows, vocab]`, which may be overwritten."""
        if self.padding and self.needs_ids:
            ids = torch.cat([ids.new_tensor([self.padding]), ids], 1)
        for one in self.chain:
            try:
                scores = one(ids, scores)
            except Exception as error:
                raise GenerationError(f"logits processor {_name(one)} failed: {first_line(error)}") from error
        return scores


def _name(processor: Any) -> str:
    return getattr(processor, "__name__", type(processor).__name__)


def _cheaper(processor: Any) -> Any:
    if type(processor) is TopPLogitsWarper:
        return TopP(processor.top_p, processor.filter_value, processor.min_tokens_to_keep)
    return processor
