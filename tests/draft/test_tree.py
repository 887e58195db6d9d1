import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from outrider import PADDING, ROOT, DraftTree, TreeBatch
from outrider.draft.laws import POINT, DraftLaws
from outrider.draft.tree import MalformedTreeError


@st.composite
def trees(draw: st.DrawFn) -> DraftTree:
    paths = draw(st.lists(st.lists(st.integers(0, 4), max_size=5), max_size=6))
    return DraftTree.from_paths(paths)


def test_chain_is_a_tree_without_branches() -> None:
    tree = DraftTree.chain([7, 8, 9])
    assert tree.parents == (ROOT, 0, 1)
    assert tree.depth == 3
    assert tree.path(2) == (0, 1, 2)


def test_paths_merge_where_they_begin_alike() -> None:
    tree = DraftTree.from_paths([[1, 2, 3], [1, 4], [5]])
    assert tree.tokens == (1, 2, 3, 4, 5)
    assert tree.parents == (ROOT, 0, 1, 0, ROOT)


def test_child_is_found_by_token_among_siblings() -> None:
    tree = DraftTree((1, 2, 3, 2), (ROOT, ROOT, 0, 0))
    assert tree.child(ROOT, 2) == 1
    assert tree.child(0, 2) == 3
    assert tree.child(0, 9) is None
    assert tree.child(3, 2) is None


@pytest.mark.parametrize(
    ("tokens", "parents", "message"),
    [
        ((1, 2), (ROOT,), "2 tokens but 1 parents"),
        ((1, 2), (1, ROOT), "node 0 has parent 1"),
        ((1,), (0,), "node 0 has parent 0"),
        ((1,), (-3,), "node 0 has parent -3"),
        ((1, 1), (ROOT, ROOT), "repeats its sibling's token 1"),
        ((-1,), (ROOT,), "not negative"),
    ],
)
def test_malformed_trees_are_refused_where_they_are_built(
    tokens: tuple[int, ...], parents: tuple[int, ...], message: str
) -> None:
    with pytest.raises(MalformedTreeError, match=message):
        DraftTree(tokens, parents)


@given(st.lists(trees(), min_size=1, max_size=4))
def test_a_batch_gives_back_what_was_packed(rows: list[DraftTree]) -> None:
    batch = TreeBatch.pack(rows)
    assert batch.tokens.shape == batch.parents.shape == (len(rows), max(map(len, rows)))
    assert batch.unpack() == rows


@given(st.lists(trees(), min_size=1, max_size=3))
def test_ancestors_are_those_of_a_walk_to_the_root(rows: list[DraftTree]) -> None:
    reach = TreeBatch.pack(rows).ancestors()
    for row, tree in enumerate(rows):
        for node in range(reach.shape[1] - 1):
            expected = {node + 1}
            if node < len(tree):
                expected |= {0} | {other + 1 for other in tree.path(node)}
            assert set(reach[row, node + 1].nonzero().flatten().tolist()) == expected
        assert reach[row, 0].nonzero().flatten().tolist() == [0]


def test_padding_is_marked() -> None:
    batch = TreeBatch.pack([DraftTree.chain([1, 2]), DraftTree()])
    assert batch.parents.tolist() == [[ROOT, 0], [PADDING, PADDING]]
    assert batch.width == 2


def test_a_batch_made_of_tensors_is_checked_too() -> None:
    batch = TreeBatch(torch.tensor([[1, 1]]), torch.tensor([[ROOT, ROOT]]))
    with pytest.raises(MalformedTreeError):
        batch.unpack()


def test_rows_of_a_batch_may_come_from_different_drafters() -> None:
    """Laws over different vocabularies, with and without replacement, and rows that have none."""
    halves = torch.full((1, 2), 0.5, dtype=torch.float64)
    one = DraftTree((7, 7), (ROOT, ROOT), (0, 0), DraftLaws(halves, torch.tensor([7, 3]), replacement=True))
    other = DraftTree((2, 4), (ROOT, 0), (POINT, 4), DraftLaws(torch.eye(5)))
    rows = [one, DraftTree.chain([1, 2, 3]), other, DraftTree(), one]
    found = TreeBatch.pack(rows).unpack()
    assert found == rows
    assert [tree.laws for tree in found] == [tree.laws for tree in rows]
    again = TreeBatch.pack(found).unpack()
    assert [tree.laws for tree in again] == [tree.laws for tree in rows]


def test_a_coupled_row_makes_its_batch_coupled() -> None:
    coupled = DraftTree((1,), (ROOT,), coupled=True)
    batch = TreeBatch.pack([DraftTree.chain([1, 2]), coupled, DraftTree()])
    assert batch.coupled
    assert [tree.tokens for tree in batch.unpack()] == [(1, 2), (1,), ()]
    assert [tree.coupled for tree in batch.unpack()] == [True, True, False]


def test_laws_of_too_few_rows_are_refused() -> None:
    tokens = torch.zeros(2, 1, dtype=torch.long)
    batch = TreeBatch(tokens, tokens - 1, tokens, (DraftLaws(torch.ones(1, 1)),))
    with pytest.raises(MalformedTreeError, match="laws of 1 rows for 2 trees"):
        batch.unpack()


def test_rows_of_a_larger_batch_keep_their_laws() -> None:
    drawn = DraftTree((1,), (ROOT,), (0,), DraftLaws(torch.eye(2)[1:]))
    found = TreeBatch.pack([drawn, DraftTree.chain([3])]).among([1, 2], 4).unpack()
    assert found == [DraftTree(), drawn, DraftTree.chain([3]), DraftTree()]
    assert [tree.laws for tree in found] == [None, drawn.laws, None, None]
