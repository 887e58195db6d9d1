"""The pace of a generation: how far to draft in the next step, and whether at all."""

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.draft.contract import DraftView
from outrider.draft.tree import DraftTree


@dataclass(frozen=True, slots=True)
class Plan:
    """What a step asks of the drafter.

    Args:
        views: of the rows, cut to the depth.
        depth: longest draft; None for as long as the rows have room, 0 for none.
        paused: rows have room for a draft, and are not asked.
    """

    views: tuple[DraftView, ...]
    depth: int | None = None
    paused: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a step.

    Args:
        trees: of the rows.
        accepted: of every row, how many drafted tokens held.
        emitted: of every row, how many tokens came out.
        draft_seconds: that the drafter took.
        forward_seconds: that the target's forward and verifying took.
    """

    trees: Sequence[DraftTree]
    accepted: Sequence[int]
    emitted: Sequence[int]
    draft_seconds: float
    forward_seconds: float

    @property
    def rows(self) -> int:
        """How many texts were decoded together."""
        return len(self.trees)

    @property
    def width(self) -> int:
        """Nodes of the widest tree."""
        return max(map(len, self.trees))

    @property
    def tokens(self) -> float:
        """Tokens that came out, a row."""
        return sum(self.emitted) / len(self.emitted)


class Pace:
    """Decides before every step how far to draft, and hears what became of it: here as far as the drafter likes, always."""

    @property
    def won(self) -> float | None:
        """What drafting has won against plain decoding so far, in plain steps; None where nobody counts."""
        return None

    def restart(self) -> None:
        """Hear that a prompt is to be read, which a drafter may do as late as in its next draft."""

    def plan(self, views: Sequence[DraftView]) -> Plan:
        """Decide on the next step from what its rows have room for."""
        return Plan(tuple(views))

    def learn(self, plan: Plan, taken: Taken) -> None:
        """Hear what became of a step."""
