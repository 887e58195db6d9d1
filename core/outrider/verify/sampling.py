"""The target's own draw at the nodes of a tree: logits, processors on the node's own path, then argmax or noise."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import LogitsProcessorList

from outrider.draft.tree import ROOT, DraftTree
from outrider.verify.noise import gumbel_max

Draw = Callable[[int], int]
"""The target's token after a node; `ROOT` for the root."""


@dataclass(frozen=True, slots=True)
class Sampler:
    """How a row draws.

    Args:
        processors: applied to float32 logits with the ids that lead to a node, as plain decoding applies them.
        seed: of the row, or None for greedy decoding.
    """

    processors: LogitsProcessorList
    seed: int | None

    @torch.no_grad()
    def first(self, logits: torch.Tensor, ids: Sequence[int]) -> int:
        """Draw after `ids` from the logits `[vocab]` of the last one."""
        return self.draws(logits[None], DraftTree(), ids)(ROOT)

    @torch.no_grad()
    def draws(self, logits: torch.Tensor, tree: DraftTree, ids: Sequence[int]) -> Draw:
        """Return the target's draws at the root and the nodes of a tree.

        On a CPU a node is drawn when it is asked for, since a walk visits few; elsewhere all are drawn at once and read from
        the device together.

        Args:
            logits: `[1 + nodes, vocab]` from the target's forward, the root's first.
            tree: the verified tree.
            ids: the row's committed ids, the root last.
        """
        if self.seed is None and not self.processors:
            return _table(logits.float().argmax(-1))
        committed = torch.tensor([[*ids]], device=logits.device)
        depths = [0, *tree.depths()]

        @torch.no_grad()
        def draw(node: int) -> torch.Tensor:
            path = [tree.tokens[step] for step in tree.path(node)]
            prefix: Any = torch.cat([committed, torch.tensor([path], dtype=torch.long, device=logits.device)], 1)
            row: Any = logits[node + 1 : node + 2].to(torch.float32, copy=True)
            scores = self.processors(prefix, row)[0]
            if self.seed is None:
                return scores.argmax()
            return gumbel_max(scores, self.seed, len(ids) + depths[node + 1])

        if logits.is_cpu:
            return lambda node: int(draw(node))
        return _table(torch.stack([draw(node) for node in range(ROOT, len(tree))]))


def _table(drawn: torch.Tensor) -> Draw:
    """Read all draws from the device at once."""
    tokens: list[int] = drawn.tolist()
    return lambda node: tokens[node + 1]
