import threading
from collections.abc import Mapping

import pytest

import outrider
from outrider import Costs, typical_cost
from outrider.draft.timings import Timings, gently_rising


def _timings(samples: Mapping[int, float], times: int = 2) -> Timings:
    found = Timings(gently_rising, typical_cost)
    for size, seconds in samples.items():
        for _ in range(times):
            found.add(size, seconds)
    return found


def test_before_anything_is_measured_the_guess_holds() -> None:
    assert [Timings(gently_rising, typical_cost).at(rows) for rows in (1, 8, 16)] == [1.0, 1.7, 2.2]
    assert Timings(float).at(5) == 0.0
    assert not Timings(float)


def test_sizes_between_are_interpolated_and_beyond_follow_the_shape() -> None:
    found = _timings({2: 1.0, 6: 3.0})
    assert [found.at(size) for size in (2, 3, 5, 6)] == [1.0, 1.5, 2.5, 3.0]
    assert found.at(12) == pytest.approx(3.0 * gently_rising(12) / gently_rising(6))
    assert found.at(1) == pytest.approx(1.0 * gently_rising(1) / gently_rising(2))


def test_a_slow_call_now_and_then_changes_nothing() -> None:
    found = Timings(gently_rising)
    for seconds in (1.0, 10.0, 1.0, 1.1, 10.0):
        found.add(4, seconds)
    assert found.at(4) == 1.1
    found.add(4, 1.2)
    assert found.at(4) == 1.2


def test_a_size_measured_once_is_not_believed_to_be_dear() -> None:
    found = _timings({1: 1.0})
    found.add(9, 50.0)
    assert found.at(9) == pytest.approx(2 * gently_rising(9) / gently_rising(1))
    found.add(9, 40.0)
    assert found.at(9) == 40.0


def test_a_smaller_size_never_costs_more() -> None:
    found = _timings({1: 1.0, 2: 1.7, 4: 1.64, 8: 1.6, 16: 2.4})
    costs = [found.at(size) for size in range(1, 40)]
    assert costs == sorted(costs)
    assert found.at(2) == 1.6


def test_another_text_is_soon_measured_anew() -> None:
    """Contexts differ in length: what was measured on a short one is outvoted by two samples, in either direction."""
    for before, after in ((1.0, 5.0), (5.0, 1.0)):
        found = _timings({1: before, 8: 2 * before}, times=5)
        found.age()
        assert found.at(1) == before
        found.add(1, after)
        found.add(1, after)
        found.add(1, after)
        assert found.at(1) == after
        assert found.at(8) >= found.at(1)


def test_near_sizes_count_as_measured() -> None:
    found = _timings({8: 1.0, 40: 2.0})
    assert [found.measured(size) for size in (1, 7, 8, 10, 12, 40, 42)] == [0, 2, 2, 2, 0, 2, 2]


def test_a_given_table_never_changes() -> None:
    found = Timings.fixed({1: 1.0, 4: 2.0}, gently_rising)
    found.add(4, 9.0)
    assert found.at(4) == 2.0
    assert found.frozen


def test_threads_may_share_it() -> None:
    found = _timings({1: 1.0})

    def work(size: int) -> None:
        for count in range(300):
            found.add(size + count % 7, 1.0 + size)
            assert found.at(size) > 0

    threads = [threading.Thread(target=work, args=(size,)) for size in (1, 20, 40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    costs = [found.at(size) for size in range(1, 80)]
    assert costs == sorted(costs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"forward": {}}, "name one forward or more"),
        ({"forward": {1: 0.0}}, "each with a cost above 0"),
        ({"forward": {1: float("nan")}}, "each with a cost above 0"),
        ({"forward": {0: 1.0}}, "size 0: must be a whole number"),
        ({"forward": {1: 1.0}, "draft": {1: -1.0}}, "costs are numbers from 0 on"),
        ({"forward": {1: 1.0}, "draft": {1.5: 1.0}}, "size 1.5: must be a whole number"),
        ({"forward": {1: 1.0}, "catch_up": "much"}, "costs are numbers from 0 on"),
    ],
)
def test_wrong_costs_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(outrider.InputError, match=message):
        Costs(**arguments)  # type: ignore[arg-type]
