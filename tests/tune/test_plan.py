"""What is measured fits the time."""

import pytest

from outrider.prompt_file import NamedPrompt
from outrider.tune.plan import Load, fit, validation
from outrider.tune.predict import Prediction
from outrider.tune.settings import Setting

PROMPTS = [NamedPrompt(str(at), "a") for at in range(40)]
LOAD = Load(plain_seconds=0.05, probes=4, drafters=1)


@pytest.mark.parametrize(("seconds", "prompts", "tokens"), [(2, 1, 16), (200, 6, 28), (2000, 26, 64), (9000, 40, 64)])
def test_prompts_and_tokens(seconds: float, prompts: int, tokens: int) -> None:
    chosen, length = fit(PROMPTS, LOAD, seconds, most=64, least=1)
    assert (len(chosen), length) == (prompts, tokens)
    if prompts > 1:
        assert int(chosen[-1].name) >= 30  # spread over all of them


def test_as_many_prompts_as_are_decoded_together() -> None:
    chosen, length = fit(PROMPTS, LOAD, 1.0, most=64, least=8)
    assert (len(chosen), length) == (8, 16)


def predicted(name: str, speed_up: float) -> Prediction:
    return Prediction(Setting(name, {"draft_tokens": int(speed_up * 100)}), 2.0, 3.0, 0.0, 0.1, 0.0, 0.1, speed_up)


RANKED = [[predicted("a", one) for one in (1.9, 1.8, 1.7, 1.6)], [predicted("b", one) for one in (1.2, 1.1)]]
ADAPTIVE = [Setting("a", adaptive=True), Setting("b", adaptive=True)]


def test_every_drafters_best_is_validated() -> None:
    plan = validation(RANKED, ADAPTIVE, 3, 64, 1000.0, 5)
    assert [one.speed_up for one in plan.predictions] == [1.9, 1.2, 1.8, 1.7, 1.6]
    assert plan.adaptive == (ADAPTIVE[0],)
    assert plan.repeats == 5
    short = validation(RANKED, ADAPTIVE, 3, 64, 170.0, 5)
    assert [one.speed_up for one in short.predictions] == [1.9, 1.2, 1.8]
    assert short.repeats == 2
    none = validation(RANKED, ADAPTIVE, 3, 64, 0.0, 5)
    assert [one.speed_up for one in none.predictions] == [1.9, 1.2]
    assert (none.adaptive, none.repeats) == ((), 1)
