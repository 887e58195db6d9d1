"""Hidden states for drafters that look inside the target.

Layers are named as in transformers' `hidden_states`: 0 is the embeddings, i the output of decoder layer i - 1 (counted from 0),
and the number of layers the final states after the last norm, which the head reads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a drafter wants of the target's forwards.

    Args:
        hidden: layers whose hidden states it wants, in transformers' numbering; see `layer_output` for the other.
        logits: whether it wants logits.
        keys_values: decoder layers, counted from 0, whose keys and values it wants.
    """

    hidden: frozenset[int] = frozenset()
    logits: bool = False
    keys_values: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.hidden or self.logits or self.keys_values)

    def __or__(self, other: "Needs") -> "Needs":
        return Needs(
            hidden=self.hidden | other.hidden,
            logits=self.logits or other.logits,
            keys_values=self.keys_values | other.keys_values,
        )


def layer_output(layer: int) -> int:
    """Return the number in `Needs.hidden` of what decoder layer `layer`, counted from 0, gives.

    Some checkpoints (EAGLE-3's in vLLM's layout) count layers this way. The last layer's output is
    had after the final norm only.
    """
    return layer + 1


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """What a row's forward showed: of the root and every node, or of a piece of the prompt.

    Args:
        states: for every layer `[1 + nodes, hidden]`, or `[tokens, hidden]` of a piece of the prompt. Committed tokens that
            were no nodes of the drafter's own tree, but another's beside it, come after the nodes.
        kept: the rows of these tensors that belong to committed tokens, in order.
        logits: `[1 + nodes, vocab]` of the model itself, where they were asked for; of a prompt's piece its last token's.
        first: which of the row's ids the first committed token is.
        keys_values: for every layer keys and values `[heads, committed tokens, width]`, copies; empty where the target's tier
            keeps none for trees.
    """

    states: Mapping[int, torch.Tensor]
    kept: tuple[int, ...]
    logits: torch.Tensor | None = None
    first: int = 0
    keys_values: Mapping[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)

    def hidden(self, layer: int, *, every: bool = False) -> torch.Tensor:
        """Return a layer's states of the committed tokens, in order, or of all nodes, the root first."""
        states = self.states[layer]
        if every or len(self.kept) == len(states):
            return states
        return _rows(states, self.kept)

    def only(self, needs: Needs) -> "Features | None":
        """Return what a drafter of these needs asked for; None where it asked for nothing."""
        if not needs:
            return None
        states = {layer: self.states[layer] for layer in needs.hidden}
        shared = {layer: both for layer, both in self.keys_values.items() if layer in needs.keys_values}
        return replace(self, states=states, logits=self.logits if needs.logits else None, keys_values=shared)

    def of_nodes(self, nodes: Sequence[int]) -> "Features":
        """Return those of the root, of some nodes in this order, and of what else was committed."""
        rows = [0, *[node + 1 for node in nodes]]
        rows += [row for row in self.kept if row not in rows]
        kept = tuple(rows.index(row) for row in self.kept)
        states = {layer: _rows(states, rows) for layer, states in self.states.items()}
        return replace(self, states=states, kept=kept, logits=None if self.logits is None else _rows(self.logits, rows))


def _rows(values: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
    return values[torch.tensor(rows, device=values.device)]
