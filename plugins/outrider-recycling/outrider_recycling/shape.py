"""The static tree: which ranks are verified at every depth."""

from functools import lru_cache

from outrider import Choices

ACCURACIES = (0.42, 0.13, 0.07, 0.04, 0.03, 0.02, 0.02, 0.01)
"""How often the target's token is the successor of this rank, at any depth."""
_LATER = 0.005


@lru_cache(maxsize=16)
def static_tree(depth: int, successors: int, nodes: int) -> Choices:
    """Return the tree of the most accepted tokens under typical accuracies.

    Args:
        depth: longest path.
        successors: candidates below a node.
        nodes: most nodes.
    """
    ranks = [*ACCURACIES, *[_LATER] * successors][:successors]
    return Choices.derived([ranks] * depth, nodes)
