from itertools import permutations

import pytest

from outrider import DraftTree
from outrider.draft.tree import MalformedTreeError
from outrider.verify.match import match


def _law(tree: DraftTree, rows: dict[int, list[float]], length: int) -> dict[tuple[int, ...], float]:
    """The exact law of what a step emits: every combination of the target's draws, with its probability.

    `rows` holds the target's law after every node, -1 for the root. Draws that a walk does not ask for do not matter.
    """
    found: dict[tuple[int, ...], float] = {}

    def explore(chosen: dict[int, int], probability: float) -> None:
        asked: list[int] = []

        def draw(node: int) -> int:
            if node not in chosen:
                asked.append(node)
                raise LookupError
            return chosen[node]

        try:
            verdict = match(tree, draw)
        except LookupError:
            for token, p in enumerate(rows[asked[0]]):
                if p:
                    explore(chosen | {asked[0]: token}, probability * p)
            return
        emitted = (*[tree.tokens[node] for node in verdict.path], verdict.bonus)[:length]
        found[emitted] = found.get(emitted, 0.0) + probability

    explore({}, 1.0)
    return found


def test_a_deterministic_draft_does_not_bend_the_law() -> None:
    """A point-mass draft that would give [.833, 0, .167] if it were verified with a softmax q."""
    law = _law(DraftTree.chain([0]), {-1: [0.5, 0.3, 0.2], 0: [0.1, 0.2, 0.7]}, 1)
    assert law == pytest.approx({(0,): 0.5, (1,): 0.3, (2,): 0.2})


@pytest.mark.parametrize("siblings", list(permutations([2, 4, 5])))
def test_siblings_in_any_order_do_not_bend_the_law(siblings: tuple[int, ...]) -> None:
    root = [0.05, 0.1, 0.3, 0.25, 0.1, 0.2]
    rows = {-1: root} | {node: [1 / 6] * 6 for node in range(3)}
    law = _law(DraftTree(siblings, (-1, -1, -1)), rows, 1)
    assert law == pytest.approx({(token,): p for token, p in enumerate(root)})


def test_the_law_of_whole_steps_is_the_target_s_at_every_prefix() -> None:
    tree = DraftTree((0, 1, 0, 2), (-1, -1, 0, 0))
    rows = {-1: [0.6, 0.3, 0.1], 0: [0.2, 0.5, 0.3], 1: [0.1, 0.1, 0.8], 2: [0.3, 0.3, 0.4], 3: [0.9, 0.05, 0.05]}
    law = _law(tree, rows, 3)
    for emitted, probability in law.items():
        expected, node = 1.0, -1
        for token in emitted:
            expected *= rows[node][token]
            node = next((n for n in range(4) if (tree.parents[n], tree.tokens[n]) == (node, token)), -2)
        assert probability == pytest.approx(expected, abs=1e-15)
    assert sum(law.values()) == pytest.approx(1.0)


def test_the_expected_length_is_one_and_the_nodes_chances() -> None:
    """For deterministic trees no lossless rule accepts more."""
    tree = DraftTree((0, 1, 0), (-1, -1, 0))
    rows = {-1: [0.6, 0.3, 0.1], 0: [0.2, 0.5, 0.3], 1: [0.1, 0.1, 0.8], 2: [0.3, 0.3, 0.4]}
    expected = sum(len(emitted) * p for emitted, p in _law(tree, rows, 9).items())
    assert expected == pytest.approx(1 + 0.6 + 0.3 + 0.6 * 0.2)


def test_duplicate_siblings_are_refused() -> None:
    with pytest.raises(MalformedTreeError):
        DraftTree((2, 4, 2), (-1, -1, -1))


def test_a_token_is_emitted_whether_it_was_drafted_or_not() -> None:
    tree = DraftTree.chain([5, 6, 7])
    draws = {-1: 5, 0: 6, 1: 9, 2: 1}
    verdict = match(tree, draws.__getitem__)
    assert (verdict.path, verdict.bonus) == ((0, 1), 9)
    assert match(DraftTree(), draws.__getitem__).bonus == 5
