"""Where a step's tokens are cut: exactly where plain decoding, one token at a time, would have stopped."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from transformers import EosTokenCriteria, MaxLengthCriteria, MaxTimeCriteria, StoppingCriteriaList, StopStringCriteria

from outrider.errors import GenerationError, first_line

FinishReason = Literal["eos", "length", "stop_string", "time", "criteria"]


@dataclass(frozen=True, slots=True)
class Stopping:
    """The stops of a row, asked token by token; the first in token order wins.

    Args:
        eos_ids: ids that end the text and stay in it.
        max_length: most ids, the prompt included.
        criteria: all others, with the prefix that ends in the token in question, as plain decoding asks them.
        device: where the criteria expect ids.
        padding: ids that `generate` puts before a shorter row's; they count in `max_length`, and criteria see them.
    """

    eos_ids: frozenset[int]
    max_length: int
    criteria: tuple[Any, ...]
    device: torch.device
    padding: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        criteria: StoppingCriteriaList,
        eos_ids: frozenset[int],
        max_length: int,
        device: torch.device,
        padding: Sequence[int] = (),
    ) -> "Stopping":
        """Take over what `generate` prepared; length and EOS are tested without tensors."""
        # A caller's own take the place of those that `generate` makes of its options.
        lengths = [one.max_length for one in criteria if type(one) is MaxLengthCriteria]
        ends = [one.eos_token_id.flatten().tolist() for one in criteria if type(one) is EosTokenCriteria]
        others = [one for one in criteria if type(one) not in (MaxLengthCriteria, EosTokenCriteria)]
        eos_ids = frozenset(token for end in ends for token in end)
        return cls(eos_ids, min([max_length, *lengths]), tuple(others), device, tuple(padding))

    @property
    def longest(self) -> int:
        """Most ids of the row itself."""
        return self.max_length - len(self.padding)

    def cut(self, ids: Sequence[int], tokens: Sequence[int], scores: Any = None) -> tuple[int, FinishReason | None]:
        """Say how many of `tokens`, which follow `ids`, are emitted, and why the text ends there if it does."""
        for count, token in enumerate(tokens, 1):
            shown = None if scores is None else scores[: len(scores) - len(tokens) + count]
            reason = self._asked([*ids, *tokens[:count]], shown) if self.criteria else None
            if token in self.eos_ids:
                return count, "eos"
            if reason:
                return count, reason
            if len(ids) + count >= self.longest:
                return count, "length"
        return len(tokens), None

    def _asked(self, ids: list[int], scores: Any) -> FinishReason | None:
        prefix = torch.tensor([[*self.padding, *ids]], device=self.device)
        for criterion in self.criteria:
            try:
                answer = torch.as_tensor(criterion(prefix, scores))
                if answer.numel() != 1:
                    raise ValueError(f"{answer.numel()} answers for one row")
                stops = bool(answer)
            except Exception as error:
                name = getattr(criterion, "__name__", type(criterion).__name__)
                raise GenerationError(f"stopping criterion {name} failed: {first_line(error)}") from error
            if stops:
                return _reason(criterion)
        return None


def _reason(criterion: Any) -> FinishReason:
    if isinstance(criterion, StopStringCriteria):
        return "stop_string"
    return "time" if isinstance(criterion, MaxTimeCriteria) else "criteria"
