"""Features come chunk by chunk, and mean the same as in one piece."""

from collections.abc import Iterator

from outrider.check.check import Case, Check, CheckFailedError, Make, hold
from outrider.check.leading import Lead, nothing
from outrider.check.targets import prompt, tiny_target


def checks() -> Iterator[Check]:
    """Yield the checks."""
    yield Check(
        "chunked-prompt",
        "features",
        "a prompt that is read in chunks leads to the tree of one that is read at once (C11)",
        _chunks,
        trait="features",
    )


def _chunks(make: Make) -> None:
    target = tiny_target()

    def run(case: Case) -> None:
        found = []
        for chunk in (1000, 1 + len(case.ids) // 3, 1):
            with Lead(target, make(target.info), [case.ids], chunk) as lead:
                lead.start([case.ids[0]])
                tree = lead.propose()
                lead.step([nothing], [case.ids[-1]])
                found.append((tree, lead.propose()))
        if found[0] != found[1] or found[0] != found[2]:
            raise CheckFailedError("a prompt in chunks leads to another tree than one that is read at once")

    for ids in (prompt(23, 6), [4, 5, 6] * 5):
        hold(Case(tuple(ids)), run)
