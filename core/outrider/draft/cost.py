"""What a draft costs against what it brings: how many nodes are worth verifying."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from outrider.errors import InputError

StepCost = Callable[[int], float]
"""Cost of a target forward of n rows, in forwards of one row."""

# Upper end of what was measured on CPUs with a 135M model (float32 pays for any block at once, bfloat16 hardly at all), so
# that a draft chosen by it does not lose on the others.
_ROWS_COST: Final = ((1, 1.0), (8, 1.7), (16, 2.2), (24, 2.35), (32, 2.75))
_COST_PER_FURTHER_ROW: Final = 0.06


def typical_cost(rows: float) -> float:
    """Cost of a forward of `rows` rows where nothing was measured."""
    for most, cost in _ROWS_COST:
        if rows <= most:
            return cost
    most, cost = _ROWS_COST[-1]
    return cost + _COST_PER_FURTHER_ROW * (rows - most)


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs that are given in place of measured ones, so that adaptive decoding does the same in every run.

    Between the sizes that are named costs are interpolated.

    Args:
        forward: cost of a target forward by the rows that it scores, of all texts together, in any unit.
        draft: cost of a draft by its depth, in the same unit; free where nothing is named.
        catch_up: further cost of a draft for every step that was made without one before it.

    Raises:
        InputError: a size that is no whole number from 1 on, a cost that is no number from 0 on, or no forward at all.
    """

    forward: Mapping[int, float]
    draft: Mapping[int, float] = field(default_factory=dict)
    catch_up: float = 0.0

    def __post_init__(self) -> None:
        if not self.forward or not all(_is_cost(cost) and cost > 0 for cost in self.forward.values()):
            raise InputError(f"Costs: forward = {self.forward!r}: name one forward or more, each with a cost above 0")
        if not all(map(_is_cost, [*self.draft.values(), self.catch_up])):
            raise InputError(
                f"Costs: draft = {self.draft!r}, catch_up = {self.catch_up!r}: costs are numbers from 0 on"
            )
        wrong = next((one for one in [*self.forward, *self.draft] if type(one) is not int or one < 1), None)
        if wrong is not None:
            raise InputError(f"Costs: size {wrong!r}: must be a whole number, 1 or more")


def _is_cost(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf  # type: ignore[operator]


def check_adaptive(value: object) -> bool | Costs:
    """Return what the option `adaptive` says.

    Raises:
        InputError: it is neither a bool nor costs.
    """
    if not isinstance(value, bool | Costs):
        raise InputError(f"adaptive = {value!r}: must be True, False, or outrider.Costs")
    return value


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
