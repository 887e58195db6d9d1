import pytest

import outrider
from support import NAMES, Scripted, every_drafter, plain_loop, prompt_of, right_chain, tiny_target


@pytest.mark.parametrize("name", NAMES)
def test_the_counts_agree_with_each_other_and_with_the_stream(name: str) -> None:
    """Case 21's invariants."""
    target, prompt = tiny_target(1, 0.1), prompt_of(9, 1)
    text = prompt + plain_loop(target.model, prompt, 30)
    with outrider.stream(target, prompt, every_drafter(target, text)[name], max_new_tokens=30) as steps:
        seen = list(steps)
        stats = steps.stats
    emitted = [len(step.tokens) for step in seen]
    assert stats.num_tokens == sum(emitted) == 30
    assert stats.num_steps == len(seen) - 1
    assert 0 <= stats.num_accepted_draft_tokens <= stats.num_draft_tokens
    assert sum(stats.acceptance_histogram) == stats.num_spec_steps <= stats.num_steps
    assert sum(k * n for k, n in enumerate(stats.acceptance_histogram)) == stats.num_accepted_draft_tokens
    assert stats.num_tokens - 1 == stats.num_accepted_draft_tokens + stats.num_steps
    assert stats.mean_acceptance_length == pytest.approx(29 / stats.num_steps)


@pytest.mark.parametrize("how", ["eos", "length", "stop string"])
def test_what_was_accepted_past_a_stop_is_not_counted(how: str) -> None:
    """Case 21: a draft of a, b, STOP, c, d, all of which the target agrees with."""
    target = tiny_target(0)
    prompt = prompt_of(7)
    text = plain_loop(target.model, prompt, 8)
    assert text[3] not in text[:3]
    drafter = Scripted(target, right_chain(prompt + text, 5))
    options = {
        "eos": {"eos_token_id": text[3], "max_new_tokens": 8},
        "length": {"max_new_tokens": 4},
        "stop string": {"stop_strings": target.tokenizer.decode(text[3:4]), "max_new_tokens": 8},
    }[how]
    stats = outrider.generate(target, prompt, drafter, **options, adaptive=False).stats
    assert stats.num_tokens == 4
    assert stats.num_steps == 1
    assert stats.mean_acceptance_length == 3.0
    # with a length of 4 only two can be drafted, and the third is the bonus token
    assert stats.num_accepted_draft_tokens == (2 if how == "length" else 3)


def test_figures_without_a_value_are_none() -> None:
    stats = outrider.generate(tiny_target(), prompt_of(4), "ngram", max_new_tokens=1).stats
    found = stats.as_dict()
    assert found["num_tokens"] == 1
    assert found["num_steps"] == 0
    for name in ("mean_acceptance_length", "mean_acceptance_length_drafted", "draft_acceptance_rate", "overhead"):
        assert found[name] is None


def test_vllm_s_figure_divides_by_the_steps_that_drafted() -> None:
    target, prompt = tiny_target(0), prompt_of(7)
    text = prompt + plain_loop(target.model, prompt, 20)
    chain = right_chain(text, 3)
    drafter = Scripted(target, lambda ids: chain(ids) if len(ids) % 2 else outrider.DraftTree())
    stats = outrider.generate(target, prompt, drafter, max_new_tokens=20, adaptive=False).stats
    assert stats.num_spec_steps < stats.num_steps
    assert stats.mean_acceptance_length_drafted == 1 + stats.num_accepted_draft_tokens / stats.num_spec_steps
