"""The shapes of Medusa's trees: derived from how often heads are right, and a published one."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from outrider import Choices

# How often the first, and any of the first five, candidates of a head are right: Medusa-1 on Vicuna 7B, the project's own
# measurement (its table of head accuracies).
_FIRST_AND_FIVE: Final = ((0.56, 0.78), (0.32, 0.56), (0.20, 0.42), (0.15, 0.34), (0.12, 0.30))
_FIVE: Final = 5

# Every node of the published tree has the first ranks of its depth, so the numbers of its children say it all.
_PUBLISHED: Final[Mapping[str, Mapping[tuple[int, ...], int]]] = {
    "mc_sim_7b_63": {(): 10, (0,): 10, (1,): 7, (2,): 3, (3,): 2}
    | {(rank,): 1 for rank in range(4, 10)}
    | {(0, 0): 10, (0, 1): 3, (0, 2): 2, (1, 0): 2, (2, 0): 1}
    | {(0, rank): 1 for rank in range(3, 8)}
    | {(0, 0, 0): 2}
}

PRESETS: Final = tuple(_PUBLISHED)


def accuracies(depth: int, ranks: int) -> tuple[tuple[float, ...], ...]:
    """Return how often every rank of every head is right, on a typical model.

    Measured were the first rank and the first five; between and beyond them the chances fall by a power of the rank, which
    meets both figures. Heads after the last that was measured are taken to be like it.
    """
    return tuple(_falling(*_FIRST_AND_FIVE[min(at, len(_FIRST_AND_FIVE) - 1)], ranks) for at in range(depth))


def preset(name: str) -> Choices:
    """Return a published tree, its nodes by their worth on a typical model."""
    counts = _PUBLISHED[name]
    return Choices.counted(counts, accuracies(1 + max(map(len, counts)), max(counts.values())))


@lru_cache
def _falling(first: float, five: float, ranks: int) -> tuple[float, ...]:
    low, high = 0.0, 10.0  # of the exponent; the more, the less of the five is beyond the first
    while high - low > 1e-9:
        middle = (low + high) / 2
        more = first * sum(rank**-middle for rank in range(1, _FIVE + 1)) > five
        low, high = (middle, high) if more else (low, middle)
    return tuple(first * rank**-low for rank in range(1, ranks + 1))
