"""A drafter and a pace for a target that several processes hold: the first one's work for all."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from outrider.draft.batch import TreeBatch
from outrider.draft.contract import (
    API,
    DraftBatch,
    Drafter,
    DrafterOptions,
    DraftView,
    OutcomeBatch,
    RowStart,
    TargetInfo,
)
from outrider.draft.features import Needs
from outrider.draft.guard import Guard
from outrider.draft.pace import Pace, Plan, Taken
from outrider.draft.tree import DraftTree
from outrider.errors import DrafterError
from outrider.ranks import Ranks

Proposed = tuple[TreeBatch, list[DraftTree]]


def guard_for(drafter: Drafter[Any], ranks: Ranks) -> Guard:
    """Return a guard around a drafter, for the processes that share its target."""
    return LedGuard(drafter, ranks) if ranks.several else Guard(drafter)


class Resting(Drafter[DrafterOptions]):
    """Stands for the first process's drafter in the others, where nothing is asked of it.

    Args:
        target: the model.
        name: the drafter's.
    """

    name: ClassVar[str] = "resting"
    requires_api: ClassVar[tuple[int, int]] = API

    def __init__(self, target: TargetInfo, name: str) -> None:
        super().__init__(target, DrafterOptions())
        self.name = name  # type: ignore[misc]

    def propose(self, batch: DraftBatch) -> TreeBatch:
        """Fail: it is not asked."""
        raise NotImplementedError(
            f"'{self.name}' drafts in the first process alone, not for {len(batch.rows)} rows here"
        )


class LedPace(Pace):
    """The first process's pace, in all of them: by its clock alone.

    Args:
        pace: the first process's.
        ranks: the processes.
    """

    def __init__(self, pace: Pace, ranks: Ranks) -> None:
        self._pace, self._ranks = pace, ranks
        self._won = pace.won

    @property
    def won(self) -> float | None:
        """What drafting has won so far, in plain steps."""
        return self._won

    def restart(self) -> None:
        """Hear that a prompt is to be read."""
        self._pace.restart()

    def plan(self, views: Sequence[DraftView]) -> Plan:
        """Decide on the next step; only the first process's plan has views that are cut, since it alone drafts."""
        own = tuple(views)
        told = self._ranks.decided(lambda: self._pace.plan(own), lambda plan: replace(plan, views=()))
        return told if self._ranks.first else replace(told, views=own)

    def learn(self, plan: Plan, taken: Taken) -> None:
        """Hear what became of a step."""

        def learn() -> float | None:
            self._pace.learn(plan, taken)
            return self._pace.won

        self._won = self._ranks.decided(learn)


class LedGuard(Guard):
    """Asks the drafter of the first process; those of the others rest.

    Args:
        drafter: what is guarded.
        ranks: the processes.
    """

    def __init__(self, drafter: Drafter[Any], ranks: Ranks) -> None:
        super().__init__(drafter)
        self._ranks = ranks

    def needs(self) -> Needs:
        """Return what the drafter wants of the target's forwards, which all processes run alike."""
        needs = self._ranks.decided(super().needs)
        if needs.keys_values:
            raise DrafterError(
                f"{self.name} reads the target's keys and values, of which every process holds a part alone"
            )
        return needs

    def truncate(self, row: int, length: int) -> None:
        """Let a row go on from its first `length` ids."""
        self._ranks.decided(lambda: Guard.truncate(self, row, length))

    def begin(self, rows: Sequence[RowStart]) -> None:
        """Start rows."""
        self._ranks.decided(lambda: Guard.begin(self, rows))

    def propose(self, batch: DraftBatch) -> Proposed:
        """Return the first process's trees in all of them."""
        return self._ranks.decided(lambda: Guard.propose(self, batch), _sent)

    def observe(self, batch: OutcomeBatch) -> None:
        """Tell the drafter what was committed."""
        self._ranks.decided(lambda: Guard.observe(self, batch))

    def end(self, rows: Sequence[int]) -> None:
        """Let the drafter forget rows."""
        if self._ranks.first:
            super().end(rows)


def _sent(proposed: Proposed) -> Proposed:
    """Return trees whose laws lie on the CPU, as other processes can take them."""
    trees = [tree.on_cpu() for tree in proposed[1]]
    return TreeBatch.pack(trees), trees
