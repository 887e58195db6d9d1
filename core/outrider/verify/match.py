"""The rule `match`: follow the child that equals the target's own draw."""

from collections.abc import Callable
from dataclasses import dataclass

from outrider.draft.tree import ROOT, DraftTree

Draw = Callable[[int], int]
"""The target's token after a node; `ROOT` for the root."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a rule decided for a row.

    Args:
        path: the accepted nodes, from the root's child down.
        bonus: the target's own token, which ends every step.
    """

    path: tuple[int, ...]
    bonus: int

    def tokens(self, tree: DraftTree) -> tuple[int, ...]:
        """Return the tokens that are kept of a tree, and the target's own."""
        return (*[tree.tokens[node] for node in self.path], self.bonus)


def match(tree: DraftTree, draw: Draw) -> Verdict:
    """Walk a tree along the target's own draws.

    Every token that is emitted is a draw of the target at its own prefix, so the text cannot depend on the draft, whatever
    the drafter proposes. For deterministic drafts no lossless rule accepts more (a node v is accepted only where the
    output begins with v, and here it is accepted whenever it does).
    """
    path: list[int] = []
    node = ROOT
    while True:
        token = draw(node)
        child = tree.child(node, token)
        if child is None:
            return Verdict(tuple(path), token)
        path.append(child)
        node = child
