"""Trees grown by score, against the same algorithm written out over dictionaries of paths."""

import math
from functools import partial
from itertools import combinations

import pytest
import torch

from levels import VOCAB, Reader, expanded, expected_paths, law, logits_after, paths_of, view_of
from outrider import DraftView, Expansion, Shape, Sharpness


@pytest.mark.parametrize("seed", [None, 5])
@pytest.mark.parametrize(
    "shape", [Shape(4), Shape(5, 3, 1, 15), Shape(4, 3, 3, 12), Shape(3, 4, 4, 60), Shape(6, 2, 5, 9)]
)
def test_trees_are_those_of_the_algorithm(shape: Shape, seed: int | None) -> None:
    views = [view_of(0, seed=seed), view_of(1, depth=2, seed=seed), view_of(2, nodes=5, seed=seed)]
    reader = Reader(3)
    expansion = Expansion(views, shape, law, Sharpness())
    batch = expansion.grow(torch.stack([logits_after(row, ()) for row in range(3)]), reader.guess)
    for row, (view, tree) in enumerate(zip(views, batch.unpack(), strict=True)):
        assert paths_of(tree) == expected_paths(view, shape, partial(logits_after, row))
        assert tree.coupled == (seed is not None)
    assert (expansion.first is not None) == (seed is not None)
    fronts = [1]
    while len(fronts) < shape.depth:
        fronts.append(min(shape.beams, fronts[-1] * shape.branching))
    assert reader.fed == sum(fronts[1:])


@pytest.mark.parametrize("seed", [None, 5])
@pytest.mark.parametrize("nodes", [2, 4, 6])
def test_no_other_tree_of_what_was_expanded_is_worth_more(nodes: int, seed: int | None) -> None:
    """Against all trees of that many nodes."""
    shape, view = Shape(3, 2, 2, nodes), view_of(0, seed=seed)
    scores = expanded(view, shape, partial(logits_after, 0))
    closed = [some for some in combinations(scores, nodes) if all(len(path) == 1 or path[:-1] in some for path in some)]
    (tree,) = Expansion([view], shape, law, Sharpness()).grow(logits_after(0, ())[None], Reader(1).guess).unpack()
    best = max(sum(scores[path] for path in some) for some in closed)
    assert sum(scores[path] for path in paths_of(tree)) == pytest.approx(best, abs=1e-6)
    assert len(tree) == nodes


def test_of_equal_scores_the_shallower_stay() -> None:
    """A child that is certain scores as its parent does."""

    def certain(view: DraftView, logits: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(logits.argmax(-1), VOCAB).double()

    shape = Shape(6, 3, 3, 4)
    (tree,) = (
        Expansion([view_of(0)], shape, certain, Sharpness()).grow(logits_after(0, ())[None], Reader(1).guess).unpack()
    )
    assert tree.parents == (-1, 0, 1, 2)


def test_an_id_map_leads_to_the_target_s_ids() -> None:
    ids = torch.arange(VOCAB) * 3 + 2
    seen = []

    class Listening(Reader):
        def guess(self, tokens: torch.Tensor, parents: torch.Tensor | None) -> torch.Tensor:
            seen.extend(tokens.flatten().tolist())
            return super().guess(tokens, parents)

    batch = Expansion([view_of(0)], Shape(3, 2, 2, 8), law, Sharpness(), ids).grow(
        logits_after(0, ())[None], Listening(1).guess
    )
    (tree,) = batch.unpack()
    assert {(token - 2) // 3 for token in tree.tokens} <= set(range(VOCAB))
    assert all((token - 2) % 3 == 0 for token in tree.tokens)
    assert max(seen) < VOCAB


def test_paths_end_where_the_draft_is_not_sure() -> None:
    sizes = []
    for confidence in (0.0, 0.05, 0.3, 0.999):
        shape = Shape(6, 2, 2, 20, confidence)
        batch = Expansion([view_of(0)], shape, law, Sharpness()).grow(logits_after(0, ())[None], Reader(1).guess)
        sizes.append(len(batch.unpack()[0]))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[2]
    assert sizes[3] == 0


def test_filtered_tokens_are_no_nodes() -> None:
    def narrow(view: DraftView, logits: torch.Tensor) -> torch.Tensor:
        best = logits.topk(2).values[..., -1:]
        return law(view, logits.masked_fill(logits < best, -torch.inf))

    batch = Expansion([view_of(0)], Shape(2, 4, 4, 40), narrow, Sharpness()).grow(
        logits_after(0, ())[None], Reader(1).guess
    )
    assert len(batch.unpack()[0]) == 2 + 2 * 2


@pytest.mark.parametrize("factor", [0.4, 1.0, 2.0])
def test_sharpness_is_learned_from_draws(factor: float) -> None:
    """Draws from softmax(factor * scores) lead to the factor."""
    generator = torch.Generator().manual_seed(1)
    sharpness = Sharpness()
    for _ in range(1500):
        scores = 2 * torch.randn(20, generator=generator, dtype=torch.float64)
        sharpness.learn(scores, int((factor * scores).softmax(-1).multinomial(1, generator=generator)))
    assert math.isclose(float(sharpness.factor(torch.zeros(1))), factor, rel_tol=0.3)


def test_a_filtered_draw_moves_the_sharpness_by_little() -> None:
    sharpness = Sharpness()
    sharpness.learn(torch.tensor([0.0, -torch.inf], dtype=torch.float64), 1)
    sharpness.learn(torch.tensor([0.0, 1.0], dtype=torch.float64), 7)
    sharpness.learn(torch.tensor([0.0, 1.0], dtype=torch.float64), 1, torch.tensor([3, 5]))
    assert 0.8 < float(sharpness.factor(torch.zeros(1))) <= 1.0
