"""Against the rules themselves: every draft and every decision enumerated, on laws of a few tokens."""

from itertools import product
from typing import Any

import pytest
import torch
from transformers import LogitsProcessorList, RepetitionPenaltyLogitsProcessor

from compare.example import measured
from outrider import DraftLaws, DraftTree
from outrider.compare.counterfactual import RULES, expected_tokens
from outrider.verify.decisions import Keyed
from outrider.verify.sampling import NodeScores, Sampler
from support import tiny_model, tiny_target

VOCAB, LENGTH = 3, 2


def laws(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """p after every prefix of two tokens, and q likewise; q of the second token depends on the first."""
    random = torch.Generator().manual_seed(seed)
    p = torch.rand((1 + VOCAB + VOCAB**2, VOCAB), generator=random, dtype=torch.float64)
    q = torch.rand((1 + VOCAB, VOCAB), generator=random, dtype=torch.float64)
    return p / p.sum(1, keepdim=True), q / q.sum(1, keepdim=True)


def chain(p: torch.Tensor, q: torch.Tensor, first: int, second: int) -> tuple[DraftTree, torch.Tensor]:
    tree = DraftTree((first, second), (-1, 0), (0, 1), DraftLaws(torch.stack([q[0], q[1 + first]])))
    return tree, torch.stack([p[0], p[1 + first], p[1 + VOCAB + VOCAB * first + second]]).log()


def sampler(rule: str, seed: int, **processors: Any) -> Sampler:
    return Sampler.of(LogitsProcessorList(**processors), Keyed(seed), rule)


@pytest.mark.parametrize("rule", ["match", "rejection", "block"])
def test_expectations_are_those_of_the_rules(rule: str) -> None:
    """One chain, many seeds: the mean of what the rule emits is what is expected, within four standard errors."""
    p, q = laws(0)
    for first, second in ((0, 1), (2, 2), (1, 0)):
        tree, logits = chain(p, q, first, second)
        wanted = expected_tokens(tree, NodeScores(sampler(rule, 0).processors, logits, tree, [0]))
        assert wanted is not None
        counts = torch.tensor(
            [
                1.0 + len(one.verify(one.scores(logits, tree, [0]), 1).path)
                for one in (sampler(rule, seed) for seed in range(3000))
            ]
        )
        assert abs(float(counts.mean()) - wanted[rule]) < 4 * float(counts.std()) / 3000**0.5 + 1e-9


def mean(seed: int, rule: str) -> float:
    p, q = laws(seed)
    found = 0.0
    for first, second in product(range(VOCAB), repeat=LENGTH):
        tree, logits = chain(p, q, first, second)
        told = expected_tokens(tree, NodeScores(sampler("match", 0).processors, logits, tree, [0]))
        assert told is not None
        found += float(q[0, first] * q[1 + first, second]) * told[rule]
    return found


@pytest.mark.parametrize("seed", range(5))
def test_over_all_drafts_the_means_are_the_known_ones(seed: int) -> None:
    """Rejection accepts the first token where p and q overlap; block accepts at least as much, match at most."""
    p, q = laws(seed)
    first = float(torch.minimum(p[0], q[0]).sum())
    second = sum(float(torch.minimum(p[0, x], q[0, x]) * torch.minimum(p[1 + x], q[1 + x]).sum()) for x in range(VOCAB))
    assert mean(seed, "rejection") == pytest.approx(1 + first + second)
    assert mean(seed, "block") >= mean(seed, "rejection") - 1e-12
    assert mean(seed, "match") <= mean(seed, "coupled") <= mean(seed, "rejection")
    agrees = sum(float(p[0, x] * q[0, x]) for x in range(VOCAB))
    deeper = sum(float(p[0, x] * q[0, x] * (p[1 + x] * q[1 + x]).sum()) for x in range(VOCAB))
    assert mean(seed, "match") == pytest.approx(1 + agrees + deeper)
    assert mean(seed, "top-1, one level") == pytest.approx(1 + float(p[0, q[0].argmax()]))
    assert mean(seed, "top-4, one level") == pytest.approx(2)


def test_coupled_is_what_shared_noise_gives() -> None:
    """Gumbel noise for both laws, many times."""
    p, q = laws(3)
    random = torch.Generator().manual_seed(1)
    noise = -(-torch.rand((2, 200_000, VOCAB), generator=random, dtype=torch.float64).log()).log()
    drawn = (q[0].log() + noise[0]).argmax(-1)
    first = drawn == (p[0].log() + noise[0]).argmax(-1)
    after = (q[1 + drawn].log() + noise[1]).argmax(-1) == (p[1 + drawn].log() + noise[1]).argmax(-1)
    tokens = 1 + first.double() + (first & after).double()
    assert abs(float(tokens.mean()) - mean(3, "coupled")) < 4 * float(tokens.std()) / 200_000**0.5


def test_what_cannot_be_told_is_not() -> None:
    p, q = laws(0)
    tree, logits = chain(p, q, 0, 1)
    plain = sampler("match", 0).processors
    fork = DraftTree((0, 1), (-1, -1), (0, 0), DraftLaws(q[:1]))
    chosen = DraftTree.chain([0, 1])
    for other in (fork, chosen):
        assert expected_tokens(other, NodeScores(plain, logits, other, [0])) is None
    penalty = Sampler.of(LogitsProcessorList([RepetitionPenaltyLogitsProcessor(1.2)]), Keyed(0)).processors
    assert expected_tokens(tree, NodeScores(penalty, logits, tree, [0])) is None
    assert expected_tokens(DraftTree(), NodeScores(plain, logits[:1], DraftTree(), [0])) == dict.fromkeys(RULES, 1.0)


def test_a_comparison_tells_it_of_drawn_chains() -> None:
    draft = {"name": "draft-model", "options": {"model": tiny_model(1), "draft_tokens": 3}}
    changed = {"generation": {"max_new_tokens": 30, "temperature": 1.0, "top_k": 0}, "sampled": True}
    found = measured(tiny_target(), [draft, "ngram"], changed, rules=["match", "rejection"])
    told = {one.row: one.counterfactual_length for one in found.figures}
    assert [name for name, one in told.items() if one] == [
        "draft-model[model=LlamaForCausalLM,draft_tokens=3] rejection"
    ]
    one = next(one for one in found.figures if one.counterfactual_length)
    length = one.mean_acceptance_length
    assert length is not None
    assert one.counterfactual_length["rejection"] == pytest.approx(length.value, rel=0.25)
    assert one.counterfactual_length["block"] >= one.counterfactual_length["rejection"] - 0.1
    assert one.counterfactual_length["match"] <= one.counterfactual_length["coupled"]
