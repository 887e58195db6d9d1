"""What a drafter holds of a row is what was committed, and nothing else."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from outrider.check.check import Case, Check, CheckFailedError, Make, hold
from outrider.check.leading import Lead, Pick, nothing
from outrider.check.targets import REPETITIVE, VOCABULARY, prompt, tiny_target
from outrider.draft.contract import Drafter
from outrider.draft.tree import ROOT, DraftTree
from outrider.target.model import Target

_TEXTS = ([*prompt(6, 3), *prompt(6, 3)], [4, 5] * 6, prompt(12, 9))
_BEFORE: Final = prompt(20, 8)


def checks() -> Iterator[Check]:
    """Yield the checks."""
    yield Check(
        "accepted-trunk",
        "basic",
        "after none, some or all of a tree's first branch was accepted, the next tree is that of a fresh drafter "
        "with the same text (C11)",
        lambda make: _accepting(make, _trunk),
    )
    yield Check(
        "accepted-side-branch",
        "trees",
        "after another branch than the first was accepted, the next tree is that of a fresh drafter with the same text (C11)",
        lambda make: _accepting(make, _side),
        trait="branches",
    )
    yield Check(
        "next-row",
        "basic",
        "a row gets what a fresh drafter's first row gets, whatever went before (C11)",
        _next_row,
    )
    yield Check("truncate", "basic", "after truncate, tokens that are gone leave nothing behind (C11)", _truncate)
    yield Check(
        "all-or-nothing",
        "basic",
        "drafts may be accepted whole, or rejected, for as long as one likes (C13)",
        _extremes,
    )


def _trunk(step: int) -> Pick:
    """Accept some of the first branch: none, one, two, ..., all."""

    def pick(tree: DraftTree) -> int:
        node = ROOT
        for _ in range((0, 1, 99, 2, 0, 3, 99, 1)[step % 8]):
            below = tree.children(node)
            if not below:
                break
            node = below[0]
        return node

    return pick


def _side(step: int) -> Pick:
    """Accept a last sibling, and what hangs below it."""

    def pick(tree: DraftTree) -> int:
        beside = [node for node in range(len(tree)) if node in tree.children(tree.parents[node])[1:]]
        if not beside or step % 3 == 2:
            return ROOT
        node = beside[step % len(beside)]
        below = tree.children(node)
        return below[-1] if below and step % 2 else node

    return pick


def _accepting(make: Make, picks: Callable[[int], Pick]) -> None:
    target = tiny_target()

    def run(case: Case) -> None:
        ids, drafter = case.ids, make(target.info)
        with Lead(target, drafter, [ids]) as lead:
            lead.start([ids[0]])
            for step in range(case.count):
                bonus = (7 * step + 3) % VOCABULARY if step % 2 else ids[(step + 1) % len(ids)]
                lead.step([picks(step)], [bonus])
            found, text = lead.propose(), lead.rows[0].ids[len(ids) :]
        with Lead(target, make(target.info), [ids]) as fresh:
            fresh.start(text[:1])
            fresh.follow(text[1:])
            if fresh.propose() != found:
                raise CheckFailedError(
                    f"after {case.count} steps and {len(text)} tokens the tree is not that of a fresh drafter"
                )

    for ids in _TEXTS:
        for count in (1, 2, 3, 5, 8):
            hold(Case(tuple(ids), count), run)


def _next_row(make: Make) -> None:
    target = tiny_target()

    def run(case: Case) -> None:
        expected = _first_trees(target, make(target.info), case.ids)  # before there was any other row
        drafter = make(target.info)
        with Lead(target, drafter, [_BEFORE * 2]) as before:
            before.start([case.ids[0]])
            for step in range(max(case.count, 1)):
                before.step([_trunk(step)], [(11 * step) % VOCABULARY])
        if _first_trees(target, drafter, case.ids) != expected:
            raise CheckFailedError(
                "a second row gets another tree than a fresh drafter's first: the row before left something"
            )

    for ids in (*_TEXTS, _BEFORE[:9]):
        hold(Case(tuple(ids), 4), run)


def _first_trees(target: Target, drafter: Drafter[Any], ids: Sequence[int]) -> list[DraftTree]:
    found = []
    for first in (_BEFORE[3], ids[0]):
        with Lead(target, drafter, [ids]) as lead:
            lead.start([first])
            found.append(lead.propose())
    return found


def _truncate(make: Make) -> None:
    """As a session does: the row's ids are exchanged from some place on, and the prefill reads from there."""
    target = tiny_target()

    def run(case: Case) -> None:
        stays, gone = list(case.ids), prompt(14, 21)
        more = [*gone[:2], 1, stays[-1], *gone[4:6], stays[0]]
        for first in (3, stays[-1]):  # a token that is new, and one that both turns hold
            with Lead(target, make(target.info), [[*stays, *gone]]) as lead:
                lead.start([2])
                lead.turn(len(stays), more, first)
                found = lead.propose()
            with Lead(target, make(target.info), [[*stays, *more]]) as fresh:
                fresh.start([first])
                if fresh.propose() != found:
                    raise CheckFailedError(
                        f"after truncate to {len(stays)} tokens the tree is not that of a fresh drafter"
                    )

    for ids in (prompt(9, 4), [4, 5, 6] * 3):
        hold(Case(tuple(ids)), run)


def _extremes(make: Make) -> None:
    target = tiny_target(0, REPETITIVE)

    def run(case: Case) -> None:
        for pick in (_deepest, nothing):
            with Lead(target, make(target.info), [case.ids]) as lead:
                lead.start([case.ids[0]])
                for step in range(case.count):
                    if len(lead.rows[0].ids) < 440:
                        lead.step([pick], [case.ids[step % len(case.ids)]])

    hold(Case((4, 5, 6) * 4, 24), run)


def _deepest(tree: DraftTree) -> int:
    depths = tree.depths()
    nodes: Sequence[int] = [node for node in range(len(tree)) if node not in tree.scouts]
    return max(nodes, key=lambda node: depths[node], default=ROOT)
