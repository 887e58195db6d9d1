"""The target's scores at the nodes of a tree: logits, then the processors on each node's own path."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import torch
from transformers import LogitsProcessorList

from outrider.draft.tree import ROOT, DraftTree
from outrider.errors import GenerationError
from outrider.verify.decisions import Decisions
from outrider.verify.match import Verdict, match
from outrider.verify.processors import Processors
from outrider.verify.rules import RATIO_RULES


class NodeScores:
    """Processed scores of one row's root and nodes, worked out when they are asked for.

    Args:
        processors: applied to float32 logits with the ids that lead to a node, as plain decoding applies them.
        logits: `[1 + nodes, vocab]` from the target's forward, the root's first.
        tree: the verified tree.
        ids: the row's committed ids, the root last.
        keep: whether scores will be asked for again; they are large.
    """

    def __init__(
        self, processors: Processors, logits: torch.Tensor, tree: DraftTree, ids: Sequence[int], *, keep: bool = False
    ) -> None:
        self.logits = logits
        self.keep = keep
        self.tree = tree
        self._processors = processors
        self._committed = ids
        self._known: dict[int, torch.Tensor] = {}

    def __call__(self, node: int) -> torch.Tensor:
        """Return the scores `[vocab]` float32 after a node; they may not be changed."""
        found = self._known.get(node)
        if found is None:
            logits = self.logits[node + 1 : node + 2].to(torch.float32, copy=True)
            found = self._processors(self._prefix(node), logits)[0]
            if self.keep:
                self._known[node] = found
        return found

    @property
    def vocab_size(self) -> int:
        """Tokens that are scored."""
        return self.logits.shape[-1]

    @property
    def context_free(self) -> bool:
        """Whether no processor looks at the ids that lead to a node."""
        return self._processors.context_free

    def all(self) -> torch.Tensor:
        """Return the scores of the root and all nodes, `[1 + nodes, vocab]`, in one pass where no processor needs the path."""
        if self._processors.context_free:
            return self._processors(self._prefix(ROOT), self.logits.to(torch.float32, copy=True))
        return torch.stack([self(node) for node in range(ROOT, len(self.tree))])

    def read(self) -> None:
        """Bring all scores to the CPU, in one read from the device."""
        self._known = dict(enumerate(self.all().cpu(), ROOT))

    def position(self, node: int) -> int:
        """Return the index that the token after a node has in the row's ids."""
        return len(self._committed) + len(self.tree.path(node))

    def _prefix(self, node: int) -> torch.Tensor:
        path = [self.tree.tokens[step] for step in self.tree.path(node)]
        return torch.tensor(
            [[*self._committed, *path]] if self._processors.needs_ids else [[]], device=self.logits.device
        )


@dataclass(frozen=True, slots=True)
class Sampler:
    """How a row draws.

    Args:
        processors: those of plain decoding.
        decisions: where random decisions come from, or None for greedy decoding.
        rule: how accept decisions are drawn; greedy decoding draws none.
    """

    processors: Processors
    decisions: Decisions | None
    rule: str = "match"

    @classmethod
    def of(
        cls,
        processors: LogitsProcessorList,
        decisions: Decisions | None,
        rule: str = "match",
        padding: Sequence[int] = (),
    ) -> "Sampler":
        """Make a sampler from what `generate` prepared."""
        return cls(Processors.of(processors, padding), decisions, rule)

    def scores(self, logits: torch.Tensor, tree: DraftTree, ids: Sequence[int], *, keep: bool = False) -> NodeScores:
        """Return the scores at a tree's nodes; see `NodeScores`."""
        return NodeScores(self.processors, logits, tree, ids, keep=keep)

    def verify(self, scores: NodeScores, length: int) -> Verdict:
        """Decide what is kept of a tree.

        Args:
            scores: at the tree's nodes.
            length: the row's committed ids.
        """
        return verify_rows([(self, scores, length)])[0]

    def decide(self, scores: NodeScores, length: int, drawn: Sequence[int] | None) -> Verdict:
        """Decide what is kept of a tree, after `draws` was read from the device."""
        if self.decisions is None or self.rule == "match":
            if drawn is None:
                return match(scores.tree, lambda node: self._draw_here(scores, node))
            return match(scores.tree, lambda node: _token(drawn[node + 1]))
        if not scores.logits.is_cpu:
            scores.read()
        return RATIO_RULES[self.rule](scores.tree, scores, self.decisions.at(length))

    def draws(self, scores: NodeScores) -> torch.Tensor | None:
        """Return the target's own draws at the root and all nodes `[1 + nodes]`, still on the device.

        None where they are drawn one by one when they are asked for: on a CPU, where a walk visits few nodes, and under rules
        that don't draw so.
        """
        if self.decisions is None and self.processors.empty:
            logits = (
                scores.logits.float() if scores.logits.dtype is torch.float64 else scores.logits
            )  # as `generate` ranks
            return _checked(logits, logits.argmax(-1))
        if scores.logits.is_cpu or not (self.decisions is None or self.rule == "match"):
            return None
        every = scores.all()
        drawn = [self._draw(scores, node, every[node + 1]) for node in range(ROOT, len(scores.tree))]
        return _checked(every, torch.stack(drawn))

    def _draw_here(self, scores: NodeScores, node: int) -> int:
        row = scores(node)
        token = int(self._draw(scores, node, row))
        return _token(token if float(row[token]) > -torch.inf else _NO_TOKEN)

    def _draw(self, scores: NodeScores, node: int, row: torch.Tensor) -> torch.Tensor:
        return row.argmax() if self.decisions is None else self.decisions.target(row, scores.position(node))


_NO_TOKEN: Final = -1


def _checked(scores: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
    """Mark draws whose score is no number or -inf, which happens where no token is left; read with the draw itself."""
    return torch.where(scores.gather(-1, drawn[..., None])[..., 0] > -torch.inf, drawn, _NO_TOKEN)


def _token(drawn: int) -> int:
    if drawn == _NO_TOKEN:
        raise GenerationError(
            "there is no token to draw: the logits are no numbers, or the processors forbid every token"
        )
    return drawn


@torch.no_grad()
def verify_rows(rows: Sequence[tuple[Sampler, NodeScores, int]]) -> list[Verdict]:
    """Decide what is kept of every row's tree, with one read from the device for all.

    Args:
        rows: each row's sampler, scores and committed length.
    """
    drawn = [sampler.draws(scores) for sampler, scores, _ in rows]
    together = [one for one in drawn if one is not None]
    tokens = iter(torch.cat(together).tolist() if together else ())
    read = [None if one is None else list(islice(tokens, len(one))) for one in drawn]
    return [sampler.decide(scores, length, known) for (sampler, scores, length), known in zip(rows, read, strict=True)]
