"""The best tree of a number of nodes: Sequoia's recurrence (Chen et al. 2024, arXiv:2402.12374, section 3.1).

A node holds with its parent's chance times that of its rank at its depth, whatever holds elsewhere. Children are taken in the
order of their ranks, as drafters give them, so that chances need not fall with the rank. Sequoia's chances go by the rank
alone; here each depth has its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.draft.choices import Choices, Ranks

Chances = Sequence[Sequence[float]]
"""For every depth and rank the chance that this child is the text's next token, given that its parent holds."""


@dataclass(frozen=True, slots=True)
class Trees:
    """The best trees of every number of nodes up to a bound.

    Args:
        values: entry m is the expected number of accepted nodes of the best tree of at most m nodes.
        taken: for every depth and rank and number of nodes that are left, how many go to that child and below; 0 ends.
    """

    values: tuple[float, ...]
    taken: tuple[tuple[NDArray[np.int64], ...], ...]

    def tree(self, nodes: int) -> Choices:
        """Return the best tree of at most so many nodes; those that never hold are left out."""
        return Choices.of(self._below((), nodes))

    def _below(self, path: Ranks, nodes: int) -> list[Ranks]:
        found: list[Ranks] = []
        for rank, taken in enumerate(self.taken[len(path)] if len(path) < len(self.taken) else ()):
            share = int(taken[nodes])
            if not share:
                break
            found += [(*path, rank), *self._below((*path, rank), share - 1)]
            nodes -= share
        return found


def best_trees(chances: Chances, *, depth: int, nodes: int, branching: int | None = None) -> Trees:
    """Work out the best trees.

    Args:
        chances: of every depth and rank.
        depth: longest path.
        nodes: most nodes.
        branching: most children of a node; None for as many as there are chances.
    """
    below = np.zeros(nodes + 1)
    levels: list[tuple[NDArray[np.int64], ...]] = []
    for ranks in reversed(chances[:depth]):
        rest, taken = np.zeros(nodes + 1), list[NDArray[np.int64]]()
        for chance in reversed(ranks[:branching]):
            rest, share = _with_child(chance * (1.0 + below), rest)
            taken.append(share)
        below = rest
        levels.append(tuple(reversed(taken)))
    return Trees(tuple(below.tolist()), tuple(reversed(levels)))


def _with_child(own: NDArray[np.float64], rest: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return, for every number of nodes, the best of a child with any of them and later siblings with the others.

    Args:
        own: what the child brings with m nodes below it.
        rest: what later siblings bring with m nodes.
    """
    best, share = np.zeros(len(own)), np.zeros(len(own), dtype=np.int64)
    for mine in range(1, len(own)):
        value = np.full(len(own), -1.0)
        value[mine:] = own[mine - 1] + rest[: len(own) - mine]
        better = value > best + 1e-12
        best[better], share[better] = value[better], mine
    return best, share
