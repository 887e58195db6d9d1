"""The tree: what it counts, that nothing is left of what is taken back, and what a token costs."""

from array import array
from collections import Counter
from random import Random
from typing import Any

import pytest

from outrider_suffix.suffixes import BREAK, Node, SuffixTree


def tree_of(*texts: list[int], depth: int = 5) -> SuffixTree:
    tree = SuffixTree(depth)
    for at, text in enumerate(texts):
        if at:
            tree.close()
        tree.extend(text)
    return tree


def random_text(length: int, seed: int, tokens: int = 4) -> list[int]:
    return Random(seed).choices(range(tokens), k=length)


def strings(tree: SuffixTree, longest: int) -> dict[tuple[int, ...], list[tuple[int, int]]]:
    """What follows every string of the tree, leaves written out."""
    found: dict[tuple[int, ...], list[tuple[int, int]]] = {}

    def walk(node: Node, string: tuple[int, ...]) -> None:
        following = tree.following(node)
        found[string] = following
        for token, _ in following if len(string) < longest else ():
            child = tree.child(node, token)
            assert child is not None
            walk(child, (*string, token))

    walk(tree._root, ())
    return found


def counted(texts: list[list[int]], longest: int) -> dict[tuple[int, ...], Counter[int]]:
    """The same by going over all texts."""
    found: dict[tuple[int, ...], Counter[int]] = {}
    for text in texts:
        for end in range(len(text)):
            for size in range(min(longest, end) + 1):
                found.setdefault(tuple(text[end - size : end]), Counter())[text[end]] += 1
    return found


@pytest.mark.parametrize("seed", range(8))
def test_it_counts_what_follows_every_string(seed: int) -> None:
    texts = [random_text(30 + seed, seed), random_text(50, seed + 100), random_text(40, seed + 200)]
    depth = 5
    found = strings(tree_of(*texts, depth=depth), depth - 1)
    expected = counted(texts, depth - 1)
    for string, following in expected.items():
        assert dict(found[string]) == following
    for string, known in found.items():
        assert dict(known) == expected.get(string, {})
        assert [count for _, count in known] == sorted((count for _, count in known), reverse=True)


@pytest.mark.parametrize("seed", range(8))
def test_the_ends_are_the_strings_that_came_up_before(seed: int) -> None:
    text = random_text(60, seed)
    tree = tree_of(text)
    expected = counted([text], 5)
    longest = max((size for size in range(1, 6) if tuple(text[-size:]) in expected), default=0)
    assert len(tree.ends) == longest
    for size, node in enumerate(tree.ends, 1):
        assert dict(tree.following(node)).items() <= dict(expected[tuple(text[-size:])]).items()


@pytest.mark.parametrize("seed", range(20))
def test_what_is_taken_back_leaves_no_trace(seed: int) -> None:
    """Taken back and gone on from again and again, it is the tree of the text as it is."""
    random = Random(seed)
    earlier, text = random_text(20, seed + 1), random_text(50, seed)
    tree = tree_of(earlier, text)
    for _ in range(6):
        kept = random.randrange(len(text) + 1)
        text = text[:kept]
        tree.truncate(len(earlier) + 1 + kept)
        fresh = tree_of(earlier, text)
        assert strings(tree, 4) == strings(fresh, 4)
        assert [tree.following(node) for node in tree.ends] == [fresh.following(node) for node in fresh.ends]
        text = text + random_text(random.randrange(20), seed + kept)
        tree.extend(text[kept:])
        assert strings(tree, 4) == strings(tree_of(earlier, text), 4)


def test_no_string_reaches_across_two_texts() -> None:
    tree = tree_of([1, 2, 3], [4, 5], depth=4)
    assert all(BREAK not in string for string in strings(tree, 3))
    assert tree.following(tree.find([2, 3])[1]) == []
    tree.truncate(0)
    assert list(tree.ids) == [1, 2, 3, BREAK]


def test_of_equally_frequent_tokens_the_newest_comes_first() -> None:
    tree = tree_of([1, 5, 1, 6, 1, 7, 1, 6, 1])
    assert tree.following(tree.ends[0]) == [(6, 2), (7, 1), (5, 1)]


class Counting:
    """Counts the steps of a tree: nodes grown or looked up, and tokens read."""

    def __init__(self, tree: SuffixTree, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        counter = self

        class Numbers(array):  # type: ignore[type-arg]
            def __getitem__(self, key: Any) -> Any:
                found = array.__getitem__(self, key)
                counter.count += len(found) if isinstance(key, slice) else 1
                return array("i", found) if isinstance(key, slice) else found

            def __iter__(self) -> Any:
                raise AssertionError("nothing goes over a whole text")

        tree._ids = Numbers("i", tree._ids)
        for kind, name in ((Node, "grow"), (Node, "shrink"), (SuffixTree, "child"), (SuffixTree, "following")):
            self._count(patch, kind, name)

    def _count(self, patch: pytest.MonkeyPatch, kind: Any, name: str) -> None:
        original = getattr(kind, name)

        def counted(*arguments: Any) -> Any:
            self.count += 1
            return original(*arguments)

        patch.setattr(kind, name, counted)


def test_a_token_costs_the_same_at_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for length in (1_000, 50_000):
        tree = SuffixTree(16)
        tree.extend([*range(100, length + 100), *range(40), 77, *range(40), 78, *range(20)])
        with monkeypatch.context() as patch:
            counter = Counting(tree, patch)
            tree.extend(range(20, 40))
            grown = counter.count
            assert tree.find(tree.tail(16))
            looked = counter.count - grown
            tree.truncate(len(tree) - 30)
            counts.append((grown, looked, counter.count - grown - looked))
    assert counts[0] == counts[1]
    assert 0 < counts[0][0] <= 20 * 40
    assert 0 < counts[0][1] <= 16 * 16 + 100


def test_memory_is_what_repeats() -> None:
    """Text that never repeats has a leaf for every token, and no more."""

    def nodes(node: Node) -> int:
        return 1 + sum(map(nodes, (node.children or {}).values()))

    assert nodes(tree_of(list(range(1000)), depth=32)._root) == 1001
    assert nodes(tree_of(random_text(1000, 0, 50), depth=32)._root) < 5000
