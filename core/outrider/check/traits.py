"""What a drafter can do, as far as checks are chosen by it: found by asking, not declared."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from outrider.check.leading import Lead
from outrider.check.targets import FEW, REPETITIVE, VARIED, prompt, tiny_target
from outrider.draft.contract import Drafter, TargetInfo
from outrider.draft.laws import POINT
from outrider.errors import OutriderError
from outrider.target.model import Target


@dataclass(frozen=True, slots=True)
class Traits:
    """What was seen of a drafter.

    Args:
        branches: a tree of it had siblings.
        samples: a tree of it had nodes that were drawn from a declared law.
        features: its `needs` ask for something.
    """

    branches: bool
    samples: bool
    features: bool


def traits_of(make: Callable[[TargetInfo], Drafter[Any]]) -> Traits:
    """Find out what a drafter does, on texts that repeat themselves or don't, greedily and under each rule.

    One that fails at all of them is asked everything.
    """
    texts = [4, 5, 6, 4, 5, 7, 4, 5, 6, 4, 5, 8, 4, 5], prompt(20, 3), prompt(8, 3, FEW)
    targets = tiny_target(0, REPETITIVE), tiny_target(0, VARIED), tiny_target(0, VARIED, FEW)
    seen = []
    for target, ids in zip(targets, texts, strict=True):
        with suppress(OutriderError):
            seen.append(_seen(make(target.info), target, ids))
    if not seen:
        return Traits(branches=True, samples=True, features=True)
    return Traits(*(any(getattr(one, name) for one in seen) for name in ("branches", "samples", "features")))


def _seen(drafter: Drafter[Any], target: Target, ids: Sequence[int]) -> Traits:
    with Lead(target, drafter, [ids[:-1]]) as lead:
        lead.start(ids[-1:])
        asked = [(None, "match"), (1, "match"), *((seed, "rejection") for seed in range(4))]
        trees = [lead.propose(seed=seed, rule=rule) for seed, rule in asked]
        return Traits(
            branches=any(len(tree.children(node)) > 1 for tree in trees for node in range(-1, len(tree))),
            samples=any(row != POINT for tree in trees for row in tree.q_rows),
            features=bool(lead.needs),
        )
