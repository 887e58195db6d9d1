"""Every registered drafter passes the kit, and faulty ones are caught by the check that is meant for them."""

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
import torch

import outrider
from outrider import DrafterOptions, DraftTree, DraftView, RowDrafter, TreeBatch
from outrider.check.checks import Check, CheckFailedError, drafter_checks
from outrider.check.targets import tiny_target
from outrider.draft.contract import API
from outrider.plugins.words import make_drafter
from support import OPTIONS

CHECKS = list(drafter_checks())


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
@pytest.mark.parametrize("name", [record.name for record in outrider.drafters()])
def test_registered_drafters_pass(name: str, check: Check) -> None:
    options = OPTIONS[name](tiny_target()) if name in OPTIONS else None
    check.run(lambda target: make_drafter(name, options, target))


class Honest(RowDrafter[DrafterOptions]):
    """Copies what followed the last token before."""

    name: ClassVar[str] = "honest"
    requires_api: ClassVar[tuple[int, int]] = API

    def __init__(self, target: Any) -> None:
        super().__init__(target, DrafterOptions())

    def propose_row(self, view: DraftView) -> DraftTree:
        ids = list(view.ids)
        places = [i for i in range(len(ids) - 1) if ids[i] == ids[-1]]
        found = ids[places[-1] + 1 :] if places else []
        return DraftTree.chain(found[: min(4, view.max_depth, view.max_nodes)])


class TooDeep(Honest):
    def propose_row(self, view: DraftView) -> DraftTree:
        return DraftTree.chain([1, 2, 3, 4])


class OutOfRange(Honest):
    def propose_row(self, view: DraftView) -> DraftTree:
        return DraftTree.chain([self.target.vocab_size])


class Twins(Honest):
    def propose(self, batch: Any) -> TreeBatch:
        return TreeBatch(torch.tensor([[1, 1]]), torch.tensor([[-1, -1]]))


class GlobalDice(Honest):
    def propose_row(self, view: DraftView) -> DraftTree:
        return DraftTree.chain([int(torch.randint(0, 64, (1,)))])


class Counting(Honest):
    """Proposes by how often it was asked."""

    asked = 0

    def propose_row(self, view: DraftView) -> DraftTree:
        self.asked += 1
        return DraftTree.chain([self.asked % 64])


class KeepsRejected(Honest):
    """Takes its own proposals for text, accepted or not."""

    def __init__(self, target: Any) -> None:
        super().__init__(target)
        self.believed: list[int] = []

    def observe(self, batch: outrider.OutcomeBatch) -> None:
        for outcome in batch.rows:
            self.believed += [*outcome.tree.tokens, *outcome.tokens]

    def propose_row(self, view: DraftView) -> DraftTree:
        last = self.believed[-3:]
        return DraftTree.chain([sum(last) % 64]) if view.max_depth else DraftTree()


class NeverForgets(KeepsRejected):
    """Is right within a row and keeps it for the next."""

    def observe(self, batch: outrider.OutcomeBatch) -> None:
        for outcome in batch.rows:
            self.believed += outcome.tokens


class ForcesViews(Honest):
    """Writes into what it is shown."""

    def propose_row(self, view: DraftView) -> DraftTree:
        view.ids[0] = 3  # type: ignore[index]
        return DraftTree()


ZOO: list[tuple[type[Honest], str]] = [
    (TooDeep, "tree-well-formed"),
    (OutOfRange, "tree-well-formed"),
    (Twins, "tree-well-formed"),
    (GlobalDice, "same-twice"),
    (Counting, "same-twice"),
    (KeepsRejected, "state"),
    (NeverForgets, "state"),
    (ForcesViews, "tree-well-formed"),
]


@pytest.mark.parametrize(("faulty", "name"), ZOO, ids=lambda value: getattr(value, "__name__", value))
def test_a_faulty_drafter_is_caught(faulty: type[Honest], name: str) -> None:
    (check,) = [one for one in CHECKS if one.name == name]
    with pytest.raises((CheckFailedError, outrider.DrafterError)):
        check.run(faulty)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_an_honest_drafter_is_not(check: Check) -> None:
    check.run(Honest)


@pytest.mark.parametrize("name", ["greedy-equality", "seed-equality"])
def test_a_lossy_verifier_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The equality checks are about the whole: a verifier that trusts the draft fails them."""
    from outrider.verify.match import Verdict

    def trusting(tree: DraftTree, draw: Any) -> Verdict:
        path: Sequence[int] = tree.path(0) if len(tree) else ()
        return Verdict(tuple(path), draw(path[-1] if path else -1))

    monkeypatch.setattr("outrider.verify.sampling.match", trusting)
    (check,) = [one for one in CHECKS if one.name == name]
    with pytest.raises(CheckFailedError, match="not that of plain decoding"):
        check.run(Honest)
