"""Sequoia's recurrence against every tree there is."""

import random
from collections.abc import Iterator
from itertools import product

import pytest

from outrider.draft.choices import Choices, Ranks
from outrider.tune.shape import best_trees


def trees(depth: int, branching: int, nodes: int) -> Iterator[tuple[Ranks, ...]]:
    """Every set of children by rank, below the root and below them, of at most so many nodes."""
    if not depth:
        yield ()
        return
    smaller = list(trees(depth - 1, branching, nodes - 1)) if nodes else [()]
    for count in range(branching + 1 if nodes else 1):
        for below in product(smaller, repeat=count):
            if count + sum(map(len, below)) <= nodes:
                yield tuple(
                    path for rank, own in enumerate(below) for path in ((rank,), *((rank, *rest) for rest in own))
                )


CASES = [(depth, branching, nodes) for depth in (1, 2, 3) for branching in (1, 2, 3) for nodes in (0, 1, 3, 5)]


@pytest.mark.parametrize(("depth", "branching", "nodes"), CASES)
def test_no_tree_is_better(depth: int, branching: int, nodes: int) -> None:
    random.seed(depth * 100 + branching * 10 + nodes)
    for _ in range(5):
        # Not falling with the rank: a later child may hold more often, and can't be had without those before it.
        chances = [[random.random() / branching for _ in range(branching)] for _ in range(depth)]
        best = max(Choices.of(paths).expected(chances) for paths in trees(depth, branching, nodes))
        found = best_trees(chances, depth=depth, nodes=nodes)
        assert found.values[nodes] == pytest.approx(best, abs=1e-12)
        assert found.tree(nodes).expected(chances) == pytest.approx(best, abs=1e-12)
        assert len(found.tree(nodes)) <= nodes


def test_bounds_are_kept() -> None:
    chances = [[0.5, 0.3, 0.2]] * 5
    for depth, branching in ((2, 3), (5, 1), (3, 2)):
        tree = best_trees(chances, depth=depth, nodes=20, branching=branching).tree(20)
        assert tree.depth <= depth
        assert tree.ranks <= branching
    assert best_trees(chances, depth=5, nodes=3, branching=1).tree(3).paths == ((0,), (0, 0), (0, 0, 0))


def test_falling_chances_give_the_best_first_tree() -> None:
    chances = [[0.6, 0.2, 0.1], [0.5, 0.2, 0.1], [0.4, 0.2, 0.1]]
    for nodes in (1, 4, 9, 16):
        first = Choices.derived(chances, nodes).expected(chances)
        assert best_trees(chances, depth=3, nodes=nodes).values[nodes] == pytest.approx(first)


def test_what_never_holds_is_left_out() -> None:
    found = best_trees([[0.5, 0.0], [0.0, 0.0]], depth=2, nodes=8)
    assert found.tree(8).paths == ((0,),)
    assert best_trees([], depth=4, nodes=8).values[8] == 0.0
