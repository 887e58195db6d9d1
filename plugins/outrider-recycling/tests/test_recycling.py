"""The drafter: what it learns from which nodes, that the text stays the target's own, and that it passes the kit."""

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch

import outrider
from outrider import DraftBatch, DraftTree, DraftView, Features, InputError, Outcome, OutcomeBatch, RowStart, TokenView
from outrider.check import parametrize_with_checks
from outrider.check.targets import REPETITIVE, VARIED, VOCABULARY, plain_text, prompt, tiny_target
from outrider_recycling.drafter import Recycling, RecyclingOptions


def test_it_is_found_by_its_name() -> None:
    (record,) = [one for one in outrider.drafters() if one.name == "recycling"]
    assert record.drafter is Recycling
    assert record.distribution == "outrider-recycling"


@parametrize_with_checks("recycling", "recycling[depth=3,nodes=5,successors=2,coupled=false]")
def test_it_passes_the_kit(drafter: str, check: Any) -> None:
    check(drafter)


def says(*tokens: int) -> torch.Tensor:
    """Logits of which each row says a token, and the next one a little less."""
    logits = torch.zeros(len(tokens), VOCABULARY)
    for row, token in enumerate(tokens):
        logits[row, token], logits[row, token + 1] = 9.0, 8.0
    return logits


class Fed:
    """The drafter on rows that are fed by hand."""

    def __init__(self, ids: list[int], drafter: Recycling | None = None, row: int = 0, **options: Any) -> None:
        self.drafter = drafter or Recycling(tiny_target().info, RecyclingOptions(**options))
        self.view, self.row = TokenView(ids), row
        self.drafter.begin([RowStart(row, self.view, 0)])

    def hear(self, tokens: list[int], tree: DraftTree, path: tuple[int, ...], logits: torch.Tensor) -> None:
        self.view.grow(tokens)
        first = len(self.view) - len(tokens) - 1
        features = Features({}, (0, *[node + 1 for node in path]), logits, first)
        self.drafter.observe(OutcomeBatch((Outcome(self.row, self.view, tuple(tokens), tree, path, features),)))

    def propose(self, depth: int = 50, nodes: int = 64) -> DraftTree:
        (tree,) = self.drafter.propose(DraftBatch((DraftView(self.row, self.view, depth, nodes),))).unpack()
        return tree


def test_rejected_nodes_teach_too() -> None:
    fed = Fed([5], depth=2, nodes=4, successors=2)
    assert len(fed.propose()) == 0
    # The root 5 says 7; of its draft 6 - 8 nothing is accepted, and yet 6 says 20 and 8 says 30.
    fed.hear([7], DraftTree.chain([6, 8]), (), says(7, 20, 30))
    fed.hear([6], DraftTree(), (), says(6))
    tree = fed.propose()
    assert [tree.tokens[node] for node in tree.children(-1)] == [20, 21]
    fed.hear([5], DraftTree(), (), says(5))
    assert [fed.propose().tokens[node] for node in fed.propose().children(-1)] == [7, 8]
    assert fed.propose().children(0)  # 7 was scored as a root
    assert Fed([6], fed.drafter, row=1).propose().tokens == ()


def test_what_was_committed_counts_before_what_was_not() -> None:
    fed = Fed([5], depth=1, nodes=1, successors=1)
    tree = DraftTree((6, 9, 6), (-1, -1, 1))
    fed.hear([6, 40], tree, (0,), says(6, 40, 50, 60))
    fed.hear([6], DraftTree(), (), says(6))
    assert fed.propose().tokens == (40,)


def test_only_the_end_of_a_prompt_teaches() -> None:
    fed = Fed([11, 12, 13, 14], depth=1, nodes=1)
    piece = Features({}, (0, 1), says(20), 0)
    fed.drafter.observe(OutcomeBatch((Outcome(0, fed.view, (), DraftTree(), (), piece),)))
    fed.view.grow([12])
    last = Features({}, (0, 1), says(12), 2)
    fed.drafter.observe(OutcomeBatch((Outcome(0, fed.view, (12,), DraftTree(), (), last),)))
    assert fed.propose().tokens == ()
    fed.view.grow([14])
    assert fed.propose().tokens == (12,)


def test_what_others_proposed_teaches_as_well() -> None:
    """In a cascade: tokens that were committed beside the own tree come after its nodes."""
    fed = Fed([5], depth=1, nodes=1)
    fed.view.grow([6, 7, 5])
    features = Features({}, (0, 1, 2), says(6, 7, 5), 0)
    fed.drafter.observe(OutcomeBatch((Outcome(0, fed.view, (6, 7, 5), DraftTree(), (), features),)))
    assert fed.propose().tokens == (6,)
    fed.view.grow([7])
    assert fed.propose().tokens == (5,)


def test_the_draft_keeps_within_the_room_and_the_options(tmp_path: Path) -> None:
    (tmp_path / "tree.txt").write_text("0\n1\n0 0\n0 0 0\n")
    fed = Fed([1], tree=str(tmp_path / "tree.txt"))
    chain = DraftTree.chain([2, 3, 4, 1])
    fed.hear([2, 3, 4, 1, 1], chain, (0, 1, 2, 3), says(2, 3, 4, 1, 1))
    fed.hear([1], DraftTree(), (), says(2))
    assert fed.propose() == DraftTree((2, 3, 4, 3), (-1, 0, 1, -1))
    assert fed.propose(depth=1) == DraftTree((2, 3), (-1, -1))
    assert fed.propose(nodes=1) == DraftTree.chain([2])


def test_memory_is_a_matrix_a_row_or_one_in_all() -> None:
    target = tiny_target().info
    for keep in (False, True):
        drafter = Recycling(target, RecyclingOptions(keep=keep))
        tracemalloc.start()
        try:
            for request in range(200):
                drafter.begin([RowStart(2 * request + row, TokenView([1]), 0) for row in (0, 1)])
                assert (drafter._rows[2 * request] is drafter._rows[2 * request + 1]) is keep
                drafter.end([2 * request, 2 * request + 1])
                assert not drafter._rows
            grown = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert grown < 100_000


def test_what_is_kept_serves_the_next_request_and_nothing_else_is() -> None:
    target, ids = tiny_target(1, VARIED), prompt(9)
    steps = {}
    for keep in (False, True):
        drafter = Recycling(target.info, RecyclingOptions(keep=keep))
        asked: dict[str, Any] = {"max_new_tokens": 40, "adaptive": False}
        first, second = (outrider.generate(target, ids, drafter, **asked) for _ in range(2))
        assert list(first.token_ids) == list(second.token_ids) == plain_text(target, ids, 40)
        steps[keep] = first.stats.num_steps, second.stats.num_steps
    assert steps[False][1] == steps[False][0]
    assert steps[True][1] < steps[True][0]


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("spread", [VARIED, REPETITIVE])
def test_batches_are_their_rows_alone_greedy_and_sampled(keep: bool, spread: float) -> None:
    target = tiny_target(1, spread)
    prompts = [prompt(20) * 2, prompt(9, 1) * 3, prompt(15, 2)]
    accepted = 0
    for asked in ({"temperature": 0}, {"temperature": 0.8, "seed": 3}, {"temperature": 1.2, "seed": 4, "top_k": 5}):
        options: dict[str, Any] = {"adaptive": False, "max_new_tokens": 30, **asked}
        drafter = Recycling(target.info, RecyclingOptions(keep=keep))
        rows = outrider.generate_batch(target, prompts, drafter, **options)
        plain = outrider.generate_batch(target, prompts, "none", **options)
        assert [row.token_ids for row in rows] == [row.token_ids for row in plain]
        accepted += sum(row.stats.num_accepted_draft_tokens for row in rows)
        assert not drafter._rows
    assert accepted > 20


def test_a_session_goes_on_with_what_it_has_learned() -> None:
    target = tiny_target(2, REPETITIVE)
    with outrider.session(target, Recycling, adaptive=False, max_new_tokens=20) as talk:
        talk.generate(prompt(9))
        talk.truncate(15)
        result = talk.generate(prompt(5, 1))
    assert list(result.token_ids) == plain_text(target, talk.ids[: len(talk.ids) - 20], 20)
    assert result.stats.num_accepted_draft_tokens > 0


def test_noise_decides_between_the_successors() -> None:
    """Coupled, the child of the largest log q + noise comes first, and more is accepted than by likelihood alone."""
    target = tiny_target(5, REPETITIVE)
    accepted = {True: 0, False: 0}
    for coupled in accepted:
        for seed in range(12):
            asked: dict[str, Any] = {"temperature": 1.0, "seed": seed, "max_new_tokens": 60, "adaptive": False}
            drafter = Recycling(target.info, RecyclingOptions(coupled=coupled, nodes=4))
            result = outrider.generate(target, prompt(6, seed), drafter, **asked)
            accepted[coupled] += result.stats.num_accepted_draft_tokens
    assert accepted[True] > accepted[False] > 0


def test_nothing_is_read_from_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Right on a GPU by construction: a step of the drafter asks no tensor for its values."""
    fed = Fed([5])
    fed.hear([7], DraftTree.chain([6, 8]), (), says(7, 20, 30))

    def read(*_: Any) -> Any:
        raise AssertionError("a value was read from a tensor")

    with monkeypatch.context() as patch:
        for name in ("item", "tolist", "__bool__", "__int__", "__float__", "cpu", "numpy", "nonzero"):
            patch.setattr(torch.Tensor, name, read)
        batch = fed.drafter.propose(DraftBatch((DraftView(0, fed.view, 9, 64),)))
        fed.hear([5], DraftTree.chain([6, 8]), (), says(7, 20, 30))
    assert isinstance(batch, outrider.TreeBatch)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": 65}, "option nodes = 65: input should be less than or equal to 64"),
        ({"tree": "x.txt", "nodes": 3}, "nodes is for the derived tree, and tree = 'x.txt' has its own"),
        ({"tree": "missing.txt"}, "tree missing.txt: No such file"),
        ({"successor": 3}, "unknown option 'successor'. Did you mean 'successors'?"),
    ],
)
def test_a_wrong_option_is_refused_in_a_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        outrider.generate(tiny_target(), [1, 2], "recycling", options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_tree_of_more_ranks_than_successors_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tree.txt").write_text("0\n5\n")
    with pytest.raises(InputError, match="takes rank 5, and 3 successors are kept; successors = 6 keeps enough"):
        Recycling(tiny_target().info, RecyclingOptions(tree=str(tmp_path / "tree.txt"), successors=3))
