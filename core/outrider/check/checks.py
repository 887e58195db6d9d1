"""All checks, in the order in which they are run."""

from collections.abc import Iterator

from outrider.check import batch, counts, draws, features, purity, repeat, room, sequence, state, stream, text, work
from outrider.check.check import TIERS, Check


def drafter_checks() -> Iterator[Check]:
    """Yield every check, tier by tier."""
    modules = (room, repeat, counts, text, state, purity, work, stream, draws, sequence, batch, features)
    every = [check for module in modules for check in module.checks()]
    yield from sorted(every, key=lambda check: TIERS.index(check.tier))
