"""Merged trees: all that fits is in them once, and the maps say where."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from outrider import POINT, ROOT, DraftLaws, DraftTree, merge
from outrider.draft.tree import Places

TOKENS = st.integers(0, 3)


@st.composite
def trees(draw: st.DrawFn, scouts: bool = True) -> DraftTree:
    tree = DraftTree.from_paths(draw(st.lists(st.lists(TOKENS, max_size=5), max_size=5)))
    tokens, parents, size = list(tree.tokens), list(tree.parents), len(tree)
    for _ in range(draw(st.integers(0, 4)) if scouts else 0):
        tokens.append(draw(TOKENS))
        parents.append(draw(st.integers(-1, len(tokens) - 2)))
    return DraftTree(tuple(tokens), tuple(parents), scouts=frozenset(range(size, len(tokens))))


def _words(tree: DraftTree, nodes: Sequence[int] | None = None) -> list[tuple[int, ...]]:
    """The tokens on the path to every node."""
    every = range(len(tree)) if nodes is None else nodes
    return [tuple(tree.tokens[step] for step in tree.path(node)) for node in every]


def _candidates(tree: DraftTree) -> list[tuple[int, ...]]:
    return _words(tree, [node for node in range(len(tree)) if node not in tree.scouts])


@given(st.lists(trees(), max_size=4), st.integers(0, 20), st.integers(0, 20))
def test_a_merged_tree_holds_what_fits_once_and_says_where(given: list[DraftTree], budget: int, room: int) -> None:
    tree, maps = merge(given, budget, room)  # a duplicate, or a child without its parent, would be refused as malformed
    assert tree.candidates <= budget
    assert len(tree) <= room
    every = {word for one in given for word in _candidates(one)}
    found = _candidates(tree)
    assert len(found) == len(set(found)) == min(len(every), budget, room)
    assert set(found) <= every
    deepest = max(map(len, found), default=0)
    assert all(len(word) >= deepest for word in every.difference(found))
    assert len(maps) == len(given)
    for one, places in zip(given, maps, strict=True):
        assert len(places) == len(one)
        for node, (word, place) in enumerate(zip(_words(one), places, strict=True)):
            assert place is None or _words(tree, [place]) == [word]
            assert place is None or (place in tree.scouts) == (node in one.scouts)
            assert (place is None) == (word not in found) or node in one.scouts
            assert place is None or one.parents[node] == ROOT or places[one.parents[node]] == tree.parents[place]
        riding = [places[node] for node in sorted(one.scouts)]
        assert all(place is None for place in riding) or (None not in riding and len(set(riding)) == len(riding))
    assert set(tree.scouts) == {place for places in maps for place in places if place in tree.scouts}


@given(trees(), st.integers(1, 3))
def test_a_tree_merged_with_itself_is_itself(tree: DraftTree, times: int) -> None:
    merged, maps = merge([tree] * times, len(tree))
    assert merged == tree
    assert maps == [tuple(range(len(tree)))] * times


@given(trees(), st.lists(trees(), max_size=3))
def test_the_first_tree_comes_first_as_it_is(first: DraftTree, others: list[DraftTree]) -> None:
    merged, (places, *_) = merge([first, *others], 64)
    nodes = [place for node, place in enumerate(places) if node not in first.scouts]
    assert nodes == list(range(first.candidates))
    assert None not in places
    assert merged.tokens[: first.candidates] == first.tokens[: first.candidates]


@given(trees(), trees(), st.integers(0, 12))
def test_what_was_left_of_a_tree_is_found_in_it(tree: DraftTree, other: DraftTree, budget: int) -> None:
    _, (places, _) = merge([tree, other], budget)
    nodes = [node for node, place in enumerate(places) if place is not None]
    left = tree.keep(nodes)
    assert _words(left) == _words(tree, nodes)
    expected: Places = tuple(nodes.index(node) if node in nodes else None for node in range(len(tree)))
    assert tree.places_in(left) == expected
    assert tree.places_in(DraftTree()) == (None,) * len(tree)


def test_the_deepest_go_where_the_budget_is_short() -> None:
    chain, bush = DraftTree.chain([1, 2, 3, 4]), DraftTree((5, 1, 6), (ROOT, ROOT, 1))
    merged, maps = merge([chain, bush], 4)
    assert (merged.tokens, merged.parents) == ((1, 2, 5, 6), (ROOT, 0, ROOT, 0))
    assert maps == [(0, 1, None, None), (2, 0, 3)]


def test_scouts_come_after_candidates_and_only_all_together() -> None:
    window = DraftTree((9, 1, 2, 2), (ROOT, ROOT, 1, 1), scouts=frozenset({1, 2, 3}))
    chain = DraftTree.chain([9, 1])
    merged, maps = merge([window, chain], 2, 5)
    assert (merged.tokens, merged.parents) == ((9, 1, 1, 2, 2), (ROOT, 0, ROOT, 2, 2))
    assert merged.scouts == {2, 3, 4}
    assert maps == [(0, 2, 3, 4), (0, 1)]
    merged, maps = merge([window, chain], 2, 4)
    assert (merged.tokens, maps) == ((9, 1), [(0, None, None, None), (0, 1)])


def test_drawn_nodes_become_chosen_ones_and_coupling_stays() -> None:
    laws = DraftLaws(torch.full((1, 4), 0.25), replacement=True)
    drawn = DraftTree((2, 2, 1), (ROOT, ROOT, 1), (0, 0, POINT), laws)
    merged, maps = merge([drawn, DraftTree((1,), (ROOT,), coupled=True)], 9)
    assert (merged.tokens, merged.parents, merged.q_rows, merged.laws) == ((2, 1, 1), (ROOT, 0, ROOT), (), None)
    assert merged.coupled
    assert maps == [(0, 0, 1), (2,)]
    assert not merge([drawn], 9)[0].coupled
    left = drawn.keep([1, 2])
    assert (left.tokens, left.parents, left.q_rows, left.laws) == ((2, 1), (ROOT, 0), (0, POINT), laws)


@pytest.mark.parametrize("given", [[], [DraftTree()], [DraftTree(), DraftTree()]])
def test_nothing_merges_to_nothing(given: list[DraftTree]) -> None:
    assert merge(given, 9) == (DraftTree(), [()] * len(given))
