"""The same decisions on every device: what runs on a GPU must be what runs on a CPU."""

from typing import Any

import pytest
import torch
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

import outrider
from outrider import DraftTree
from outrider.verify.decisions import Keyed, Stream
from outrider.verify.noise import gumbel, gumbel_max
from outrider.verify.sampling import Sampler
from support import SCRIPTS, Scripted, prompt_of, tiny_model

DEVICES = [
    pytest.param("cpu"),
    pytest.param("cuda", marks=[pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]),
]
TREE = DraftTree((3, 4, 5, 3), (-1, 0, -1, 2))


def _logits() -> torch.Tensor:
    return 2 * torch.randn(5, 300, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("device", DEVICES)
def test_noise_has_the_same_bits(device: str) -> None:
    ids = torch.arange(500)
    assert torch.allclose(gumbel(3, (7,), ids), gumbel(3, (7,), ids.to(device)).cpu(), rtol=1e-13, atol=0)
    scores = _logits()[0]
    scores[::2] = -torch.inf
    for position in range(50):
        assert int(gumbel_max(scores, 3, position)) == int(gumbel_max(scores.to(device), 3, position))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rule", ["match", "rejection", "block"])
def test_verdicts_are_the_same(device: str, rule: str) -> None:
    processors: Any = LogitsProcessorList([TemperatureLogitsWarper(0.9), TopKLogitsWarper(40), TopPLogitsWarper(0.9)])
    for seed in range(40):
        here = Sampler.of(processors, Keyed(seed), rule)
        logits = _logits()
        logits[:, 3:6] += 6.0
        expected = here.verify(here.scores(logits, TREE, [1, 2]), 2)
        assert here.verify(here.scores(logits.to(device), TREE, [1, 2]), 2) == expected


@pytest.mark.parametrize("device", DEVICES)
def test_decisions_are_the_same(device: str) -> None:
    law = _logits()[0].double().softmax(-1)
    for seed in range(40):
        assert Keyed(seed).choose(law, Stream.BONUS) == Keyed(seed).choose(law.to(device), Stream.BONUS)
        assert Keyed(seed).choose_several(law, 4, 1) == Keyed(seed).choose_several(law.to(device), 4, 1)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("options", [{}, {"temperature": 1.0, "top_p": 0.9, "seed": 2}], ids=["greedy", "sampled"])
def test_the_text_is_that_of_plain_decoding(device: str, options: dict[str, Any]) -> None:
    target = outrider.load(tiny_model(1, 0.1).to(device))
    prompt = prompt_of(9, 1)
    plain = outrider.generate(target, prompt, "none", max_new_tokens=24, **options).token_ids
    for name in ("right tree", "partly right tree", "wrong chain"):
        drafter = Scripted(target, SCRIPTS[name]([*prompt, *plain]))
        found = outrider.generate(target, prompt, drafter, max_new_tokens=24, **options)
        assert found.token_ids == plain
    assert outrider.generate(target, prompt, "ngram", max_new_tokens=24, **options).token_ids == plain


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("options", [{}, {"temperature": 1.0, "top_p": 0.9}], ids=["greedy", "sampled"])
def test_rows_of_a_batch_and_the_door_are_plain_decoding(device: str, options: dict[str, Any]) -> None:
    target = outrider.load(tiny_model(1, 0.1).to(device))
    prompts = [prompt_of(length, length) for length in (9, 3, 14)]
    results = outrider.generate_batch(target, prompts, "ngram", max_new_tokens=24, seed=3, **options)
    for prompt, result in zip(prompts, results, strict=True):
        alone = outrider.generate(target, prompt, "none", max_new_tokens=24, seed=result.seed, **options)
        assert alone.token_ids == result.token_ids
    ids = torch.tensor([prompts[0]], device=device)
    door: dict[str, Any] = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 24, "do_sample": False}
    generate: Any = target.model.generate
    assert torch.equal(generate(ids, **door, custom_generate=outrider.decoder("ngram")), generate(ids, **door))
