"""The laws that drawn nodes come from; the ratio rules compare them with the target's."""

from dataclasses import dataclass, replace
from typing import Final, Self

import torch

POINT: Final = -1
"""In place of a row of laws: the node was not drawn but chosen."""


@dataclass(frozen=True, slots=True)
class DraftLaws:
    """The laws q that nodes were drawn from, with all the drafter's own filters applied.

    Args:
        q: `[rows, draft vocab]` float32 or float64, each row's sum 1.
        id_map: `[draft vocab]` int64, the target's id of every draft id; None where they are the same.
        replacement: whether siblings were drawn independently, so that two may be equal; else each was drawn from what its
            earlier siblings left. Rows of q are always those before any sibling was taken out.
    """

    q: torch.Tensor
    id_map: torch.Tensor | None = None
    replacement: bool = False

    def row(self, index: int, vocab: int) -> torch.Tensor:
        """Return a row in the target's ids, `[vocab]` float64 on the CPU, its sum 1 to float64's precision."""
        law = torch.zeros(vocab, dtype=torch.float64)
        values = self.q[index].double().cpu()
        if self.id_map is None:
            law[: len(values)] = values[:vocab]
        else:
            inside = self.id_map < vocab
            law[self.id_map[inside].cpu()] = values[inside.cpu()]
        return law / law.sum()

    def on_cpu(self) -> Self:
        """Return the same laws on the CPU."""
        return replace(self, q=self.q.cpu(), id_map=None if self.id_map is None else self.id_map.cpu())

    def fault(self) -> str:
        """Say what is wrong with the laws, or nothing."""
        if self.q.ndim != 2 or not self.q.is_floating_point():
            return f"q is {self.q.dtype} of shape {list(self.q.shape)}: it holds laws as rows of float32 or float64"
        if self.id_map is not None and self.id_map.shape != self.q.shape[1:]:
            return f"id_map has shape {list(self.id_map.shape)} for a draft vocabulary of {self.q.shape[1]}"
        if self.id_map is not None and len(self.id_map) and int(self.id_map.min()) < 0:
            return "id_map holds a negative id"
        # Sums of finite numbers are finite; a number that is none makes its row's sum none, which is not near 1 either.
        far = ~((self.q.double().sum(-1) - 1).abs() <= 1e-5)
        if bool((far | (self.q < 0).any(-1)).any()):
            return "q is no law: its rows are finite, not negative, and their sums are 1"
        return ""

    def chance(self, index: int, token: int) -> float:
        """Return q of a target id."""
        if self.id_map is None:
            return float(self.q[index, token]) if token < self.q.shape[1] else 0.0
        return float(self.q[index, self.id_map == token].sum())
