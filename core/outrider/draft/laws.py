"""The laws that drawn nodes come from; the ratio rules compare them with the target's."""

from dataclasses import dataclass
from typing import Final

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
        ids = torch.arange(len(values)) if self.id_map is None else self.id_map.cpu()
        inside = ids < vocab
        law[ids[inside]] = values[inside]
        return law / law.sum()

    def fault(self) -> str:
        """Say what is wrong with the laws, or nothing."""
        if self.q.ndim != 2 or not self.q.is_floating_point():
            return f"q is {self.q.dtype} of shape {list(self.q.shape)}: it holds laws as rows of float32 or float64"
        if self.id_map is not None and self.id_map.shape != self.q.shape[1:]:
            return f"id_map has shape {list(self.id_map.shape)} for a draft vocabulary of {self.q.shape[1]}"
        if self.id_map is not None and len(self.id_map) and int(self.id_map.min()) < 0:
            return "id_map holds a negative id"
        sums = self.q.double().sum(-1)
        if not bool(torch.isfinite(self.q).all()) or bool((self.q < 0).any()) or bool(((sums - 1).abs() > 1e-5).any()):
            return "q is no law: its rows are finite, not negative, and their sums are 1"
        return ""

    def chance(self, index: int, token: int) -> float:
        """Return q of a target id."""
        place = torch.tensor([token]) if self.id_map is None else (self.id_map == token).nonzero().flatten()
        return float(self.q[index, place].sum()) if len(place) and int(place.max()) < self.q.shape[1] else 0.0
