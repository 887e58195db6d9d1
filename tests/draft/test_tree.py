import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from outrider import PADDING, ROOT, DraftTree, TreeBatch
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
