from collections.abc import Sequence
from typing import Any

import pytest

import outrider
from outrider import DraftBatch, DraftTree, DraftView, Outcome, OutcomeBatch, RowStart, TokenView
from outrider_drafters.ngram import Ngram, NgramOptions
from outrider_drafters.ngram_belief import MatchBelief
from outrider_drafters.ngram_index import Match, NgramIndex
from support import VOCAB, plain_loop, prompt_of, tiny_target


class Fed:
    """An n-gram drafter on one row, fed by hand."""

    def __init__(self, ids: Sequence[int], drafter: Ngram | None = None, row: int = 0, **options: Any) -> None:
        self.drafter = drafter or Ngram(tiny_target().info, NgramOptions(**options))
        self.ids, self.row = list(ids), row
        self.drafter.begin([RowStart(row, TokenView(self.ids), 0)])

    def commit(self, *tokens: int) -> None:
        self.ids += tokens
        outcome = Outcome(self.row, TokenView(self.ids), tokens, DraftTree(), ())
        self.drafter.observe(OutcomeBatch((outcome,)))

    def propose(self, depth: int = 50) -> DraftTree:
        view = DraftView(self.row, TokenView(self.ids), depth, 64)
        (tree,) = self.drafter.propose(DraftBatch((view,))).unpack()
        return tree


def test_a_long_match_is_copied() -> None:
    text = list(range(30))
    fed = Fed([*text, 50, 51, *text[:12]])
    assert fed.propose() == DraftTree.chain([*text[12:], 50, 51, *text[:3]][: len(fed.propose())])
    assert len(fed.propose()) >= 7


def test_new_text_is_not_drafted() -> None:
    assert len(Fed(range(40)).propose()) == 0
    assert len(Fed([3]).propose()) == 0


def test_the_draft_keeps_within_the_room_and_the_options() -> None:
    text = [*range(30)] * 2
    assert Fed(text).propose(depth=3).depth == 3
    assert Fed(text, draft_tokens=5).propose().depth == 5
    assert len(Fed(text, nodes=4).propose()) == 4


def test_the_most_recent_occurrence_comes_first() -> None:
    tail = [7, 8, 9, 10]
    index = NgramIndex(2, 4, 3)
    ids = [*tail, 20, 1, *tail, 21, 2, *tail, 20, 3, *tail]
    index.extend(ids)
    match = index.match(ids, len(ids))
    assert match is not None
    assert [ids[position] for position in match.positions] == [20, 21]
    assert match.positions[0] == 16
    assert match.length == 4


def test_the_longest_match_comes_before_a_more_recent_one() -> None:
    index = NgramIndex(1, 3, 2)
    ids = [1, 2, 3, 40, 9, 3, 50, 1, 2, 3]
    index.extend(ids)
    match = index.match(ids, len(ids))
    assert match is not None
    assert ids[match.positions[0]] == 40


def test_a_shorter_match_than_allowed_is_none() -> None:
    ids = [1, 2, 9, 5, 2]
    for shortest, found in ((1, True), (2, False)):
        index = NgramIndex(shortest, 4, 2)
        index.extend(ids)
        assert (index.match(ids, len(ids)) is not None) is found


def test_the_match_length_looks_back_beyond_the_ngram() -> None:
    ids = [*range(20), *range(20)]
    index = NgramIndex(2, 4, 2)
    index.extend(ids, 35)
    match = index.match(ids, 35)
    assert match is not None
    assert match.length == 15


def test_different_continuations_become_a_tree() -> None:
    head = [*range(10, 26)]
    fed = Fed([*head, 1, 30, 31, *head, 2, 40, 41, *head])
    for one in (True, True, False, False, True, False, False, True, True, False):  # teach it that either may come
        fed.commit(*((1, 30, 31) if one else (2, 40, 41)), *head)
    tree = fed.propose(depth=6)
    assert {tree.tokens[node] for node in range(len(tree)) if tree.parents[node] == -1} == {1, 2}
    assert len(Fed([*head, 1, *head, 2, *head], branching=1).propose().tokens) > 0
    chain = Fed([*head, 1, *head, 2, *head], branching=1).propose()
    assert chain == DraftTree.chain(chain.tokens)


def test_belief_follows_what_held() -> None:
    belief, match = MatchBelief(), Match((7,), 2)
    before = belief.first(match, 0)
    for _ in range(30):
        belief.learn(match, 0)
    assert belief.first(match, 0) == belief.next(2) > 0.85 > before
    for _ in range(100):
        belief.learn(match, None)
    assert belief.next(2) < 0.15
    assert belief.next(40) == MatchBelief().next(40)


def test_a_match_that_went_on_in_different_ways_is_believed_less() -> None:
    belief, alike, divided = MatchBelief(), Match((7,), 20), Match((7, 3), 20)
    for _ in range(20):
        belief.learn(alike, 0)
        belief.learn(divided, 1)
    assert belief.first(alike, 0) > 0.9
    assert belief.first(divided, 1) > 0.6 > belief.first(divided, 0)


def test_a_step_costs_the_same_at_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads of the text, counted."""
    counts = []
    for length in (1_000, 20_000):
        ids = [*range(100, length + 100), *range(40), *range(20)]
        fed = Fed(ids)
        reads = 0
        original = TokenView.__getitem__

        def counted(self: TokenView, index: Any, original: Any = original) -> Any:
            nonlocal reads
            reads += 1
            return original(self, index)

        with monkeypatch.context() as patch:
            patch.setattr(TokenView, "__getitem__", counted)
            fed.commit(20)
            fed.propose()
        counts.append(reads)
    assert counts[0] == counts[1]
    assert counts[0] < 200


def test_a_second_request_knows_nothing_of_the_first() -> None:
    """Case 23."""
    target = tiny_target()
    drafter = Ngram(target.info, NgramOptions())
    long_prompt, short_prompt = list(range(60)) * 4, [5, 6, 7, 8, 5, 6]
    outrider.generate(target, long_prompt, drafter, max_new_tokens=20)
    assert not drafter._rows
    reused, fresh = Fed(short_prompt, drafter, row=10**9), Fed(short_prompt)
    assert reused.propose() == fresh.propose()
    used = outrider.generate(target, short_prompt, drafter, max_new_tokens=30)
    new = outrider.generate(target, short_prompt, "ngram", max_new_tokens=30)
    assert used.token_ids == new.token_ids
    assert used.stats.acceptance_histogram == new.stats.acceptance_histogram
    assert used.stats.num_draft_tokens == new.stats.num_draft_tokens


@pytest.mark.parametrize("length", range(1, 9))
def test_the_text_does_not_depend_on_the_options(length: int) -> None:
    """Case S16: every n, and chains and trees of every size."""
    target, prompt = tiny_target(length, 0.1), prompt_of(12, length)
    new = plain_loop(target.model, prompt, 40)
    accepted = 0
    for options in (
        {"min_n": length, "max_n": length},
        {"min_n": 1, "max_n": length, "branching": 1, "draft_tokens": 3},
    ):
        result = outrider.generate(target, prompt, "ngram", options, max_new_tokens=40)
        assert list(result.token_ids) == new
        accepted += result.stats.num_accepted_draft_tokens
    assert accepted > 0 or len(set(new)) > 30


def test_repeating_text_is_accepted() -> None:
    """A dead drafter must fail: in text with a short period nearly all drafts hold."""
    accepted = []
    for seed in range(10):
        target = tiny_target(seed, 0.1)
        result = outrider.generate(target, prompt_of(9, seed), "ngram", max_new_tokens=60)
        accepted.append(result.stats.mean_acceptance_length or 0)
    assert max(accepted) > 4
    assert sum(length > 1.2 for length in accepted) >= 3


def test_ids_of_the_whole_vocabulary_are_fine() -> None:
    ids = [VOCAB - 1, 0] * 12
    assert len(Fed(ids).propose()) > 0
