"""What a step verified and what it took, for those who look closer than `Stats` does."""

from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch

from outrider.draft.tree import ROOT, DraftTree
from outrider.verify.sampling import NodeScores


@dataclass(frozen=True, slots=True)
class Work:
    """One row's side of a step after the prefill.

    Args:
        tree: what was proposed.
        scores: the target's at its nodes.
        path: the accepted nodes that were emitted.
        paused: adaptive decoding asked for no draft.
        rows: how many texts took the step together; they share its times.
        seconds: of the whole step.
        draft_seconds: of which in the drafter.
        target_seconds: of which in the target's forward, with building masks and inputs.
        verify_seconds: of which in processing logits, drawing and deciding. The rest is committing and bookkeeping.
    """

    tree: DraftTree
    scores: NodeScores
    path: tuple[int, ...]
    paused: bool
    rows: int
    seconds: float
    draft_seconds: float
    target_seconds: float
    verify_seconds: float

    def asked(self, emitted: int) -> int:
        """Return how many levels of the draft were decided on, of a step that emitted so many tokens."""
        end = self.path[-1] if self.path else ROOT
        goes_on = emitted > len(self.path) and bool(self.tree.children(end))
        return len(self.path) + goes_on

    def rejected(self) -> tuple[int, ...]:
        """Return the tokens of the draft's own first choice from where it was left."""
        node, found = self.path[-1] if self.path else ROOT, []
        while children := self.tree.children(node):
            node = children[0]
            found.append(self.tree.tokens[node])
        return tuple(found)


class Forward:
    """Times a forward: on a GPU by the device's own clock, since the host goes on before it is over."""

    def __init__(self, device: torch.device) -> None:
        self._events: Any = None
        if device.type == "cuda":
            cuda: Any = torch.cuda
            self._events = [cuda.Event(enable_timing=True) for _ in range(2)]
            self._events[0].record(torch.cuda.current_stream(device))
        self._device, self._start, self._seconds = device, perf_counter(), 0.0

    def over(self) -> None:
        """Hear that the forward's last work was given to the device."""
        self._seconds = perf_counter() - self._start
        if self._events is not None:
            self._events[1].record(torch.cuda.current_stream(self._device))

    @property
    def seconds(self) -> float:
        """How long it took; read after something that the forward gave has been read."""
        if self._events is None:
            return self._seconds
        return max(self._seconds, float(self._events[0].elapsed_time(self._events[1])) / 1000)
