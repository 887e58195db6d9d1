"""The drafter `lookahead`: the window is the real one, and what is proposed came out of it."""

from typing import Any

import pytest
import torch

import outrider
from outrider import DraftTree, TreeBatch
from outrider_drafters.lookahead.drafter import Lookahead, LookaheadOptions, Pool
from outrider_drafters.lookahead.window import Window
from support import VOCAB, plain_loop, prompt_of, tiny_target


def _filled(width: int, ngram: int) -> Window:
    """A window whose rows are told apart by their tokens."""
    window = Window(range(VOCAB), width, ngram, 1)
    step = 0
    while not window.full:
        step += 1
        assert list(window.advance(0, [10 * step + at for at in range(len(window.newest()))])) == []
    return window


@pytest.mark.parametrize(("width", "ngram"), [(2, 3), (5, 3), (7, 5), (4, 6)])
def test_a_full_window_has_the_method_s_shape(width: int, ngram: int) -> None:
    """Level 0 has W - 1 tokens, every other level W; W + N - 3 first guesses shrink to that in N - 2 steps."""
    first = Window(range(VOCAB), width, ngram, 1)
    assert len(first.nodes()[0]) == width + ngram - 3
    tokens, parents = _filled(width, ngram).nodes()
    assert len(tokens) == width - 1 + width * (ngram - 2)
    tree = DraftTree(tuple(tokens), tuple(parents), scouts=frozenset(range(len(tokens))))
    depths = tree.depths()
    assert depths[: width - 1] == list(range(1, width))
    for level in range(1, ngram - 1):
        start = width - 1 + (level - 1) * width
        assert depths[start : start + width] == [level + row for row in range(width)]


def test_a_window_moves_one_column_and_gives_its_diagonals() -> None:
    window = _filled(4, 4)
    before = window._levels
    said = [40, 41, 42, 43]
    grams = list(window.advance(9, said))
    columns = [9, *before[0]]
    assert grams == [(columns[row], before[1][row], before[2][row], said[row]) for row in range(4)]
    assert window._levels == [before[1][1:], before[2], said]


@pytest.mark.parametrize("seed", range(3))
def test_the_window_sees_what_independent_runs_see(seed: int) -> None:
    """Every row of the window, run alone behind the text, gives what it gives in the window."""
    target, ids = tiny_target(seed), prompt_of(9, seed)
    tokens, parents = _filled(5, 4).nodes()
    tree = DraftTree(tuple(tokens), tuple(parents), scouts=frozenset(range(len(tokens))))
    cache = target.open(1)
    target.prefill(cache, [ids[:-1]])
    logits = target.forward(cache, ids[-1:], TreeBatch.pack([tree])).logits[0]
    for node in range(len(tree)):
        path = [tree.tokens[step] for step in tree.path(node)]
        with torch.no_grad():
            alone: Any = target.model(torch.tensor([[*ids, *path]])).logits[0, -1]
        assert torch.allclose(logits[node + 1], alone, atol=1e-9)


def test_n_grams_that_the_window_made_are_accepted() -> None:
    """With an empty pool and nothing from the text, all that is accepted came out of the window."""
    accepted = 0
    for seed in range(6):
        target, prompt = tiny_target(seed), list(range(12))
        expected = plain_loop(target.model, prompt, 60)
        result = outrider.generate(target, prompt, "lookahead", {"prompt": False}, max_new_tokens=60, adaptive=False)
        assert list(result.token_ids) == expected
        accepted += result.stats.num_accepted_draft_tokens
    assert accepted > 30


def test_a_match_may_bring_a_whole_n_gram_and_the_bonus() -> None:
    target, prompt = tiny_target(0, 0.1), prompt_of(12)
    steps = outrider.stream(target, prompt, "lookahead", {"ngram": 4, "window": 5}, max_new_tokens=60, adaptive=False)
    assert max(len(step.tokens) for step in steps) == 4


@pytest.mark.parametrize("options", [{"temperature": 1.0}, {"temperature": 0.7, "top_p": 0.9, "rule": "rejection"}])
def test_first_guesses_come_from_the_request_s_seed(options: dict[str, Any]) -> None:
    target, prompt = tiny_target(1, 0.1), prompt_of(9)
    before = torch.get_rng_state()
    runs = [
        outrider.generate(target, prompt, "lookahead", max_new_tokens=40, seed=3, **options, adaptive=False)
        for _ in range(2)
    ]
    assert runs[0].token_ids == runs[1].token_ids
    assert runs[0].stats.acceptance_histogram == runs[1].stats.acceptance_histogram
    assert torch.equal(torch.get_rng_state(), before)


def test_no_text_is_proposed_from_another_row() -> None:
    """Case 23: one object, two requests; the second is that of a fresh object."""
    target = tiny_target(2, 0.1)
    drafter = Lookahead(target.info, LookaheadOptions())
    outrider.generate(target, prompt_of(60, 1), drafter, max_new_tokens=40, adaptive=False)
    again = outrider.generate(target, prompt_of(9, 2), drafter, max_new_tokens=40, seed=1, adaptive=False)
    fresh = outrider.generate(target, prompt_of(9, 2), "lookahead", max_new_tokens=40, seed=1, adaptive=False)
    assert again.stats.acceptance_histogram == fresh.stats.acceptance_histogram


def test_a_pool_is_bounded_and_forgets_the_oldest() -> None:
    pool = Pool(2, 5)
    pool.add([(1, 2, 3), (1, 4, 5), (1, 2, 3), (1, 6, 7)])
    assert pool.after(1) == [(6, 7), (2, 3)]
    pool.add((first, 0, 0) for first in range(10, 20))
    assert len(pool) == 5
    assert pool.after(1) == []
    assert pool.after(19) == [(0, 0)]
    for at in range(5_000):
        pool.add([(at % 97, at, at)])
    assert len(pool) == 5
    assert len(pool._by_first) <= 5


def test_a_window_that_does_not_fit_is_refused() -> None:
    with pytest.raises(outrider.InputError, match="window = 20 with ngram = 5 needs 79 nodes .* a step has 64"):
        outrider.generate(tiny_target(), [1], "lookahead", {"window": 20})
    for name, value in {"window": 1, "ngram": 2, "guesses": 0, "pool": 0}.items():
        with pytest.raises(outrider.InputError, match=f"drafter 'lookahead'.*{name}"):
            outrider.generate(tiny_target(), [1], "lookahead", {name: value})
