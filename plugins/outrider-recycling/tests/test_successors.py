"""The matrix: what it takes in, and which of equal tokens counts."""

import pytest
import torch

from outrider_recycling.shape import static_tree
from outrider_recycling.successors import UNKNOWN, Successors


def learned(tokens: list[int], logits: torch.Tensor, worth: list[int], count: int = 3) -> Successors:
    known = Successors(logits.shape[1], count, torch.device("cpu"))
    known.learn(torch.tensor(tokens), logits, torch.tensor(worth))
    return known


def test_the_likeliest_successors_in_order() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0, 2.0, -1.0]])
    ids, values = learned([4], logits, [0]).of(torch.tensor([4, 0]))
    assert ids.tolist() == [[1, 3, 2], [UNKNOWN] * 3]
    assert values[0].tolist() == [3.0, 2.0, 1.0]
    assert torch.isinf(values[1]).all()


def test_of_equal_tokens_the_worthiest_counts_and_the_others_leave_nothing() -> None:
    logits = torch.eye(6)[[1, 2, 3, 4, 5]]
    for worth, kept in (
        ([0, 1, 2, 3, 4], {0: 4, 1: 5}),
        ([9, 1, 2, 3, 4], {0: 1, 1: 5}),
        ([0, 8, 7, 6, 5], {0: 3, 1: 2}),
    ):
        known = learned([0, 1, 0, 0, 1], logits, worth, 1)
        assert {token: int(known.of(torch.tensor([token]))[0]) for token in (0, 1)} == kept
        assert known.of(torch.tensor([2, 3, 4, 5]))[0].eq(UNKNOWN).all()


def test_what_is_scored_again_is_written_over() -> None:
    known = learned([0], torch.tensor([[0.0, 1.0, 2.0]]), [0], 1)
    known.learn(torch.tensor([0]), torch.tensor([[0.0, 2.0, 1.0]]), torch.tensor([0]))
    assert int(known.of(torch.tensor([0]))[0]) == 1


@pytest.mark.parametrize(("depth", "successors", "nodes"), [(6, 8, 24), (1, 4, 64), (4, 1, 24), (6, 30, 64)])
def test_the_tree_has_the_likeliest_paths(depth: int, successors: int, nodes: int) -> None:
    tree = static_tree(depth, successors, nodes)
    assert tree.depth <= depth
    assert tree.ranks <= successors
    assert len(tree) <= nodes
    assert tree.paths[0] == (0,)
