"""Trees of a fixed shape: every node is the token of its rank below its parent, and only parents are read."""

import pytest
import torch

from levels import VOCAB, Reader, law, logits_after, view_of
from outrider import Choices, grow_choices

SHAPE = Choices.of([[0], [1], [2], [0, 0], [0, 1], [1, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 0, 0]])


def expected(row: int, seed: int | None, paths: tuple[tuple[int, ...], ...]) -> set[tuple[int, ...]]:
    view, found = view_of(row, seed=seed), set()
    for path in paths:
        tokens: tuple[int, ...] = ()
        for depth, rank in enumerate(path, 1):
            scores = logits_after(row, tokens).float().log_softmax(-1).double()
            noise = view.noise(depth, torch.arange(VOCAB))
            scores = scores if noise is None else scores + noise
            tokens = (*tokens, int(scores.topk(rank + 1).indices[-1]))
        found.add(tokens)
    return found


@pytest.mark.parametrize("seed", [None, 5])
def test_nodes_are_the_tokens_of_their_ranks(seed: int | None) -> None:
    views = [view_of(0, seed=seed), view_of(1, depth=2, seed=seed), view_of(2, nodes=4, seed=seed)]
    reader = Reader(3)
    logits = torch.stack([logits_after(row, ()) for row in range(3)])
    trees = grow_choices(views, SHAPE, law, logits, reader.guess).unpack()
    kept = [SHAPE.paths, SHAPE.within(2, 64).paths, SHAPE.within(9, 4).paths]
    for row, (tree, paths) in enumerate(zip(trees, kept, strict=True)):
        found = {tuple(tree.tokens[one] for one in tree.path(node)) for node in range(len(tree))}
        assert found == expected(row, seed, paths)
        assert tree.coupled == (seed is not None)
    assert reader.fed == len({path[:-1] for path in SHAPE.paths} - {()})
