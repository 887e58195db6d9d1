"""Trees are well formed, and fit into the room that their row has."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from outrider.check.check import Case, Check, Make, hold
from outrider.check.leading import Lead
from outrider.check.targets import VOCABULARY, prompt, tiny_target
from outrider.draft.contract import MAX_NODES

RULES: Final[tuple[tuple[int | None, str], ...]] = ((None, "match"), (3, "match"), (3, "rejection"))
"""Seed and rule of the ways in which a draft is asked for."""


def texts(vocabulary: int = VOCABULARY) -> Iterator[list[int]]:
    """Texts of many lengths, new and repeating, down to a single token."""
    for length in (1, 2, 3, 17, 60):
        yield prompt(length, length, vocabulary)
        yield (prompt(4, length, vocabulary) * length)[:length]
    yield [7] * 30


def checks() -> Iterator[Check]:
    """Yield the checks."""
    yield Check(
        "depth-room",
        "basic",
        "trees are well formed and no deeper than the row's max_depth, after texts of 1 to 60 tokens (C1)",
        lambda make: _fit(make, [(depth, MAX_NODES) for depth in (1, 2, 3, 20)], RULES),
    )
    yield Check(
        "node-room",
        "basic",
        "trees have no more nodes than the row's max_nodes, and every node its parent (C1)",
        lambda make: _fit(make, [(20, nodes) for nodes in (1, 2, 3, 5, 8)], RULES[:1]),
    )
    yield Check(
        "vocabulary",
        "basic",
        "ids are the target's own, whatever the size of its vocabulary, and after its last id too (C14)",
        _vocabulary,
    )


def _fit(make: Make, rooms: list[tuple[int, int]], rules: Sequence[tuple[int | None, str]]) -> None:
    for ids in texts():
        for depth, nodes in rooms:
            case = Case(tuple(ids), setting=f"max_depth {depth}, max_nodes {nodes}")
            hold(case, partial(_ask, make, depth, nodes, rules))


def _ask(
    make: Make,
    depth: int,
    nodes: int,
    rules: Sequence[tuple[int | None, str]],
    case: Case,
    vocabulary: int = VOCABULARY,
) -> None:
    target = tiny_target(vocabulary=vocabulary)
    with Lead(target, make(target.info), [case.ids]) as lead:
        lead.start([case.ids[0]])
        for seed, rule in rules:
            lead.propose(depth=depth, nodes=nodes, seed=seed, rule=rule)


def _vocabulary(make: Make) -> None:
    for vocabulary in (40, 7):
        last = vocabulary - 1
        for ids in ([last] * 9, [*prompt(12, 2, vocabulary), last]):
            case = Case(tuple(ids), setting=f"vocabulary {vocabulary}")
            hold(case, partial(_ask, make, 20, MAX_NODES, RULES, vocabulary=vocabulary))
