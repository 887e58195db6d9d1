"""What emitted tokens were drawn from, as far as it was asked for."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import torch

from outrider.verify.sampling import NodeScores

EVIDENCE: Final = ("output_logits", "output_scores", "output_logprobs")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What emitted tokens were drawn from, as far as it was asked for; equal to what plain decoding draws from.

    Args:
        logits: `[tokens, vocab]` float32, of the model itself.
        scores: `[tokens, vocab]` float32, after the processors.
        logprobs: of every token in the law that it was drawn from.
    """

    logits: torch.Tensor | None = field(default=None, compare=False)
    scores: torch.Tensor | None = field(default=None, compare=False)
    logprobs: tuple[float, ...] | None = None

    @classmethod
    def of(cls, wanted: frozenset[str], scores: NodeScores, nodes: Sequence[int], tokens: Sequence[int]) -> "Evidence":
        """Collect what is wanted for tokens that follow these nodes."""
        if not wanted:
            return cls()
        processed = torch.stack([scores(node) for node in nodes])
        chances = processed.double().log_softmax(-1)
        return cls(
            scores.logits[[node + 1 for node in nodes]].float() if "output_logits" in wanted else None,
            processed if "output_scores" in wanted else None,
            tuple(chances[range(len(tokens)), list(tokens)].tolist()) if "output_logprobs" in wanted else None,
        )

    @classmethod
    def join(cls, parts: Sequence["Evidence"]) -> "Evidence":
        """Put the steps' evidence together."""
        logits, scores = ([getattr(part, name) for part in parts] for name in ("logits", "scores"))
        logprobs = [part.logprobs for part in parts]
        return cls(
            torch.cat(logits) if logits and logits[0] is not None else None,
            torch.cat(scores) if scores and scores[0] is not None else None,
            tuple(one for part in logprobs for one in part or ()) if logprobs and logprobs[0] is not None else None,
        )
