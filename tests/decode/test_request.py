from typing import Any

import numpy
import pytest
import torch
import transformers

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
        ({"cache_implementation": "quantized"}, "cache_implementation = 'quantized' is not served"),
        ({"cache_implementation": "offloaded"}, "cache_implementation = 'offloaded' is not served"),
        ({"prompt_lookup_num_tokens": 3}, "prompt_lookup_num_tokens = 3 is not served"),
        ({"return_dict_in_generate": True}, "return_dict_in_generate = True is not served"),
        ({"guidance_scale": 2.0}, "UnbatchedClassifierFreeGuidanceLogitsProcessor keeps state"),
        ({"max_length": 3}, "generation options"),
        ({"use_cache": False}, "use_cache = False is not served"),
        ({"do_sample": "no"}, "do_sample = 'no'"),
        ({"stop_strings": ""}, "stop_strings = ''"),
        ({"stop_strings": []}, "stop_strings = []"),
        ({"generation_config": {}}, "generation options"),
        ({"rule": "lossy"}, "unknown rule 'lossy'"),
        ({"drafter_options": [1]}, "drafter_options = [1]"),
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
        ([1.5], "one row of ids"),
        ([[1, 2], [3, 4]], "one row of ids"),
        (None, "the prompt is a NoneType"),
        (3, "the prompt is a int"),
        ({1, 2}, "the prompt is a set"),
        ([True], "one row of ids"),
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
    ids: list[Any] = [[3, 4, 5], (3, 4, 5), numpy.array([3, 4, 5]), [numpy.int64(3), 4, 5]]
    forms = [*ids, torch.tensor([3, 4, 5]), torch.tensor([[3, 4, 5]])]
    assert len({outrider.generate(target, form, "none", max_new_tokens=5).token_ids for form in forms}) == 1


def test_temperature_zero_is_greedy_whatever_the_filters() -> None:
    request = read_request(tiny_target(), [1], {"temperature": 0, "top_k": 3, "top_p": 0.5})
    assert request.sampler.decisions is None
    assert request.sampler.processors.empty


@pytest.mark.parametrize("options", [{"temperature": 0.7}, {"top_k": 3}, {"top_p": 0.5}])
def test_a_temperature_or_a_filter_means_sampling(options: dict[str, Any]) -> None:
    assert read_request(tiny_target(), [1], options).sampler.decisions is not None


def test_defaults_come_from_the_model_s_generation_config() -> None:
    model = tiny_model(0)
    model.generation_config.do_sample = True
    model.generation_config.temperature = 0.6
    model.generation_config.max_new_tokens = 7
    model.generation_config.repetition_penalty = 1.5
    before = model.generation_config.to_dict()
    target = outrider.load(model)
    request = read_request(target, [1, 2], {})
    assert request.sampler.decisions is not None
    assert request.stopping.max_length == 9
    assert [type(one).__name__ for one in request.sampler.processors.chain][:2] == [
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


@pytest.mark.parametrize("drafter", [5, None, int, outrider.Drafter, outrider.RowDrafter])
def test_what_is_no_drafter_is_named(drafter: Any) -> None:
    with pytest.raises(outrider.InputError):
        outrider.generate(tiny_target(), [1, 2], drafter, max_new_tokens=3)


def test_a_cache_that_the_model_asks_for_does_not_matter() -> None:
    """It changes where keys and values lie, not the text."""
    model = tiny_model(0)
    expected = transformers_generate(model, [1, 2], max_new_tokens=8)
    model.generation_config.use_cache = False
    model.generation_config.cache_implementation = "static"
    assert list(outrider.generate(outrider.load(model), [1, 2], "ngram", max_new_tokens=8).token_ids) == expected


def test_stop_strings_of_a_passed_generation_config_are_honoured() -> None:
    target = tiny_target()
    plain = outrider.generate(target, [1, 2], "none", max_new_tokens=12)
    config = transformers.GenerationConfig(max_new_tokens=12, stop_strings=[plain.text[5]])
    found = outrider.generate(target, [1, 2], "ngram", generation_config=config)
    assert found.finish_reason == "stop_string"
    assert found.text == plain.text[: plain.text.index(plain.text[5]) + 1]
    assert config.stop_strings == [plain.text[5]]


def test_a_processor_or_a_criterion_that_fails_is_named() -> None:
    with pytest.raises(outrider.GenerationError, match="NoBadWordsLogitsProcessor failed: ValueError"):
        outrider.generate(tiny_target(), [1, 2], "ngram", bad_words_ids=[[1000]], max_new_tokens=4)

    def criterion(ids: Any, scores: Any, **_: Any) -> Any:
        return 1 / 0

    criteria = transformers.StoppingCriteriaList([criterion])
    with pytest.raises(outrider.GenerationError, match="stopping criterion criterion failed: ZeroDivisionError"):
        outrider.generate(tiny_target(), [1, 2], "ngram", stopping_criteria=criteria, max_new_tokens=4)


def test_a_model_that_was_put_back_into_training_is_refused() -> None:
    model = tiny_model(0)
    target = outrider.load(model)
    model.train()
    with pytest.raises(outrider.ModelError, match="training mode"):
        outrider.generate(target, [1, 2], "ngram", max_new_tokens=4)


@pytest.mark.parametrize("name", ["output_logits", "output_scores", "output_logprobs"])
def test_evidence_is_that_of_plain_decoding(name: str) -> None:
    """The logits, scores and log-probabilities of what was emitted, whatever was drafted."""
    target, prompt = tiny_target(1, 0.1), prompt_of(9, 1)
    options: dict[str, Any] = {"max_new_tokens": 24, "repetition_penalty": 1.2, name: True}
    result = outrider.generate(target, prompt, "ngram", **options)
    inputs = torch.tensor([prompt])
    model: Any = target.model
    expected = model.generate(
        inputs,
        attention_mask=torch.ones_like(inputs),
        max_new_tokens=24,
        repetition_penalty=1.2,
        do_sample=False,
        return_dict_in_generate=True,
        output_logits=True,
        output_scores=True,
    )
    assert list(result.token_ids) == expected.sequences[0, 9:].tolist()
    scores = torch.cat(expected.scores)
    if name == "output_logits":
        assert result.logits is not None
        assert torch.allclose(result.logits, torch.cat(expected.logits), atol=1e-6)
    elif name == "output_scores":
        assert result.scores is not None
        assert torch.allclose(result.scores, scores, atol=1e-6)
    else:
        chances = scores.log_softmax(-1)[range(24), list(result.token_ids)]
        assert result.logprobs == pytest.approx(chances.tolist(), abs=1e-5)
    assert sum(one is not None for one in (result.logits, result.scores, result.logprobs)) == 1
