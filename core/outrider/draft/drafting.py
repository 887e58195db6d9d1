"""What drafts cost: the drafter's seconds by depth, what it takes to catch up after a pause, and the nodes of its trees."""

from collections.abc import Sequence
from typing import Final

from outrider.draft.timings import Timings
from outrider.draft.tree import DraftTree

_SOON: Final = 3
"""After fewer steps without a draft there is nothing to catch up with."""
_LATEST: Final = 0.2


class Drafting:
    """Learns from every draft.

    A drafter that reads along with a model of its own reads in its next draft what was written without it, and in the first
    the prompt. That is told apart from the draft itself.

    Args:
        seconds: of a draft by its depth; a table that never changes for a cost that is given.
        catch_up: seconds for every step without a draft; None to learn them.
    """

    def __init__(self, seconds: Timings, catch_up: float | None) -> None:
        self._seconds = seconds
        self._catch_up = Timings(_flat) if catch_up is None else Timings.fixed({1: catch_up}, _flat)
        self._nothing = Timings(_flat) if catch_up is None else Timings.fixed({}, _flat)
        self._nodes: list[float] = []
        self._unread = True
        self._missed = 0
        self._first: tuple[int, float] | None = None  # not charged yet

    def restart(self) -> None:
        """Hear that the drafter has a prompt to read."""
        self._unread, self._missed = True, 0

    def miss(self) -> None:
        """Hear of a step without a draft."""
        self._missed += 1

    def seconds(self, depth: int) -> float:
        """Return the seconds of a draft of this depth."""
        return self._seconds.at(depth)

    def nodes(self, depth: int) -> float:
        """Return the nodes that trees have at this depth."""
        return self._nodes[min(depth, len(self._nodes)) - 1] if self._nodes else 1.0

    @property
    def idle(self) -> float:
        """Seconds that the drafter takes to propose nothing."""
        return self._nothing.at(1)

    @property
    def late(self) -> float:
        """Seconds that the next draft takes longer for catching up."""
        return self._missed * self._catch_up.at(1) if self._missed >= _SOON else 0.0

    def learn_nothing(self, seconds: float) -> float:
        """Take in that the drafter was asked and proposed nothing; returns what that cost."""
        if not self._unread:
            self._nothing.add(1, seconds)
        self._unread, self._missed = False, 0
        return self.idle

    def learn(self, trees: Sequence[DraftTree], depth: int, seconds: float) -> float:
        """Take in a draft that could be `depth` deep.

        Returns:
            What it cost by all that is known, so that one slow call is not held against it. The first draft of a generation is
            charged with the second, when it is known how much of it was reading the prompt.
        """
        self._count(trees, depth)
        late, missed, self._missed = self.late, self._missed, 0
        if self._seconds.frozen:
            return self.seconds(depth) + late
        if self._unread:
            self._unread = False
            if self._seconds:
                return self.seconds(depth)
            self._first = (depth, seconds)
            return 0.0
        first, self._first = self._first, None
        if first:
            self._seconds.add(*first)  # no less than a draft takes, and so a bound where the second is slow
        known = self.seconds(depth)
        if first or missed < _SOON or seconds < known:
            self._seconds.add(depth, seconds)
            return self.seconds(depth) + (self.seconds(first[0]) if first else 0.0)
        self._catch_up.add(1, (seconds - known) / missed)
        return known + missed * self._catch_up.at(1)

    def _count(self, trees: Sequence[DraftTree], depth: int) -> None:
        """Learn how many nodes the widest row has at every depth."""
        counts = [0.0] * depth
        for tree in trees:
            own = [0.0] * depth
            for level in tree.depths():
                own[level - 1] += 1.0
            counts = list(map(max, counts, own))
        known = len(self._nodes)
        for level, count in enumerate(counts[:known]):
            self._nodes[level] += _LATEST * (count - self._nodes[level])
        self._nodes += counts[known:]


def _flat(_: float) -> float:
    return 1.0
