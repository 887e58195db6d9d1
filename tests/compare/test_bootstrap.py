import numpy as np
import pytest

from outrider.compare.bootstrap import Table, _student
from outrider.compare.pooled import speed_up

RATIO = 1.3


def drawn(seed: int, conversations: int, repeats: int, ratio: float = RATIO) -> Table:
    """Two rows whose true ratio is known: prompts differ, and so do repeats, in log-normal ways."""
    random = np.random.default_rng(seed)
    tokens = random.integers(40, 64, (conversations, 1)) * np.ones((conversations, repeats))
    base = tokens * 0.05 * np.exp(random.normal(0, 0.05, (conversations, repeats)))
    own = random.normal(0, 0.3, (conversations, 1))
    gain = np.exp(own) / np.exp(0.3**2 / 2)
    mine = tokens * 0.05 / ratio * gain * np.exp(random.normal(0, 0.05, (conversations, repeats)))
    sums = {"step_tokens": tokens, "base_step_tokens": tokens}
    return Table(sums, {"step_seconds": mine, "base_step_seconds": base})


@pytest.mark.parametrize(("conversations", "least"), [(4, 85), (12, 88), (40, 89)])
def test_intervals_hold_a_known_ratio_as_often_as_they_say(conversations: int, least: int) -> None:
    found = [drawn(seed, conversations, 3).estimate(speed_up, resamples=1000) for seed in range(100)]
    held = sum(one is not None and one.low <= RATIO <= one.high for one in found)
    assert least <= held <= 100


def test_an_interval_is_not_everything() -> None:
    """It leaves out what is far, and is narrower with more conversations."""
    few, many = (drawn(1, count, 3).estimate(speed_up) for count in (8, 200))
    assert few is not None
    assert many is not None
    assert 1.1 < many.low < many.value < many.high < 1.5
    assert many.high - many.low < (few.high - few.low) / 2


def test_the_same_numbers_give_the_same_interval() -> None:
    assert drawn(3, 9, 2).estimate(speed_up) == drawn(3, 9, 2).estimate(speed_up)


def test_rows_that_are_alike_have_a_ratio_of_one_exactly() -> None:
    made = drawn(5, 6, 3)
    same = Table(
        made.sums, {"step_seconds": made.middles["step_seconds"], "base_step_seconds": made.middles["step_seconds"]}
    )
    found = same.estimate(speed_up)
    assert found is not None
    assert (found.low, found.value, found.high) == (1.0, 1.0, 1.0)


def test_the_median_repeat_counts_and_missing_ones_do_not() -> None:
    tokens = np.array([[10.0, 10.0, 10.0], [20.0, 20.0, np.nan]])
    seconds = np.array([[1.0, 1.0, 99.0], [4.0, 2.0, np.nan]])
    table = Table({"step_tokens": tokens}, {"step_seconds": seconds})
    assert table.pooled() == {"step_tokens": 30.0, "step_seconds": 4.0}
    found = table.estimate(lambda sums: sums["step_tokens"] / sums["step_seconds"])
    assert found is not None
    assert found.value == 7.5
    assert np.isfinite([found.low, found.high]).all()


def test_one_conversation_has_the_interval_of_its_repeats() -> None:
    seconds = np.array([[1.0, 1.2, 0.9, 1.1, 1.0]])
    found = Table({"step_tokens": np.full((1, 5), 10.0)}, {"step_seconds": seconds}).estimate(
        lambda sums: sums["step_tokens"] / sums["step_seconds"]
    )
    assert found is not None
    assert 10 / 1.2 <= found.low < found.high <= 10 / 0.9


@pytest.mark.parametrize(("freedom", "quantile"), [(3, -3.182), (5, -2.571), (11, -2.201), (39, -2.023)])
def test_quantiles_of_the_t_law(freedom: int, quantile: float) -> None:
    """Against the usual table."""
    assert _student(0.025, freedom) == pytest.approx(quantile, rel=0.01)
