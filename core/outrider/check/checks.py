"""The checks: each says what it expects, and raises with the smallest thing that it saw."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from outrider.check.targets import REPETITIVE, VARIED, VOCABULARY, plain_text, prompt, tiny_target
from outrider.draft.contract import (
    MAX_NODES,
    DraftBatch,
    Drafter,
    DraftView,
    Outcome,
    OutcomeBatch,
    RowStart,
    TargetInfo,
    TokenView,
)
from outrider.draft.guard import Guard
from outrider.draft.tree import DraftTree
from outrider.errors import OutriderError
from outrider.generation import generate
from outrider.verify.decisions import Keyed

Factory = Callable[[TargetInfo], Drafter[Any]]
"""Makes a fresh drafter for a target."""


_SAMPLING: Final[tuple[dict[str, Any], ...]] = (
    {"temperature": 0.5},
    {"temperature": 1.0, "top_k": 3},
    {"temperature": 2.0, "top_p": 0.5},
    {"repetition_penalty": 1.3},
)


class CheckFailedError(OutriderError):
    """A drafter that does not do what every drafter must."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that every drafter must do.

    Args:
        name: by which it is picked.
        expects: what it asks, in a sentence.
        run: raises `CheckFailedError`, or an `OutriderError` of the drafter's own making.
    """

    name: str
    expects: str
    run: Callable[[Factory], None]


def drafter_checks() -> Iterator[Check]:
    """Yield every check."""
    yield Check("tree-well-formed", "trees keep to the contract and to the room that the row has", _tree_well_formed)
    yield Check(
        "same-twice",
        "the same text gets the same tree, and no global generator is touched",
        _same_twice,
    )
    yield Check("greedy-equality", "greedy text is that of plain decoding", _greedy_equality)
    yield Check("seed-equality", "the same seed gives the same text as without a drafter", _seed_equality)
    yield Check("state", "after any acceptance the next tree is that of a fresh drafter with the same text", _state)


class _Row:
    """A drafter on one row, led by hand through any acceptances."""

    def __init__(self, drafter: Drafter[Any], ids: Sequence[int], row: int = 0) -> None:
        self.guard, self.row = Guard(drafter), row
        self.view, self.length = TokenView(ids), len(ids)
        self.guard.begin([RowStart(row, self.view, 0)])

    def commit(self, tokens: Sequence[int], tree: DraftTree, path: Sequence[int]) -> None:
        self.view.grow(tokens)
        self.guard.observe(OutcomeBatch((Outcome(self.row, self.view, tuple(tokens), tree, tuple(path)),)))

    def propose(self, depth: int = 20, nodes: int = MAX_NODES, seed: int | None = None) -> DraftTree:
        decisions = None if seed is None else Keyed(seed, len(self.view))
        view = DraftView(self.row, self.view, depth, nodes, "match", decisions)
        _, (tree,) = self.guard.propose(DraftBatch((view,)))
        return tree


def _texts() -> Iterator[list[int]]:
    """Texts of many lengths, new and repeating, down to a single token."""
    for length in (1, 2, 3, 17, 60):
        yield prompt(length, length)
        yield (prompt(4, length) * length)[:length]
    yield [7] * 30


def _tree_well_formed(make: Factory) -> None:
    target = tiny_target()
    for ids in _texts():
        row = _Row(make(target.info), ids)
        row.commit(prompt(1, 5), DraftTree(), ())
        for depth, nodes in ((1, 1), (2, 3), (20, MAX_NODES)):
            for seed in (None, 3):
                row.propose(depth, nodes, seed)


def _same_twice(make: Factory) -> None:
    target = tiny_target()
    for ids in _texts():
        before = torch.get_rng_state()
        rows = [_Row(make(target.info), ids) for _ in range(2)]
        trees = []
        for row in rows:
            row.commit([ids[0]], DraftTree(), ())
            trees.append(row.propose())
        if trees[0] != trees[1] or rows[0].propose() != trees[0]:
            raise CheckFailedError(f"after the ids {ids[:12]}... the drafter proposed different trees")
        if not torch.equal(torch.get_rng_state(), before):
            raise CheckFailedError(
                "the drafter drew from torch's global generator; use DraftView.draw or the row's seed"
            )


def _greedy_equality(make: Factory) -> None:
    for seed in range(10):
        for spread in (VARIED, REPETITIVE):
            target = tiny_target(seed % 4, spread)
            ids = prompt((1, 2, 3, 20, 40)[seed % 5], seed)
            count = (1, 2, 40)[seed % 3]
            _same(
                generate(target, ids, make(target.info), max_new_tokens=count, adaptive=False).token_ids,
                plain_text(target, ids, count),
                ids,
            )


def _seed_equality(make: Factory) -> None:
    for seed, options in enumerate(
        (
            {"temperature": 0.5},
            {"temperature": 1.0, "top_k": 3},
            {"temperature": 2.0, "top_p": 0.5},
            {"repetition_penalty": 1.3},
        )
    ):
        target, ids = tiny_target(seed, REPETITIVE), prompt(9, seed)
        settings: dict[str, Any] = {"max_new_tokens": 32, "seed": seed, "do_sample": True, **options}
        drafted = generate(target, ids, make(target.info), adaptive=False, **settings)
        _same(drafted.token_ids, generate(target, ids, "none", **settings).token_ids, ids)


def _same(found: Sequence[int], expected: Sequence[int], ids: Sequence[int]) -> None:
    if list(found) != list(expected):
        place = next(i for i, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1])
        raise CheckFailedError(f"after the prompt {list(ids)[:8]}... new token {place} is not that of plain decoding")


def _state(make: Factory) -> None:
    target = tiny_target()
    generator = torch.Generator().manual_seed(1)
    for ids in ([*prompt(6, 3), *prompt(6, 3)], [4, 5] * 6, prompt(12, 9)):
        drafter = make(target.info)
        row = _Row(drafter, ids)
        row.commit([ids[0]], DraftTree(), ())
        said = [ids[0]]
        for step in range(8):
            tree = row.propose()
            kept = int(torch.randint(0, len(tree) + 1, (1,), generator=generator))
            path = tree.path(kept - 1) if kept else ()
            bonus = (
                int(torch.randint(0, VOCABULARY, (1,), generator=generator)) if step % 2 else ids[(step + 1) % len(ids)]
            )
            tokens = [*[tree.tokens[node] for node in path], bonus]
            row.commit(tokens, tree, path)
            said += tokens
            fresh = _Row(make(target.info), ids)
            for token in said:
                fresh.commit([token], DraftTree(), ())
            if row.propose() != fresh.propose():
                raise CheckFailedError(
                    f"after step {step} with {len(path)} accepted, the tree is not that of a fresh drafter"
                )
        row.guard.end([row.row])
        again, new = _Row(drafter, ids, row=1), _Row(make(target.info), ids)
        if again.propose() != new.propose():
            raise CheckFailedError(
                "a second row gets another tree than a fresh drafter's first: the first row left something"
            )
