"""A guard that keeps hidden states for the caller, as `generate` returns them, beside what its drafter hears."""

from collections.abc import Sequence
from typing import Any

import torch

from outrider.draft.contract import OutcomeBatch, RowStart
from outrider.draft.features import Needs
from outrider.draft.guard import Guard


class Tap(Guard):
    """Guards a drafter and keeps the hidden states of all committed tokens.

    Args:
        guard: of the drafter.
        layers: whose states are kept, as in `Needs.hidden`; none for a guard and nothing else.
        known: how many ids of the row's prompt are not read, since a cache holds them.
    """

    def __init__(self, guard: Guard, layers: frozenset[int], known: int = 0) -> None:
        super().__init__(guard.drafter)
        self.known = known
        self.layers = layers
        self._own = Needs()
        self._prompts: dict[int, int] = {}
        self._kept: dict[int, list[dict[int, torch.Tensor]]] = {}

    def needs(self) -> Needs:
        """Return what the drafter and the caller want."""
        self._own = super().needs()
        return self._own | Needs(hidden=self.layers)

    def begin(self, rows: Sequence[RowStart]) -> None:
        """Start rows."""
        self._prompts = {start.row: len(start.ids) - self.known for start in rows}
        self._kept = {start.row: [] for start in rows}
        super().begin(rows)

    def observe(self, batch: OutcomeBatch) -> None:
        """Keep what is wanted, and tell the drafter what it asked for."""
        for outcome in batch.rows:
            if self.layers and outcome.features is not None:
                states = outcome.features
                self._kept[outcome.row].append({layer: states.hidden(layer) for layer in self.layers})
        heard = batch.heard(self._own)
        if heard.rows:
            super().observe(heard)

    def take_over(self, row: int, other: "Tap", its: int) -> None:
        """Take another tap's states of a row that was decoded again in place of one's own."""
        self._kept[row] = other._kept[its]

    def by_token(self) -> Any:
        """Return for every new token a tuple of all layers' `[rows, queries, hidden]`: the prompt's first, then one each."""
        rows = [
            [torch.cat([part[layer] for part in self._kept[row]]) for layer in sorted(self.layers)]
            for row in self._kept
        ]
        prompts = list(self._prompts.values())
        longest = max(prompts)
        first = tuple(
            torch.stack([_left(row[layer][:prompt], longest) for row, prompt in zip(rows, prompts, strict=True)])
            for layer in range(len(self.layers))
        )
        later = max(len(row[0]) - prompt for row, prompt in zip(rows, prompts, strict=True))
        return (first, *[self._after(rows, prompts, step) for step in range(later)])

    def _after(self, rows: list[list[torch.Tensor]], prompts: list[int], step: int) -> tuple[torch.Tensor, ...]:
        """Return all layers' states of the token that is fed `step` tokens after the prompts, zeros past a row's end."""
        found = []
        for layer in range(len(self.layers)):
            parts = [row[layer][prompt + step : prompt + step + 1] for row, prompt in zip(rows, prompts, strict=True)]
            found.append(torch.stack([_left(part, 1) for part in parts]))
        return tuple(found)


def _left(states: torch.Tensor, length: int) -> torch.Tensor:
    """Pad `[tokens, hidden]` with zeros on the left."""
    return torch.nn.functional.pad(states, (0, 0, length - len(states), 0))
