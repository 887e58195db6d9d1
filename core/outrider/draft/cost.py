"""What a draft costs against what it brings: how many nodes are worth verifying."""

from collections.abc import Callable, Sequence
from typing import Final

StepCost = Callable[[int], float]
"""Cost of a target forward of n rows, in forwards of one row."""

# Upper end of what was measured on CPUs with a 135M model (float32 pays for any block at once, bfloat16 hardly at all), so
# that a draft chosen by it does not lose on the others.
_ROWS_COST: Final = ((1, 1.0), (8, 1.7), (16, 2.2), (24, 2.35), (32, 2.75))
_COST_PER_FURTHER_ROW: Final = 0.06


def typical_cost(rows: int) -> float:
    """Cost of a forward of `rows` rows where nothing was measured."""
    for most, cost in _ROWS_COST:
        if rows <= most:
            return cost
    most, cost = _ROWS_COST[-1]
    return cost + _COST_PER_FURTHER_ROW * (rows - most)


def best_size(survivals: Sequence[float], cost: StepCost = typical_cost) -> int:
    """Return how many of the likeliest nodes to verify, 0 where plain decoding is faster.

    The expected speed of a step that verifies the first n nodes is (1 + their survivals' sum) / cost(n + 1), the formula of
    Leviathan et al. 2022 (arXiv:2211.17192, section 3.3) for a tree and a measured cost.

    Args:
        survivals: the chance of every node to be accepted, falling.
        cost: cost of a forward by its rows, the root included.
    """
    best, speed, expected = 0, 1.0, 1.0
    for size, survival in enumerate(survivals, 1):
        expected += survival
        if expected / cost(size + 1) > speed:
            best, speed = size, expected / cost(size + 1)
    return best
