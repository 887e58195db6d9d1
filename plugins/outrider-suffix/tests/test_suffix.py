"""The drafter: what it proposes, that the text stays the target's own, and that it passes the kit."""

from collections.abc import Sequence
from typing import Any

import pytest

import outrider
from outrider import DraftBatch, DraftTree, DraftView, InputError, Outcome, OutcomeBatch, RowStart, TokenView
from outrider.check import parametrize_with_checks
from outrider.check.targets import REPETITIVE, VARIED, plain_text, prompt, tiny_target
from outrider_suffix.drafter import Suffix, SuffixOptions
from outrider_suffix.store import OutputStore
from outrider_suffix.suffixes import SuffixTree


class Fed:
    """The drafter on one row, fed by hand."""

    def __init__(self, ids: Sequence[int], drafter: Suffix | None = None, row: int = 0, **options: Any) -> None:
        self.drafter = drafter or Suffix(tiny_target().info, SuffixOptions(**options))
        self.view, self.row = TokenView(ids), row
        self.drafter.begin([RowStart(row, self.view, 0)])

    def commit(self, *tokens: int) -> None:
        self.view.grow(tokens)
        self.drafter.observe(OutcomeBatch((Outcome(self.row, self.view, tokens, DraftTree(), ()),)))

    def propose(self, depth: int = 50, nodes: int = 64) -> DraftTree:
        view = DraftView(self.row, self.view, depth, nodes, cost=lambda rows: 1.0)
        (tree,) = self.drafter.propose(DraftBatch((view,))).unpack()
        return tree


def test_it_is_found_by_its_name() -> None:
    (record,) = [one for one in outrider.drafters() if one.name == "suffix"]
    assert record.drafter is Suffix
    assert record.distribution == "outrider-suffix"


@parametrize_with_checks("suffix", "suffix[tree=false,max_n=4]", "suffix[coupled=false]")
def test_it_passes_the_kit(drafter: str, check: Any) -> None:
    check(drafter)


def test_a_long_match_is_copied_and_a_short_one_only_a_little() -> None:
    text = list(range(30))
    assert Fed([*text, 50, *text[:12]]).propose().tokens[:18] == tuple(text[12:])
    sizes = [len(Fed([*text, 50, *text[12 - size : 12]], factor=1.0).propose()) for size in (1, 3, 8)]
    assert sizes == [1, 3, 8]


def test_what_followed_in_several_ways_is_a_tree_the_most_frequent_first() -> None:
    ids = [1, 2, 3, 9, 1, 2, 4, 8, 1, 2, 3, 7, 1, 2]
    tree = Fed(ids).propose()
    assert [tree.tokens[node] for node in tree.children(-1)] == [3, 4]
    assert [tree.tokens[node] for node in tree.children(0)] == [7, 9]
    chain = Fed(ids, tree=False).propose()
    assert chain.tokens[:1] == (3,)
    assert chain == DraftTree.chain(chain.tokens)


def test_frequent_beats_recent() -> None:
    assert Fed([1, 5, 1, 5, 1, 6, 1]).propose().tokens[0] == 5


def test_the_draft_keeps_within_the_room_and_the_options() -> None:
    text = [*range(30)] * 2
    assert Fed(text).propose(depth=3).depth == 3
    assert len(Fed(text).propose(nodes=5)) == 5
    assert len(Fed(text, nodes=4).propose()) == 4
    assert len(Fed(text, least=0.99).propose()) == 0


def test_a_draft_costs_the_same_at_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes looked up and followed, with a store and without."""
    counts = []
    for length in (1_000, 50_000):
        drafter = Suffix(tiny_target().info, SuffixOptions(store=200_000))
        ids = [*range(100, length + 100), *range(40), 77, *range(40), 78, *range(20)]
        Fed([1, 2], drafter, row=1).commit(*ids)
        drafter.end([1])
        fed = Fed(ids, drafter)
        count = 0

        def counted(original: Any) -> Any:
            def call(*arguments: Any) -> Any:
                nonlocal count
                count += 1
                return original(*arguments)

            return call

        with monkeypatch.context() as patch:
            for name in ("child", "following"):
                patch.setattr(SuffixTree, name, counted(getattr(SuffixTree, name)))
            assert len(fed.propose()) > 10
        counts.append(count)
    assert counts[0] == counts[1]
    assert 0 < counts[0] < 4000


def test_new_text_is_not_drafted() -> None:
    assert len(Fed(range(40)).propose()) == 0
    assert len(Fed([3]).propose()) == 0


def test_the_store_remembers_outputs_of_earlier_requests_and_nothing_else_does() -> None:
    said = list(range(40))
    for store in (0, 1000):
        drafter = Suffix(tiny_target().info, SuffixOptions(store=store))
        first = Fed([60, 61, 62, 63], drafter)
        first.commit(*said)
        drafter.end([0])
        second = Fed([50, 51, 7, 8, 9], drafter, row=1)
        assert second.propose().tokens[:10] == (tuple(said[10:20]) if store else ())
        assert Fed([61, 62], drafter, row=2).propose().tokens == ()


def test_the_store_keeps_the_latest_within_its_bound() -> None:
    store = OutputStore(100, 4)
    for first in range(0, 600, 30):
        store.add(range(first, first + 30))
        assert len(store) <= 100
        assert any(tree.find([first + 4, first + 5])[1:] for tree in store.trees)
    assert not any(tree.find([4, 5])[1:] for tree in store.trees)
    store.add(range(1000, 2000))
    assert len(store) <= 100


def test_a_turn_that_takes_back_goes_on_as_a_fresh_text() -> None:
    target = tiny_target(2, REPETITIVE)
    drafter = Suffix(target.info, SuffixOptions(store=500))
    with outrider.session(target, drafter, adaptive=False, max_new_tokens=20) as talk:
        talk.generate(prompt(9))
        talk.truncate(15)
        result = talk.generate(prompt(5, 1))
        (row,) = drafter._rows.values()
        assert list(row.tree.ids) == talk.ids
    ids = talk.ids[: len(talk.ids) - len(result.token_ids)]
    assert list(result.token_ids) == plain_text(target, ids, 20)


@pytest.mark.parametrize("tree", [True, False])
@pytest.mark.parametrize("spread", [VARIED, REPETITIVE])
def test_batches_are_their_rows_alone_greedy_and_sampled(tree: bool, spread: float) -> None:
    target = tiny_target(1, spread)
    prompts = [prompt(20) * 2, prompt(9, 1) * 3, prompt(15, 2)]
    accepted = 0
    for asked in ({"temperature": 0}, {"temperature": 0.8, "seed": 3}, {"temperature": 1.2, "seed": 4, "top_k": 8}):
        options: dict[str, Any] = {"adaptive": False, "max_new_tokens": 30, **asked}
        drafter = Suffix(target.info, SuffixOptions(store=2000, tree=tree))
        for _ in range(2):
            rows = outrider.generate_batch(target, prompts, drafter, **options)
            plain = outrider.generate_batch(target, prompts, "none", **options)
            assert [row.token_ids for row in rows] == [row.token_ids for row in plain]
            accepted += sum(row.stats.num_accepted_draft_tokens for row in rows)
        assert not drafter._rows
    assert accepted > 60


def test_noise_decides_between_what_followed() -> None:
    """Coupled, the child of the largest log q + noise comes first, and more is accepted than by frequency alone."""
    target = tiny_target(5, REPETITIVE)
    accepted = {True: 0, False: 0}
    for coupled in accepted:
        for seed in range(12):
            asked: dict[str, Any] = {
                "temperature": 1.0,
                "top_k": 3,
                "seed": seed,
                "max_new_tokens": 60,
                "adaptive": False,
            }
            drafter = Suffix(target.info, SuffixOptions(coupled=coupled, tree=False))
            result = outrider.generate(target, prompt(6, seed), drafter, **asked)
            accepted[coupled] += result.stats.num_accepted_draft_tokens
    assert accepted[True] > accepted[False] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_n": 1}, "option max_n = 1: input should be greater than or equal to 2"),
        ({"store": 10}, "store = 10: give 0 for none, or at least 64 tokens"),
        ({"nods": 3}, "unknown option 'nods'. Did you mean 'nodes'?"),
    ],
)
def test_a_wrong_option_is_refused_in_a_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        outrider.generate(tiny_target(), [1, 2], "suffix", options)
    assert str(caught.value).startswith(f"drafter 'suffix': {message}")
