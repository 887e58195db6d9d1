"""The same text gets the same tree, and what is declared of a tree is true."""

from collections.abc import Iterator

from outrider.check.check import Case, Check, CheckFailedError, Make, hold
from outrider.check.leading import Lead
from outrider.check.room import texts
from outrider.check.targets import prompt, tiny_target
from outrider.draft.laws import POINT
from outrider.draft.tree import DraftTree
from outrider.target.model import Target


def checks() -> Iterator[Check]:
    """Yield the checks."""
    yield Check(
        "same-twice",
        "basic",
        "a text gets the same tree when asked for again, and from another object (C2)",
        _same,
    )
    yield Check(
        "declared-kind",
        "sampling",
        "trees declared as chosen don't hang on the seed under a ratio rule, drawn and coupled ones do (C2)",
        _kind,
    )


def _same(make: Make) -> None:
    target = tiny_target()

    def run(case: Case) -> None:
        with Lead(target, make(target.info), [case.ids]) as one, Lead(target, make(target.info), [case.ids]) as other:
            one.start([case.ids[0]])
            other.start([case.ids[0]])
            first = one.propose()
            if one.propose() != first:
                raise CheckFailedError("asked again after the same text, the drafter proposed another tree")
            if other.propose() != first:
                raise CheckFailedError("two fresh drafters proposed different trees after the same text")

    for ids in texts():
        hold(Case(tuple(ids)), run)


def _kind(make: Make) -> None:
    target = tiny_target()

    def run(case: Case) -> None:
        ratio = [_first(target, make, case, seed, "rejection") for seed in range(8)]
        coupled = [_first(target, make, case, seed, "match") for seed in range(8)]
        drawn = any(row != POINT for tree in ratio for row in tree.q_rows)
        if not drawn and _differ(ratio):
            raise CheckFailedError(
                "under a ratio rule trees hang on the seed, but declare no law that nodes were drawn from"
            )
        if drawn and not _differ(ratio):
            raise CheckFailedError("nodes are declared as drawn, but are the same for every seed")
        if all(tree.coupled for tree in coupled) and not _differ(coupled):
            raise CheckFailedError("trees are declared as coupled, but don't hang on the target's noise")

    for ids in (prompt(20, 3), [5, 9, 5, 8, 5, 9, 5, 8, 5]):
        hold(Case(tuple(ids)), run)


def _first(target: Target, make: Make, case: Case, seed: int, rule: str) -> DraftTree:
    with Lead(target, make(target.info), [case.ids]) as lead:
        lead.start([case.ids[0]])
        return lead.propose(seed=seed, rule=rule)


def _differ(trees: list[DraftTree]) -> bool:
    return any(tree.tokens != trees[0].tokens or tree.parents != trees[0].parents for tree in trees)
