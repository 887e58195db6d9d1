"""The laws that the rules compare: the target's at every node, and the proposal's at every drafted child."""

from dataclasses import dataclass
from typing import Protocol

import torch

from outrider.draft.laws import POINT
from outrider.draft.tree import DraftTree
from outrider.errors import GenerationError


class Scores(Protocol):
    """The target's processed scores at the nodes of a tree, on the CPU."""

    @property
    def vocab_size(self) -> int:
        """Tokens that are scored."""
        ...

    def __call__(self, node: int) -> torch.Tensor:
        """Return the scores `[vocab]` after a node."""
        ...


@dataclass(frozen=True, slots=True)
class Proposal:
    """The law that a child was drawn from, given its earlier siblings.

    Args:
        token: of a deterministic child, whose law is the point mass on it; -1 for a drawn one.
        law: `[vocab]` float64 of a drawn child, else None.
    """

    token: int
    law: torch.Tensor | None = None

    def ratio(self, owed: torch.Tensor, token: int, weight: float = 1.0) -> float:
        """Return weight * owed(token) / q(token); 0 where either is 0 or no number."""
        chance = 1.0 if self.law is None else float(self.law[token])
        ratio = weight * float(owed[token]) / chance if chance > 0 else 0.0
        return ratio if ratio > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Residual:
    """What a law still owes after a rejected child.

    Args:
        law: `[vocab]` float64, norm(max(0, weight * owed - q)).
        mass: its sum before it was normalised.
    """

    law: torch.Tensor
    mass: float


def residual(owed: torch.Tensor, proposal: Proposal, weight: float = 1.0) -> Residual:
    """Take a rejected child's law from what is owed.

    A mass of zero or no number can only be rounding, since a child that takes all is never rejected; then the law stays.
    """
    left = owed * weight
    if proposal.law is None:
        left[proposal.token] = 0.0
    else:
        left = (left - proposal.law).clamp(min=0.0)
    mass = float(left.sum())
    return Residual(left / mass, mass) if 0.0 < mass < float("inf") else Residual(owed, 0.0)


class Laws:
    """The laws of one row's tree, worked out when they are asked for.

    Args:
        tree: the verified tree.
        scores: the target's.
    """

    def __init__(self, tree: DraftTree, scores: Scores) -> None:
        self._tree = tree
        self._scores = scores

    def target(self, node: int) -> torch.Tensor:
        """Return the target's law after a node, float64.

        Raises:
            GenerationError: the scores are no numbers, or forbid every token.
        """
        law = self._scores(node).double().softmax(-1)
        if not bool(law.sum() > 0):
            raise GenerationError(
                "there is no token to draw: the logits are no numbers, or the processors forbid every token"
            )
        return law

    def proposal(self, child: int) -> Proposal:
        """Return the law of a child.

        Drawn without replacement, it is q without the earlier siblings' tokens, renormalised, so that a drafter can't get this
        wrong.
        """
        tree = self._tree
        if tree.laws is None or tree.q_rows[child] == POINT:
            return Proposal(tree.tokens[child])
        q = tree.laws.row(tree.q_rows[child], self._scores.vocab_size)
        if not tree.laws.replacement:
            for sibling in tree.children(tree.parents[child]):
                if sibling == child:
                    break
                q[tree.tokens[sibling]] = 0.0
            q = q / q.sum()
        return Proposal(-1, q)
