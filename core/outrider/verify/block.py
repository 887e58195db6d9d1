"""The rule `block`: block verification on chains, traversal verification on trees."""

from outrider.draft.tree import ROOT, DraftTree
from outrider.verify.decisions import Decisions, Stream
from outrider.verify.laws import Laws, residual
from outrider.verify.match import Verdict


def block(tree: DraftTree, laws: Laws, decisions: Decisions) -> Verdict:
    """Accept as much of a path as the path's joint probability allows, from the leaves up.

    A node is reached with weight w, the chance that it is emitted if it was drafted; its children are tried first, each
    with weight min(w p(x) / q(x), 1), and what they leave over comes back as the node's own weight and law. On a chain this
    is Sun et al. 2024 (arXiv:2403.10444, algorithm 2), on a tree Weng et al. 2025 (arXiv:2505.12398). It accepts at least as
    much as `rejection`, and as much for deterministic drafts.
    """
    verdict = _visit(tree, laws, decisions, ROOT, 1.0)
    assert verdict is not None  # noqa: S101  the root's weight is 1, and weight 1 is never declined
    return verdict


def _visit(tree: DraftTree, laws: Laws, decisions: Decisions, node: int, weight: float) -> Verdict | None:
    owed, stream = laws.target(node), Stream.BONUS
    for child in tree.children(node):
        proposal, token = laws.proposal(child), tree.tokens[child]
        found = _visit(tree, laws, decisions, child, min(proposal.ratio(owed, token, weight), 1.0))
        if found is not None:
            return found
        left = residual(owed, proposal, weight)
        kept = left.mass + 1.0 - weight
        weight = 1.0 if node == ROOT else left.mass / kept if kept > 0 else 1.0
        owed, stream = left.law, Stream.RESIDUAL
    if node == ROOT or decisions.accept(weight, node):
        return Verdict(tree.path(node), decisions.choose(owed, stream))
    return None
