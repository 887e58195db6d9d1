import random

import pytest

from outrider.draft.acceptance import Acceptance, Share


def _learned(chances: list[float], steps: int = 400, seed: int = 0, depth: int | None = None) -> Acceptance:
    """After drafts whose token at depth i holds with the i-th chance if the one before it did."""
    found, generator = Acceptance(), random.Random(seed)
    for now in range(steps):
        count = 0
        while count < len(chances) and generator.random() < chances[count]:
            count += 1
        found.learn([min(count, depth or len(chances))], depth or len(chances), now)
    return found


def test_survivals_are_products_of_what_was_seen_where_it_was_reached() -> None:
    chances, product = [0.9, 0.5, 0.8], 1.0
    means = [0.0] * 3
    for seed in range(30):
        means = [
            mean + one / 30 for mean, one in zip(means, _learned(chances, seed=seed).survivals(3, 400), strict=True)
        ]
    for chance, mean in zip(chances, means, strict=True):
        product *= chance
        assert mean == pytest.approx(product, abs=0.05)


def test_a_depth_that_was_never_reached_is_like_the_one_above() -> None:
    first, second, third, fourth = _learned([0.6, 0.6], depth=2).survivals(4, 400)
    assert third / second == fourth / third == pytest.approx(second / first)


def test_what_a_rejection_hid_is_no_evidence() -> None:
    found = Acceptance()
    for now in range(50):
        found.learn([0], 4, now)
    one, two, three, four = found.survivals(4, 50)
    assert two / one == three / two == four / three == one
    assert one < 0.1


def test_a_depth_that_the_drafter_does_not_reach_is_not_counted_on() -> None:
    """Asked for six and always right for three: the fourth failed wherever it could have been."""
    found = Acceptance()
    for now in range(50):
        found.learn([3], 6, now)
    survivals = found.survivals(6, 50)
    assert survivals[2] > 0.8
    assert survivals[3] < 0.1


def test_a_change_is_noticed_in_time() -> None:
    found = Acceptance()
    for now in range(200):
        found.learn([4], 4, now)
    assert found.survivals(1, 200)[0] > 0.9
    for now in range(200, 220):
        found.learn([0], 4, now)
    assert found.survivals(1, 220)[0] < 0.5
    for now in range(220, 240):
        found.learn([4], 4, now)
    assert found.survivals(1, 240)[0] > 0.5


def test_rows_are_pooled() -> None:
    found = Acceptance()
    for now in range(100):
        found.learn([2, 0, 0, 2], 2, now)
    assert found.survivals(1, 100)[0] == pytest.approx(0.5, abs=0.05)
    assert found.survivals(2, 100)[1] == pytest.approx(0.5, abs=0.05)


def test_a_mean_stays_where_its_evidence_fades() -> None:
    share = Share(0.5, 2.0)
    for now in range(50):
        share.learn(0.0, now)
    low = share.value
    share.fade(1000)
    assert share.value == pytest.approx(low)
    share.learn(1.0, 1000)
    assert share.value > 0.3
