"""The rule `rejection`: modified rejection sampling, recursive over siblings."""

from outrider.draft.tree import ROOT, DraftTree
from outrider.verify.decisions import Decisions, Stream
from outrider.verify.laws import Laws, residual
from outrider.verify.match import Verdict


def rejection(tree: DraftTree, laws: Laws, decisions: Decisions) -> Verdict:
    """Accept a child x with min(1, r(x) / q(x)), else turn to its next sibling with what the law r still owes.

    At a node r is the target's law p; after a rejected child it is norm(max(0, r - q)). When no child is accepted, r gives the
    bonus token. A chain is the method of Leviathan et al. 2022 (arXiv:2211.17192, section 2.3) and Chen et al. 2023
    (arXiv:2302.01318, algorithm 2); siblings are taken one after another as by Miao et al. 2023 (SpecInfer, arXiv:2305.09781,
    algorithm 2) and, without replacement, Jeon et al. 2024 (arXiv:2402.14160).
    """
    path: list[int] = []
    node = ROOT
    while True:
        owed, stream = laws.target(node), Stream.BONUS
        for child in tree.children(node):
            proposal, token = laws.proposal(child), tree.tokens[child]
            if decisions.accept(proposal.ratio(owed, token), child):
                path.append(child)
                break
            owed, stream = residual(owed, proposal).law, Stream.RESIDUAL
        else:
            return Verdict(tuple(path), decisions.choose(owed, stream))
        node = child
