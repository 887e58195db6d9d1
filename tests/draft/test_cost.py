import pytest

from outrider.draft.cost import best_size, typical_cost


def test_a_hopeless_draft_is_not_worth_a_node() -> None:
    assert best_size([0.05] * 40) == 0
    assert best_size([]) == 0


def test_a_sure_draft_is_taken_whole() -> None:
    assert best_size([1.0] * 31) == 31


def test_the_best_size_is_the_best_of_all_sizes() -> None:
    survivals = [0.9**k for k in range(1, 40)]
    speed = [(1 + sum(survivals[:n])) / typical_cost(n + 1) for n in range(len(survivals) + 1)]
    assert best_size(survivals) == speed.index(max(speed))


@pytest.mark.parametrize(("alpha", "size", "tokens"), [(0.7, 4, 2.77), (0.5, 1, 1.5), (0.9, 8, 6.13)])
def test_expected_tokens_follow_the_formula_of_the_paper(alpha: float, size: int, tokens: float) -> None:
    expected = 1 + sum(alpha**k for k in range(1, size + 1))
    assert expected == pytest.approx((1 - alpha ** (size + 1)) / (1 - alpha))
    assert expected == pytest.approx(tokens, abs=0.005)


def test_a_free_forward_takes_all_and_a_linear_one_nothing() -> None:
    assert best_size([0.5] * 5, lambda rows: 1.0) == 5
    assert best_size([0.5] * 5, float) == 0


def test_the_cost_never_falls() -> None:
    costs = [typical_cost(rows) for rows in range(1, 200)]
    assert costs == sorted(costs)
    assert costs[0] == 1.0
