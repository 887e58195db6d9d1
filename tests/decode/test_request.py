from typing import Any

import pytest
import torch

import outrider
from outrider.decode.request import DEFAULT_NEW_TOKENS, read_request
from support import Scripted, prompt_of, tiny_model, tiny_target, transformers_generate


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens = 0: must be"),
        ({"max_new_tokens": 2.5}, "max_new_tokens = 2.5"),
        ({"max_new_tokens": True}, "max_new_tokens = True"),
        ({"temperature": -1}, "temperature = -1"),
        ({"temperature": "hot"}, "temperature = 'hot'"),
        ({"temperature": float("nan")}, "temperature = nan"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"seed": -1}, "seed = -1"),
        ({"seed": 1.5}, "seed = 1.5"),
        ({"max_new_token": 5}, "unknown generation option 'max_new_token'. Did you mean 'max_new_tokens'"),
        ({"draft_tokens": 5}, "unknown generation option 'draft_tokens'"),
        ({"num_beams": 2}, "num_beams = 2 is not served"),
        ({"num_return_sequences": 2, "do_sample": True}, "num_return_sequences = 2 is not served"),
        ({"cache_implementation": "static"}, "cache_implementation = 'static' is not served"),
        ({"prompt_lookup_num_tokens": 3}, "prompt_lookup_num_tokens = 3 is not served"),
        ({"return_dict_in_generate": True}, "return_dict_in_generate = True is not served"),
        ({"guidance_scale": 2.0}, "UnbatchedClassifierFreeGuidanceLogitsProcessor keeps state"),
        ({"max_length": 3}, "generation options"),
    ],
)
def test_bad_options_get_one_clear_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(outrider.InputError) as error:
        outrider.generate(tiny_target(), prompt_of(5), "ngram", **options)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "the prompt is empty"),
        (torch.zeros(1, 0, dtype=torch.long), "the prompt is empty"),
        ("", "the prompt is empty"),
        ([64], "token id 64, but the model's ids run from 0 to 63"),
        ([-1], "token id -1"),
        ([1.5], "whole numbers"),
        ([[1, 2], [3, 4]], "ids of one row"),
    ],
)
def test_bad_prompts_get_one_clear_line(prompt: Any, message: str) -> None:
    with pytest.raises(outrider.InputError) as error:
        outrider.generate(tiny_target(), prompt, "ngram", max_new_tokens=4)
    assert message in str(error.value)


def test_nothing_is_fed_to_the_model_before_an_error() -> None:
    target = tiny_target()
    calls: list[Any] = []
    handle = target.model.register_forward_pre_hook(lambda *args: calls.append(args))
    try:
        with pytest.raises(outrider.InputError):
            outrider.generate(target, prompt_of(5), "ngram", max_new_tokens=0)
        with pytest.raises(outrider.InputError):
            outrider.generate(target, prompt_of(5), "ngram", {"min_n": 0}, max_new_tokens=3)
    finally:
        handle.remove()
    assert not calls


def test_ids_may_come_as_a_list_or_a_tensor() -> None:
    target = tiny_target()
    forms: list[Any] = [[3, 4, 5], (3, 4, 5), torch.tensor([3, 4, 5]), torch.tensor([[3, 4, 5]])]
    assert len({outrider.generate(target, form, "none", max_new_tokens=5).token_ids for form in forms}) == 1


def test_temperature_zero_is_greedy_whatever_the_filters() -> None:
    request = read_request(tiny_target(), [1], {"temperature": 0, "top_k": 3, "top_p": 0.5})
    assert request.sampler.seed is None
    assert not request.sampler.processors


@pytest.mark.parametrize("options", [{"temperature": 0.7}, {"top_k": 3}, {"top_p": 0.5}])
def test_a_temperature_or_a_filter_means_sampling(options: dict[str, Any]) -> None:
    assert read_request(tiny_target(), [1], options).sampler.seed is not None


def test_defaults_come_from_the_model_s_generation_config() -> None:
    model = tiny_model(0)
    model.generation_config.do_sample = True
    model.generation_config.temperature = 0.6
    model.generation_config.max_new_tokens = 7
    model.generation_config.repetition_penalty = 1.5
    before = model.generation_config.to_dict()
    target = outrider.load(model)
    request = read_request(target, [1, 2], {})
    assert request.sampler.seed is not None
    assert request.stopping.max_length == 9
    assert [type(one).__name__ for one in request.sampler.processors][:2] == [
        "RepetitionPenaltyLogitsProcessor",
        "TemperatureLogitsWarper",
    ]
    expected = transformers_generate(model, [1, 2], do_sample=False)
    assert list(outrider.generate(target, [1, 2], "ngram", temperature=0).token_ids) == expected
    assert model.generation_config.to_dict() == before


def test_without_a_length_there_is_one() -> None:
    assert read_request(tiny_target(), [1, 2], {}).stopping.max_length == 2 + DEFAULT_NEW_TOKENS
    assert read_request(tiny_target(), [1, 2], {"max_length": 9}).stopping.max_length == 9


def test_the_caller_s_options_are_not_changed() -> None:
    options: dict[str, Any] = {"temperature": 0, "top_k": 4, "stop_strings": ["a"], "max_new_tokens": 3}
    before = dict(options)
    outrider.generate(tiny_target(), [1], "none", **options)
    read_request(tiny_target(), [1], options)
    assert options == before


def test_a_drafter_object_serves_the_target_that_it_was_made_for() -> None:
    drafter = Scripted(tiny_target(0), lambda ids: outrider.DraftTree())
    with pytest.raises(outrider.InputError, match="made for another target"):
        outrider.generate(outrider.load(tiny_model(1, vocab_size=80)), [1], drafter)
    with pytest.raises(outrider.InputError, match="options can't be given again"):
        outrider.generate(tiny_target(0), [1], drafter, {"min_n": 2})
