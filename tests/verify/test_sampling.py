from typing import Any

import pytest
import torch
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

import outrider
from outrider import DraftTree
from outrider.verify.decisions import Keyed
from outrider.verify.noise import gumbel_max
from outrider.verify.processors import Processors
from outrider.verify.sampling import Sampler

TREE = DraftTree((3, 4, 5), (-1, 0, -1))


def _logits() -> torch.Tensor:
    return torch.randn(4, 20, generator=torch.Generator().manual_seed(0))


def _verified(processors: Any, seed: int | None, logits: torch.Tensor, tree: DraftTree) -> tuple[int, ...]:
    """The tokens of a step after the ids 1, 2."""
    sampler = Sampler.of(LogitsProcessorList(processors), None if seed is None else Keyed(seed))
    verdict = sampler.verify(sampler.scores(logits, tree, [1, 2]), 2)
    return (*[tree.tokens[node] for node in verdict.path], verdict.bonus)


def test_greedy_draws_are_the_argmax_with_ties_to_the_lowest_id() -> None:
    logits = _logits()
    logits[0, 3] = 9.0
    logits[1] = 0.0
    assert _verified([], None, logits, TREE) == (3, 0)


def test_every_node_draws_with_the_noise_of_its_own_position() -> None:
    logits = _logits()
    root = int(gumbel_max(logits[0], 9, 2))
    after = int(gumbel_max(logits[1], 9, 3))
    deeper = int(gumbel_max(logits[2], 9, 4))
    assert _verified([], 9, logits, DraftTree.chain([root, after])) == (root, after, deeper)
    assert _verified([], 9, logits, DraftTree((root + 1, root), (-1, -1))) == (root, int(gumbel_max(logits[2], 9, 3)))


def test_processors_see_the_path_of_the_node_and_leave_the_logits_alone() -> None:
    seen: list[list[int]] = []

    def spy(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        seen.append(ids[0].tolist())
        scores.fill_(0.0)
        scores[0, 3 + len(seen) - 1] = 1.0
        return scores

    logits = _logits()
    before = logits.clone()
    assert _verified([spy], None, logits, TREE) == (3, 4, 5)
    assert seen == [[1, 2], [1, 2, 3], [1, 2, 3, 4]]
    assert torch.equal(logits, before)


def test_warpers_shape_the_draw() -> None:
    logits = _logits()
    best = set(logits[0].topk(2).indices.tolist())
    drawn = {
        _verified([TemperatureLogitsWarper(0.5), TopKLogitsWarper(2)], seed, logits, DraftTree())[0]
        for seed in range(40)
    }
    assert drawn == best


def test_context_free_processors_serve_all_nodes_in_one_call() -> None:
    processors = LogitsProcessorList([TemperatureLogitsWarper(0.7), TopKLogitsWarper(5), TopPLogitsWarper(0.8)])
    sampler = Sampler.of(processors, Keyed(1))
    together = sampler.scores(_logits(), TREE, [1, 2]).all()
    apart = sampler.scores(_logits(), TREE, [1, 2])
    assert sampler.processors.context_free
    assert torch.equal(together, torch.stack([apart(node) for node in range(-1, 3)]))


def test_top_p_keeps_what_transformers_keeps() -> None:
    """Over flat, peaked and filtered rows, and vocabularies larger than the head that is looked at first."""
    generator = torch.Generator().manual_seed(3)
    for vocab in (20, 700, 5000):
        for spread in (0.1, 1.0, 4.0):
            scores = spread * torch.randn(6, vocab, generator=generator)
            scores[3:, ::3] = -torch.inf
            for top_p in (0.05, 0.5, 0.9, 0.99):
                warper = TopPLogitsWarper(top_p)
                expected = warper(None, scores.clone())
                found = Processors.of(LogitsProcessorList([warper]))(torch.tensor([[]]), scores.clone())
                differs = (torch.isinf(found) != torch.isinf(expected)).sum(-1)
                assert int(differs.max()) <= 1  # rounding at the border of the nucleus
                assert int(differs.sum()) <= 1
                both = torch.isfinite(found) & torch.isfinite(expected)
                assert torch.equal(found[both], scores[both])


@pytest.mark.parametrize("rule", ["match", "rejection", "block"])
@pytest.mark.parametrize("seed", [None, 4])
@pytest.mark.parametrize("fault", [float("nan"), -torch.inf])
def test_scores_without_a_token_are_an_error_of_their_own(rule: str, seed: int | None, fault: float) -> None:
    """NaN logits, and processors that forbid everything: never a token of no probability."""
    logits = _logits()
    logits[0] = fault
    sampler = Sampler.of(
        LogitsProcessorList([TemperatureLogitsWarper(0.7)]), None if seed is None else Keyed(seed), rule
    )
    with pytest.raises(outrider.GenerationError, match="no token to draw"):
        sampler.verify(sampler.scores(logits, TREE, [1, 2]), 2)


def test_scores_without_a_token_do_not_matter_where_nobody_goes() -> None:
    logits = _logits()
    logits[0, 9] = 50.0
    logits[1:] = float("nan")
    assert _verified([], None, logits, TREE) == (9,)
    assert _verified([], 3, logits, TREE) == (9,)
