"""Trees of a fixed shape: read, derived, and filled with candidates, against the same written out over paths."""

import itertools
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from outrider import Choices, DraftTree, DraftView, InputError, TokenView, draw_choices
from outrider.verify.decisions import Keyed

NOTEBOOK = [[0], [0, 0], [0, 1], [0, 2], [1], [1, 0], [1, 1], [1, 2]]
CPU = torch.device("cpu")
VOCAB = 12


def view_of(depth: int = 8, nodes: int = 64, seed: int | None = None) -> DraftView:
    decisions = None if seed is None else Keyed(seed).at(4)
    return DraftView(0, TokenView([1, 2, 3, 4]), depth, nodes, "rejection" if seed else "match", decisions)


def paths_of(tree: DraftTree) -> list[tuple[int, ...]]:
    return [tuple(tree.tokens[one] for one in tree.path(node)) for node in range(len(tree))]


def random_choices(seed: int, nodes: int = 20, ranks: int = 4, depth: int = 5) -> Choices:
    generator = torch.Generator().manual_seed(seed)

    def pick(count: int) -> int:
        return int(torch.randint(0, count, (1,), generator=generator))

    paths: list[tuple[int, ...]] = []
    while len(paths) < nodes:
        above = ((), *[path for path in paths if len(path) < depth])[pick(1 + sum(len(path) < depth for path in paths))]
        if (*above, rank := pick(ranks)) not in paths:
            paths.append((*above, rank))
    return Choices(tuple(paths))


def test_the_notebook_s_tree_is_laid_out_as_there() -> None:
    """Nine nodes with the root; depths and root-to-leaf rows, in whatever order the nodes come."""
    choices = Choices.of(NOTEBOOK)
    assert (len(choices), choices.depth, choices.ranks, choices.leaves) == (8, 2, 3, 6)
    candidates = torch.tensor([[[10, 11, 12], [20, 21, 22]]])
    (tree,) = choices.trees([view_of()], lambda depth, _: candidates[:, depth - 1, None], CPU).unpack()
    assert sorted(tree.depths()) == [1, 1, 2, 2, 2, 2, 2, 2]
    rows = {path for path in paths_of(tree) if len(path) == 2}
    assert rows == {(10, 20), (10, 21), (10, 22), (11, 20), (11, 21), (11, 22)}
    assert {(0, *tree.path(node)) for node in range(8) if not tree.children(node)} == {
        (0, *path) for path in [(0, 1), (0, 2), (0, 3), (4, 5), (4, 6), (4, 7)]
    }  # the first branch in front
    batch = choices.trees([view_of()], lambda depth, _: candidates[:, depth - 1, None], CPU)
    expected = torch.eye(9, dtype=torch.bool)
    for node in range(8):
        expected[node + 1, [0, *[one + 1 for one in tree.path(node)]]] = True
    assert torch.equal(batch.ancestors()[0], expected)


@pytest.mark.parametrize("seed", range(8))
def test_a_tree_holds_the_candidates_of_its_ranks(seed: int) -> None:
    """Candidates that hang on the token above; rows of different rooms, and some without all candidates."""
    choices = random_choices(seed)
    generator = torch.Generator().manual_seed(100 + seed)
    table = torch.stack([torch.randperm(VOCAB, generator=generator)[: choices.ranks] for _ in range(VOCAB + 1)])
    table[4, 1:] = -1  # after one token only a single other is known
    rooms = [(8, 64), (2, 64), (5, 7), (1, 1), (0, 0), (4, 0)]

    def candidates(depth: int, above: torch.Tensor | None) -> torch.Tensor:
        return table[torch.full((len(rooms), 1), VOCAB)] if above is None else table[above]

    trees = choices.trees([view_of(*room) for room in rooms], candidates, CPU).unpack()
    for (depth, nodes), tree in zip(rooms, trees, strict=True):
        found = []
        for ranks in choices.paths:
            above, path = VOCAB, []
            for rank in ranks:
                above = int(table[above, rank]) if above >= 0 else -1
                path.append(above)
            if len(path) <= depth and min(path) >= 0:
                found.append((ranks, tuple(path)))
        kept = dict(found[:nodes]) if depth else {}
        assert sorted(paths_of(tree)) == sorted(kept.values())
        for node in range(-1, len(tree)):
            tokens = [tree.tokens[child] for child in tree.children(node)]
            here = () if node < 0 else next(r for r, path in kept.items() if path == paths_of(tree)[node])
            assert tokens == [kept[ranks][-1] for ranks in sorted(kept) if ranks[:-1] == here]


def test_ids_of_a_smaller_vocabulary_become_the_target_s() -> None:
    ids = torch.tensor([7, 0, 33])
    found = torch.tensor([[[2, 1], [0, 2]]])
    (tree,) = (
        Choices.of([[0], [1], [0, 1]]).trees([view_of()], lambda depth, _: found[:, depth - 1, None], CPU, ids).unpack()
    )
    assert sorted(paths_of(tree)) == [(0,), (33,), (33, 33)]


def brute_force(accuracies: Sequence[Sequence[float]], nodes: int) -> float:
    """The best tree of all trees: every set of nodes that is closed under prefixes."""
    ranks = [range(len(chances)) for chances in accuracies]
    paths = [path for depth in range(1, len(ranks) + 1) for path in itertools.product(*ranks[:depth])]
    best = 0.0
    for chosen in itertools.combinations(paths, nodes):
        if all(path[:-1] in chosen or len(path) == 1 for path in chosen):
            best = max(best, sum(math.prod(accuracies[at][rank] for at, rank in enumerate(path)) for path in chosen))
    return best


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(
    "accuracies",
    [
        [[0.6, 0.2], [0.5, 0.3], [0.9, 0.05]],
        [[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]],
        [[0.3, 0.6], [0.1, 0.8], [1.0, 0.0]],  # measured, so not falling with the rank
        [[0.9, 0.04], [0.9, 0.04], [0.9, 0.04]],
    ],
)
def test_derived_trees_accept_the_most(accuracies: list[list[float]], nodes: int) -> None:
    found = Choices.derived(accuracies, nodes)
    assert len(found) == nodes
    assert found.expected(accuracies) == pytest.approx(brute_force(accuracies, nodes))
    for fewer in range(nodes):
        assert found.within(8, fewer) == Choices.derived(accuracies, fewer)


def test_the_expected_number_is_that_of_draws() -> None:
    """Depths right independently: how many are accepted on average, over every way in which they can be."""
    accuracies = [[0.5, 0.3], [0.6, 0.2], [0.4, 0.1]]
    choices, expected = random_choices(3, 9, 2, 3), 0.0
    for right in itertools.product(*[[*range(2), None]] * 3):
        chance = 1.0
        for at, rank in enumerate(right):
            chance *= 1 - sum(accuracies[at]) if rank is None else accuracies[at][rank]
        expected += chance * max(depth for depth in range(4) if depth == 0 or right[:depth] in choices.paths)
    assert choices.expected(accuracies) == pytest.approx(expected)


WRONG = {
    "path [0, 1] needs its prefix [0] before it": [[0, 1]],
    "path [1] is given twice": [[0], [1], [1]],
    "path [0, -1] holds -1; ranks are whole numbers from 0": [[0], [0, -1]],
    "path [] is the root, which is no node": [[0], []],
}


@pytest.mark.parametrize("error", WRONG)
def test_what_is_no_tree_is_refused(error: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=re.escape(error)):
        Choices.of(WRONG[error])
    (tmp_path / "tree.json").write_text(json.dumps(WRONG[error]))
    with pytest.raises(InputError, match=re.escape(f"tree.json: {error}")):
        Choices.read(tmp_path / "tree.json")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tree.json", json.dumps(NOTEBOOK)),
        ("tree.json", json.dumps({"choices": NOTEBOOK[::-1]})),
        ("tree.toml", f"choices = {NOTEBOOK}"),
        ("tree.txt", "# ranks\n" + "\n".join(" ".join(map(str, path)) for path in NOTEBOOK)),
        ("tree", "\n".join(", ".join(map(str, path)) for path in NOTEBOOK) + "\n\n"),
    ],
)
def test_files_of_paths_are_read(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    choices = Choices.read(tmp_path / name)
    assert set(choices.paths) == {tuple(path) for path in NOTEBOOK}
    assert choices == Choices(choices.paths)  # prefixes first, whatever the order in the file


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tree.json", "[[0]"),
        ("tree.json", "[0]"),
        ("tree.json", '[["a"]]'),
        ("tree.toml", "paths = [[0]]"),
        ("tree", "a"),
    ],
)
def test_other_files_are_refused(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=f"tree .*{name}: .*list of paths of ranks"):
        Choices.read(tmp_path / name)
    with pytest.raises(InputError, match="tree .*none: No such file"):
        Choices.read(tmp_path / "none")


def test_what_is_no_chance_is_refused() -> None:
    with pytest.raises(InputError, match="chances, from 0 to 1"):
        Choices.derived([[0.5, 1.5]], 3)


@pytest.mark.parametrize("seed", range(1, 6))
def test_drawn_trees_have_the_shape_whatever_is_drawn(seed: int) -> None:
    """As many siblings as there are ranks below a node, or as the law holds; from a law for every depth."""
    choices, ids = random_choices(seed, 12, 4, 3), torch.arange(VOCAB) * 2
    laws = torch.rand(3, VOCAB, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    laws[1, 2:] = 0  # two tokens only
    laws /= laws.sum(-1, keepdim=True)
    (tree,) = draw_choices([view_of(seed=seed)], choices, [laws], ids).unpack()
    shape = sorted(choices.paths, key=lambda path: (len(path), path))
    expected: list[int] = []
    known: set[tuple[int, ...]] = {()}
    for above in [(), *shape]:
        below = sorted(path for path in shape if path[:-1] == above)
        if above in known:
            kept = below[:2] if len(above) == 1 else below
            known |= set(kept)
            expected += [len(above) + 1] * len(kept)
    assert sorted(tree.depths()) == sorted(expected)
    assert tree.q_rows == tuple(depth - 1 for depth in tree.depths())
    assert tree.laws is not None
    assert torch.equal(tree.laws.q, laws)
    again, other = (draw_choices([view_of(seed=one)], choices, [laws], ids).unpack()[0] for one in (seed, seed + 50))
    assert again == tree
    assert len(other) == len(tree)
    assert other.tokens != tree.tokens
    small = draw_choices([view_of(2, 5, seed)], choices, [laws], ids).unpack()[0]
    assert len(small) <= 5
    assert small.depth <= 2
