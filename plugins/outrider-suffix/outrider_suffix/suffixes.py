"""A suffix tree of bounded depth that grows and shrinks a token at a time.

It counts every string of up to `depth` tokens of some texts, as SuffixDecoding's trees do (Oliaro et al. 2024,
arXiv:2411.04975, section 3). A string that occurred once is a leaf that names its place, since what follows it can be read in
the text; only where two places share a string is there a branch. So a new token costs as many steps as the longest repetition
that it goes on with, and at most `depth`, however long the text is.
"""

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

BREAK: Final = -1


class Node:
    """The places where a string ends.

    Args:
        first: the first of them: which token follows it there.

    `children` are by the token that follows, None while the only place says it all. `ranked` holds them as (-count, -first,
    token): the most frequent first, of equals the one that came up last.
    """

    __slots__ = ("children", "count", "first", "ranked")

    def __init__(self, first: int) -> None:
        self.first, self.count = first, 1
        self.children: dict[int, Node] | None = None
        self.ranked: list[tuple[int, int, int]] = []

    def grow(self, token: int, place: int) -> "Node":
        """Take in that a token follows, so that the string with it ends before `place`; returns that string's node."""
        if self.children is None:
            self.children = {}
        child = self.children.get(token)
        if child is None:
            child = self.children[token] = Node(place)
        else:
            self._unrank(token, child)
            child.count += 1
        insort(self.ranked, (-child.count, -child.first, token))
        return child

    def shrink(self, token: int, child: "Node") -> None:
        """Take back once that a token follows; what has one place left is a leaf again."""
        self._unrank(token, child)
        child.count -= 1
        if child.count:
            insort(self.ranked, (-child.count, -child.first, token))
        elif self.children is not None:
            del self.children[token]
        if child.count == 1:
            child.children, child.ranked = None, []

    def _unrank(self, token: int, child: "Node") -> None:
        del self.ranked[bisect_left(self.ranked, (-child.count, -child.first, token))]


class SuffixTree:
    """The strings of some texts, one after another, of which the last can be shortened.

    Args:
        depth: longest string that is counted.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._ids = array("i")
        self._start = 0
        self._root = Node(0)
        self._ends: list[Node] = []

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> Sequence[int]:
        """What was taken in; between two texts there is `BREAK`."""
        return self._ids

    @property
    def ends(self) -> Sequence[Node]:
        """The nodes of the last 1, 2, ... tokens of the last text, as far as they came up before."""
        return self._ends

    def tail(self, most: int) -> list[int]:
        """Return the last tokens of the last text."""
        return self._ids[max(self._start, len(self._ids) - most) :].tolist()

    def extend(self, ids: Iterable[int]) -> None:
        """Take in what the last text goes on with."""
        for token in ids:
            self.append(token)

    def append(self, token: int) -> None:
        """Take in one token."""
        self._ids.append(token)
        ends = []
        for node in (self._root, *self._ends[: self._depth - 1]):
            self._unfold(node)
            child = node.grow(token, len(self._ids))
            if child.count > 1:  # else it came up for the first time, and so did every longer string
                ends.append(child)
        self._ends = ends

    def close(self) -> None:
        """End the text; no string and no continuation reaches across."""
        if self._start < len(self._ids):
            self._ids.append(BREAK)
            self._start, self._ends = len(self._ids), []

    def truncate(self, length: int) -> None:
        """Take back what the last text holds beyond `length` tokens in all; every token costs up to `depth` squared."""
        while len(self._ids) > max(length, self._start):
            token = self._ids[-1]
            for size in range(min(self._depth, len(self._ids) - self._start), 0, -1):
                node = self._node(self._ids[len(self._ids) - size : -1])
                if node is not None and node.children is not None:
                    node.shrink(token, node.children[token])
            self._ids.pop()
        self._ends = [node for node in self._walk(self.tail(self._depth)) if node.count > 1]

    def find(self, tail: Sequence[int]) -> list[Node]:
        """Return the nodes of another text's last 1, 2, ... tokens, as far as they came up here."""
        return list(self._walk(tail[-self._depth :]))

    def _walk(self, tail: Sequence[int]) -> Iterator[Node]:
        for size in range(1, len(tail) + 1):
            node = self._node(tail[len(tail) - size :])
            if node is None:
                return
            yield node

    def following(self, node: Node) -> list[tuple[int, int]]:
        """Return the tokens that follow a node's string, and how often; the most frequent first, and no more than a few."""
        if node.children is not None:
            return [(token, -count) for count, _, token in node.ranked[:_WIDEST]]
        token = self._ids[node.first] if node.first < len(self._ids) else BREAK
        return [] if token == BREAK else [(token, 1)]

    def child(self, node: Node, token: int) -> Node | None:
        """Return the node of a node's string and a token that follows it."""
        if node.children is not None:
            return node.children.get(token)
        known = node.first < len(self._ids) and self._ids[node.first] == token != BREAK
        return Node(node.first + 1) if known else None

    def _node(self, string: Sequence[int]) -> Node | None:
        node: Node | None = self._root
        for token in string:
            node = self.child(node, token) if node is not None else None
        return node

    def _unfold(self, node: Node) -> None:
        """Write down what follows a string at its only place so far, before another is added."""
        if node.children is not None or node is self._root:
            return
        node.children = {}
        # The string itself has two places by now, and the new one's token is not written down yet.
        if node.first < len(self._ids) - 1 and self._ids[node.first] != BREAK:
            node.grow(self._ids[node.first], node.first + 1)


_WIDEST: Final = 16
"""How many continuations of a string are looked at."""
