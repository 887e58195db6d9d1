"""What earlier requests were answered, bounded: the one state that outlives a row."""

from collections.abc import Sequence

from outrider_suffix.suffixes import SuffixTree


class OutputStore:
    """The latest outputs, up to a number of tokens, in two trees of half of that.

    When the younger is full it becomes the older, and what the older held is dropped as a whole: nothing has to be taken out of
    a tree, and between half and all of the room is in use.

    Args:
        tokens: most tokens that are kept.
        depth: of the trees.
    """

    def __init__(self, tokens: int, depth: int) -> None:
        self._half, self._depth = tokens // 2, depth
        self._young, self._old = SuffixTree(depth), SuffixTree(depth)

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    @property
    def trees(self) -> tuple[SuffixTree, SuffixTree]:
        """Both trees, the younger first."""
        return self._young, self._old

    def add(self, ids: Sequence[int]) -> None:
        """Take in an output; of one that is longer than there is room for, the last part stays."""
        ids = ids[-(self._half - 1) :]
        if len(self._young) + len(ids) >= self._half:
            self._young, self._old = SuffixTree(self._depth), self._young
        self._young.extend(ids)
        self._young.close()
