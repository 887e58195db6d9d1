"""A drafter's random decisions come from the row's own stream for drafts, each once."""

from collections.abc import Iterator, Sequence

import torch

from outrider.check.check import Case, Check, CheckFailedError, Make, hold
from outrider.check.leading import Lead
from outrider.check.targets import prompt, tiny_target
from outrider.verify.decisions import Keyed, Stream


def checks() -> Iterator[Check]:
    """Yield the checks."""
    yield Check(
        "draft-stream",
        "sampling",
        "a step's draws have different indices, and none is a decision of the verifier's (C7)",
        _stream,
    )


class _Watched:
    """Decisions by the counter hash that tell what they were asked."""

    def __init__(self, seed: int, length: int) -> None:
        self._own, self.asked = Keyed(seed, length), list[int]()

    def noise(self, position: int, ids: torch.Tensor) -> torch.Tensor | None:
        return self._own.noise(position, ids)

    def choose_several(self, law: torch.Tensor, count: int, index: int) -> list[int]:
        self.asked.append(index)
        return self._own.choose_several(law, count, index)

    def at(self, length: int) -> "_Watched":
        raise CheckFailedError(f"the drafter asked for the decisions of another step, of {length} ids")

    def target(self, scores: torch.Tensor, position: int) -> torch.Tensor:  # noqa: ARG002
        raise CheckFailedError("the drafter asked for the target's own draw")

    def accept(self, probability: float, index: int) -> bool:  # noqa: ARG002
        raise CheckFailedError("the drafter asked for an acceptance, which is the verifier's")

    def choose(self, law: torch.Tensor, stream: Stream, index: int = 0) -> int:  # noqa: ARG002
        raise CheckFailedError(f"the drafter drew from the stream {Stream(stream).name}; use DraftView.draw")


def _stream(make: Make) -> None:
    target = tiny_target()

    def run(case: Case) -> None:
        for rule in ("match", "rejection"):
            with Lead(target, make(target.info), [case.ids]) as lead:
                lead.start([case.ids[0]])
                watched = _Watched(3, len(lead.rows[0].ids))
                lead.propose(rule=rule, decisions=watched)
            if twice := _repeated(watched.asked):
                raise CheckFailedError(f"two draws of a step have index {twice[0]}, and so the same noise")

    for ids in (prompt(20, 3), [5, 9, 5, 8, 5, 9, 5, 8, 5]):
        hold(Case(tuple(ids)), run)


def _repeated(indices: Sequence[int]) -> list[int]:
    return [index for index in dict.fromkeys(indices) if indices.count(index) > 1]
