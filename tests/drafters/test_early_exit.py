"""The drafter `self`: the target's first layers, with the keys and values that the target has computed."""

from functools import lru_cache
from typing import Any

import pytest
import torch

import outrider
from outrider import Target
from support import CACHE, lively, plain_loop, prompt_of, tiny_model, transformers_generate


@lru_cache(maxsize=8)
def fading(kind: str, **config: Any) -> Target:
    """A target whose last layer changes little, so that leaving before it is mostly right."""
    model = tiny_model(0, num_hidden_layers=3) if kind == "tiny" else lively(kind, num_hidden_layers=3, **config)
    body = getattr(model, "model", None) or model.transformer
    with torch.no_grad():
        for weight in (body.layers if hasattr(body, "layers") else body.h)[2].parameters():
            weight.mul_(0.05)
    return outrider.load(model)


@pytest.mark.parametrize("settings", [{}, {"temperature": 1.0, "seed": 3}, {"temperature": 0.8, "top_k": 9, "seed": 4}])
@pytest.mark.parametrize("shape", [{}, {"branching": 2}, {"branching": 3, "nodes": 12}])
def test_the_first_layers_are_right_mostly(shape: dict[str, Any], settings: dict[str, Any]) -> None:
    target, prompt = fading("tiny"), prompt_of(9)
    result = outrider.generate(
        target, prompt, "self", {"layers": 2, **shape}, adaptive=False, max_new_tokens=41, **settings
    )
    assert result.token_ids == outrider.generate(target, prompt, "none", max_new_tokens=41, **settings).token_ids
    assert result.stats.mean_acceptance_length is not None
    assert result.stats.mean_acceptance_length > 3.5


@pytest.mark.parametrize(
    ("kind", "config"),
    [("mistral", {"sliding_window": 8}), ("gemma2", {}), ("gpt2", {}), ("cohere", {}), ("qwen3", {}), ("bloom", {})],
)
def test_models_of_many_kinds_leave_early(kind: str, config: dict[str, Any]) -> None:
    target = fading(kind, **config)
    result = outrider.generate(target, prompt_of(9), "self", {"layers": 2}, adaptive=False, max_new_tokens=30)
    assert list(result.token_ids) == transformers_generate(target.model, prompt_of(9), max_new_tokens=30)
    assert result.stats.num_accepted_draft_tokens > 8


def test_nothing_is_read_twice() -> None:
    """The prompt passes the first layer once, and so does every token of a draft on its way to being verified."""
    target, prompt, fed = fading("tiny"), prompt_of(50), list[int]()
    drafter = outrider.make_drafter("self", {"layers": 2}, target.info)
    handle = target.model.model.layers[0].register_forward_pre_hook(lambda layer, args: fed.append(args[0].shape[1]))
    result = outrider.generate(target, prompt, drafter, adaptive=False, max_new_tokens=30)
    handle.remove()
    assert fed[0] == 50
    steps = [fed[at : at + 5] for at in range(1, len(fed), 5)]
    assert steps[0] == [1, 1, 1, 1, 5]  # the root and three of four guesses, then all that is verified
    assert sum(fed[1:]) <= result.stats.num_steps * 9


def test_batches_and_sessions_share_too() -> None:
    target = fading("tiny")
    prompts = [prompt_of(length, length) for length in (3, 12, 7)]
    results = outrider.generate_batch(target, prompts, "self", {"layers": 2}, adaptive=False, max_new_tokens=20)
    for prompt, result in zip(prompts, results, strict=True):
        assert list(result.token_ids) == plain_loop(target.model, prompt, 20)
        assert result.stats.num_accepted_draft_tokens > 10
    with outrider.session(target, "self", {"layers": 2}, adaptive=False, max_new_tokens=12) as turns:
        for length in (9, 4, 6):
            before = [*turns.ids, *prompt_of(length, length)]
            result = turns.generate(prompt_of(length, length))
            assert list(result.token_ids) == plain_loop(target.model, before, 12)
            assert result.stats.num_accepted_draft_tokens > 6
            turns.truncate(len(turns.ids) - 5)


def test_a_target_is_cut_and_probed_once() -> None:
    target = outrider.load(tiny_model(3, 0.1, num_hidden_layers=3))
    made: Any = [outrider.make_drafter("self", {"layers": layers}, target.info) for layers in (1, 1, 2)]
    made = [one._load() for one in made]
    assert made[0] is made[1]
    assert made[2] is not made[0]


def test_a_cache_that_was_filled_elsewhere_is_no_hindrance() -> None:
    """The target reads only the rest of the prompt, so its first layers read the beginning for themselves."""
    target, prompt = fading("tiny"), prompt_of(20)
    model: Any = target.model
    options: dict[str, Any] = {"max_new_tokens": 20, "do_sample": False}
    texts = []
    for word in ("none", "self"):
        with torch.no_grad():
            cache = model(torch.tensor([prompt[:15]])).past_key_values
        door = outrider.decoder(word, {"layers": 2} if word == "self" else None)
        ids = torch.tensor([prompt])
        texts.append(model.generate(ids, custom_generate=door, **{CACHE: cache}, **options).tolist())
    assert texts[0] == texts[1]


def test_a_target_that_can_t_be_cut_is_refused() -> None:
    with pytest.raises(outrider.InputError, match="needs two or more"):
        outrider.generate(outrider.load(tiny_model(0, num_hidden_layers=1)), [1, 2], "self")
    with pytest.raises(outrider.InputError, match="after 3 layers: the target has 3, so 1 to 2 are possible"):
        outrider.generate(fading("tiny"), [1, 2], "self", {"layers": 3})
    kinds = ["full_attention", "conv", "full_attention"]
    with pytest.raises(outrider.InputError, match="can't be taken back"):
        outrider.generate(outrider.load(lively("lfm2", num_hidden_layers=3, layer_types=kinds)), [1, 2], "self")
    kinds = ["conv", "full_attention", "full_attention"]
    target = outrider.load(lively("lfm2", num_hidden_layers=3, layer_types=kinds))
    with pytest.raises(outrider.InputError, match="the first 1 layers can't draft by themselves"):
        outrider.generate(target, [1, 2], "self", {"layers": 1})
