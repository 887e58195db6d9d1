"""How drafts get through a text of a certain length: how many steps they need, and how deep they may be at each."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Walk:
    """The steps of a text.

    Args:
        tokens: that a step emits on average.
        shares: for every depth that a draft had room for, the share of the steps at which it was so; the last is for drafts
            that were not cut.
    """

    tokens: float
    shares: tuple[float, ...]


def walk(survivals: Sequence[float], depth: int, horizon: int | None) -> Walk:
    """Work out how drafts that hold by chance, the same at every step, get through a text.

    Near its end a draft is cut: it may be as deep as the tokens that are left, less the one that the target adds.

    Args:
        survivals: the chance that so many tokens of a draft are accepted, or more, for 1, 2, ...
        depth: of drafts that are not cut.
        horizon: tokens that all steps emit together; None for a text without an end.
    """
    if horizon is None:
        return Walk(1.0 + sum(survivals[:depth]), (*[0.0] * depth, 1.0))
    held = [1.0, *survivals[:depth], *[0.0] * (depth - len(survivals))]
    visits = [0.0] * horizon + [1.0]
    shares = [0.0] * (depth + 1)
    for left in range(horizon, 0, -1):
        cap = min(depth, left - 1)
        shares[cap] += visits[left]
        for accepted in range(cap + 1):
            stays = held[accepted] - (held[accepted + 1] if accepted < cap else 0.0)
            visits[left - accepted - 1] += visits[left] * stays
    steps = sum(shares)
    return Walk(
        horizon / steps if steps else 1.0, tuple(one / steps for one in shares) if steps else (*shares[:-1], 1.0)
    )
