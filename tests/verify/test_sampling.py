from typing import Any

import torch
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper

from outrider import DraftTree
from outrider.verify.noise import gumbel_max
from outrider.verify.sampling import Sampler

TREE = DraftTree((3, 4, 5), (-1, 0, -1))


def _logits() -> torch.Tensor:
    return torch.randn(4, 20, generator=torch.Generator().manual_seed(0))


def test_greedy_draws_are_the_argmax_with_ties_to_the_lowest_id() -> None:
    logits = _logits()
    logits[1] = 0.0
    draw = Sampler(LogitsProcessorList(), None).draws(logits, TREE, [1, 2])
    assert [draw(node) for node in range(-1, 3)] == [int(row.argmax()) for row in logits[:1]] + [0] + [
        int(row.argmax()) for row in logits[2:]
    ]


def test_every_node_draws_with_the_noise_of_its_own_position() -> None:
    logits = _logits()
    draw = Sampler(LogitsProcessorList(), 9).draws(logits, TREE, [1, 2])
    for node, position in ((-1, 2), (0, 3), (1, 4), (2, 3)):
        assert draw(node) == int(gumbel_max(logits[node + 1], 9, position))


def test_processors_see_the_path_of_the_node_and_leave_the_logits_alone() -> None:
    seen: list[list[int]] = []

    def spy(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        seen.append(ids[0].tolist())
        return scores.fill_(0.0)

    logits = _logits()
    before = logits.clone()
    processors: Any = LogitsProcessorList([spy])
    draw = Sampler(processors, None).draws(logits, TREE, [1, 2])
    for node in range(-1, 3):
        assert draw(node) == 0
    assert seen == [[1, 2], [1, 2, 3], [1, 2, 3, 4], [1, 2, 5]]
    assert torch.equal(logits, before)


def test_warpers_shape_the_draw() -> None:
    processors = LogitsProcessorList([TemperatureLogitsWarper(0.5), TopKLogitsWarper(2)])
    logits = _logits()
    best = set(logits[0].topk(2).indices.tolist())
    drawn = {Sampler(processors, seed).draws(logits, TREE, [1])(-1) for seed in range(40)}
    assert drawn == best
