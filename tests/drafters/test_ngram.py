import json
import tracemalloc
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import outrider
from outrider import DraftBatch, DraftTree, DraftView, InputError, Outcome, OutcomeBatch, RowStart, TokenView
from outrider_drafters.lookahead.drafter import Lookahead, LookaheadOptions
from outrider_drafters.ngram.belief import MatchBelief
from outrider_drafters.ngram.drafter import Ngram, NgramOptions
from outrider_drafters.ngram.index import LONGEST, Match, NgramIndex
from outrider_drafters.ngram.store import NgramStore
from support import VOCAB, char_tokenizer, plain_loop, prompt_of, tiny_model, tiny_target


class Fed:
    """An n-gram drafter on one row, fed by hand."""

    def __init__(self, ids: Sequence[int], drafter: Ngram | None = None, row: int = 0, **options: Any) -> None:
        self.drafter = drafter or Ngram(tiny_target().info, NgramOptions(**options))
        self.view, self.row = TokenView(ids), row
        self.drafter.begin([RowStart(row, self.view, 0)])

    def commit(self, *tokens: int) -> None:
        self.view.grow(tokens)
        self.drafter.observe(OutcomeBatch((Outcome(self.row, self.view, tokens, DraftTree(), ()),)))

    def propose(self, depth: int = 50) -> DraftTree:
        view = DraftView(self.row, self.view, depth, 64)
        (tree,) = self.drafter.propose(DraftBatch((view,))).unpack()
        return tree

    def look(self) -> Match:
        found = self.drafter._rows[self.row].look()
        assert found is not None
        return found[0]

    def end(self) -> None:
        self.drafter.end([self.row])


def indexed(ids: Sequence[int], min_n: int = 2, max_n: int = 4, **options: Any) -> NgramIndex:
    index = NgramIndex(min_n, max_n, **options)
    index.extend(ids)
    return index


def matched(ids: Sequence[int], **options: Any) -> Match:
    index = indexed(ids, **options)
    match = index.match(index.tail)
    assert match is not None
    return match


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


def test_of_equally_good_places_the_latest_comes_first() -> None:
    tail = [7, 8, 9, 10]
    match = matched([*tail, 20, 1, *tail, 21, 2, *tail, 20, 3, *tail])
    assert match.tokens == (20, 21)
    assert match.places == (16, 10)
    assert match.length == 4
    assert [match.rank(token) for token in (20, 21, 22)] == [0, 1, None]


def test_what_is_picked_of_several_places() -> None:
    """The latest place, the one that agrees longest, and all that go on differently, the longest first."""
    ids = [5, 6, 7, 8, 20, 1, 3, 6, 7, 8, 21, 2, 4, 6, 7, 8, 21, 2, 9, 5, 6, 7, 8]
    for pick, tokens, length in (("recent", (21,), 3), ("longest", (20,), 4), ("all", (20, 21), 4)):
        match = matched(ids, max_n=3, pick=pick)
        assert (match.tokens, match.length) == (tokens, length)
    assert matched(ids, max_n=3, branching=1).tokens == (21,)
    assert matched(ids, max_n=4).tokens == (20,)


def test_the_longest_match_comes_before_a_more_recent_one() -> None:
    assert matched([1, 2, 3, 40, 9, 3, 50, 1, 2, 3], min_n=1, max_n=3).tokens == (40,)


def test_a_shorter_match_than_allowed_is_none() -> None:
    ids = [1, 2, 9, 5, 2]
    for shortest, found in ((1, True), (2, False)):
        index = indexed(ids, shortest)
        assert (index.match(index.tail) is not None) is found


def test_the_match_length_looks_back_beyond_the_ngram() -> None:
    assert matched([*range(20), *range(15)]).length == 15
    assert matched([*range(60), *range(60)]).length == LONGEST


def test_a_copy_goes_on_with_itself_but_not_into_another_text() -> None:
    index = indexed([1, 2, 3, 1, 2, 3])
    assert index.continuation(3, 7) == (1, 2, 3, 1, 2, 3, 1)
    index.close()
    assert index.continuation(3, 7) == (1, 2, 3)
    index.extend([9, 1, 2])
    assert index.continuation(3, 7) == (1, 2, 3)
    assert index.match(array("i", [3, 9])) is None


@pytest.mark.parametrize("seed", range(5))
def test_what_is_taken_back_leaves_no_trace(seed: int) -> None:
    ids = [token % 4 for token in prompt_of(300, seed)]
    index, shorter = indexed(ids, 1, 5), indexed(ids[:120], 1, 5)
    index.truncate(120)
    assert index._latest == shorter._latest
    assert index._earlier == shorter._earlier
    assert index.ids == shorter.ids
    index.extend(ids[:40])
    shorter.extend(ids[:40])
    assert index.match(index.tail) == Match(index, *_parts(shorter.match(shorter.tail)))


def _parts(match: Match | None) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    assert match is not None
    return match.places, match.tokens, match.length


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


def found(length: int, *tokens: int) -> Match:
    return Match(NgramIndex(2, 4), tuple(range(len(tokens))), tokens, length)


def test_belief_follows_what_held() -> None:
    belief, match = MatchBelief(), found(2, 7)
    before = belief.first(match, 0)
    for _ in range(30):
        belief.learn(match, 0)
    assert belief.first(match, 0) == belief.next(2) > 0.85 > before
    for _ in range(100):
        belief.learn(match, None)
    assert belief.next(2) < 0.15
    assert belief.next(40) == MatchBelief().next(40)


def test_a_match_that_went_on_in_different_ways_is_believed_less() -> None:
    belief, alike, divided = MatchBelief(), found(20, 7), found(20, 7, 3)
    for _ in range(20):
        belief.learn(alike, 0)
        belief.learn(divided, 1)
    assert belief.first(alike, 0) > 0.9
    assert belief.first(divided, 1) > 0.6 > belief.first(divided, 0)


class Counter:
    """How many entries of dicts were touched and how many tokens read."""

    def __init__(self) -> None:
        self.count = 0


def count_operations(index: NgramIndex, monkeypatch: pytest.MonkeyPatch) -> Counter:
    """Put counting containers into an index, and count what is read of any text."""
    counter = Counter()

    def read(self: Any, key: Any, original: Any) -> Any:
        value = original(self, key)
        counter.count += len(value) if isinstance(key, slice) else 1
        return value

    class Grams(dict[bytes, int]):
        def get(self, gram: bytes, other: Any = None) -> Any:
            counter.count += 1
            return super().get(gram, other)

        def __setitem__(self, gram: bytes, place: int) -> None:
            counter.count += 1
            super().__setitem__(gram, place)

        def __delitem__(self, gram: bytes) -> None:
            counter.count += 1
            super().__delitem__(gram)

    class Numbers(array):  # type: ignore[type-arg]
        def __getitem__(self, key: Any) -> Any:
            return read(self, key, array.__getitem__)

        def pop(self, at: int = -1) -> Any:
            counter.count += 1
            return super().pop(at)

        def __iter__(self) -> Any:
            raise AssertionError("nothing goes over a whole text")

    index._latest = tuple(Grams(latest) for latest in index._latest)
    index._earlier = tuple(Numbers("q", earlier) for earlier in index._earlier)
    index._ids = Numbers("i", index._ids)
    whole = TokenView.__getitem__
    monkeypatch.setattr(TokenView, "__getitem__", lambda self, key: read(self, key, whole))
    return counter


@pytest.mark.parametrize("pick", ["recent", "longest", "all"])
def test_a_step_costs_the_same_at_any_length(pick: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dict entries touched and tokens read: of a draft, of hearing what came, and of a turn that takes some back."""
    counts = []
    for length in (1_000, 100_000):
        ids = [*range(100, length + 100), *range(40), 77, *range(40), 78, *range(20)]
        fed = Fed(ids, pick=pick, store=10**6)
        for _ in range(3):
            fed.commit(*range(20))
        with monkeypatch.context() as patch:
            counter = count_operations(fed.drafter._rows[0].index, patch)
            assert len(fed.propose()) > 0
            drafted = counter.count
            fed.commit(*range(20, 40))
            heard = counter.count - drafted
            fed.view.replace(len(fed.view) - 30, range(5))
            fed.drafter.truncate(0, len(fed.view) - 5)
            counts.append((drafted, heard, counter.count - heard - drafted))
    assert counts[0] == counts[1]
    assert min(counts[0]) > 0
    assert counts[0][0] < 1500
    assert counts[0][1] < 20 * 1500


def test_a_prompt_takes_work_in_proportion_to_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 24, its second half: random ids, none of which repeat."""
    counts = []
    for length in (10_000, 20_000):
        with monkeypatch.context() as patch:
            index = NgramIndex(2, 6)
            counter = count_operations(index, patch)
            index.extend(
                [token * VOCAB + other for token, other in zip(prompt_of(length), prompt_of(length, 1), strict=True)]
            )
        counts.append(counter.count)
        assert index.entries <= 5 * length
    assert 1.99 < counts[1] / counts[0] < 2.01


def test_a_second_request_knows_nothing_of_the_first() -> None:
    """Case 23."""
    target = tiny_target()
    drafter = Ngram(target.info, NgramOptions())
    long_prompt, short_prompt = list(range(60)) * 4, [5, 6, 7, 8, 5, 6]
    outrider.generate(target, long_prompt, drafter, max_new_tokens=20, adaptive=False)
    assert not drafter._rows
    reused, fresh = Fed(short_prompt, drafter, row=10**9), Fed(short_prompt)
    assert reused.propose() == fresh.propose()
    used = outrider.generate(target, short_prompt, drafter, max_new_tokens=30, adaptive=False)
    new = outrider.generate(target, short_prompt, "ngram", max_new_tokens=30, adaptive=False)
    assert used.token_ids == new.token_ids
    assert used.stats.acceptance_histogram == new.stats.acceptance_histogram
    assert used.stats.num_draft_tokens == new.stats.num_draft_tokens


def test_the_store_remembers_earlier_requests_and_nothing_else_does() -> None:
    """Case 23: what only the first request said is proposed to the second where there is a store, and else never."""
    said, prompt = [*range(40)], [50, 51, 7, 8, 9]
    for store in (0, 1000):
        drafter = Ngram(tiny_target().info, NgramOptions(store=store))
        first = Fed([60, *said[:10]], drafter)
        first.commit(*said[10:])
        first.end()
        second = Fed(prompt, drafter, row=1)
        known = Fed([*said, *prompt]).propose() if store else Fed(prompt).propose()
        assert second.propose() == known
        assert (len(second.propose()) > 0) is bool(store)


def test_the_own_text_comes_before_the_store_and_the_store_before_the_file(tmp_path: Path) -> None:
    """Where matches are equally long; a longer one wins."""
    file = _lines(tmp_path, {"token_ids": [1, 2, 3, 30]}, {"token_ids": [9, 8, 7, 6, 31]})
    drafter = Ngram(tiny_target().info, NgramOptions(store=1000, corpus=file))
    Fed([1, 2, 3, 20, 8, 7, 6, 21, 40, 1, 2, 3, 22, 40, 41, 23], drafter).end()

    def next_token(row: int, *ids: int) -> int:
        return Fed(ids, drafter, row).look().tokens[0]

    assert next_token(1, 1, 2, 3, 10, 1, 2, 3) == 10
    assert next_token(2, 2, 3, 10, 1, 2, 3) == 22
    assert next_token(3, 1, 2, 3) == 22
    assert next_token(4, 8, 7, 6) == 21
    assert next_token(5, 9, 8, 7, 6) == 31


def test_a_store_keeps_the_latest_texts_within_its_bound() -> None:
    store = NgramStore(100, lambda: NgramIndex(2, 4))
    for first in range(0, 600, 30):
        store.add(range(first, first + 30))
        assert len(store) <= 100
        assert store.entries <= 3 * 100
        assert store.match(array("i", [first + 4, first + 5])) is not None
    assert store.match(array("i", [4, 5])) is None
    store.add(range(1000, 2000))
    assert len(store) <= 100
    assert store.match(array("i", [1997, 1998])) is not None
    assert store.match(array("i", [1999, 1000])) is None


def test_memory_is_bounded() -> None:
    """Case 24: 300 requests of 200 random ids through one drafter."""
    target, cap = tiny_target().info, 5_000
    ngram = Ngram(target, NgramOptions(store=cap))
    lookahead = Lookahead(target, LookaheadOptions(pool=500))
    tracemalloc.start()
    try:
        sizes = []
        for request in range(300):
            ids = [
                token * VOCAB + other
                for token, other in zip(prompt_of(200, request), prompt_of(200, -request), strict=True)
            ]
            for drafter in (ngram, lookahead):
                drafter.begin([RowStart(request, TokenView(ids), 0)])
                if drafter is lookahead:
                    assert 0 < len(lookahead._rows[request].pool) <= 500
                drafter.end([request])
            assert ngram._store is not None
            assert len(ngram._store) <= cap
            assert ngram._store.entries <= 5 * cap
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert not ngram._rows
    assert not lookahead._rows
    assert max(sizes[50:]) < 1.05 * max(sizes[:50])
    assert max(sizes) / (5 * cap) < 200


def _lines(folder: Path, *values: Any) -> str:
    path = folder / "corpus.jsonl"
    path.write_text("".join(json.dumps(value) + "\n" for value in values) + "\n", encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    "form",
    [
        lambda text, ids: {"token_ids": ids},
        lambda text, ids: {"text": text},
        lambda text, ids: {"prompt": text, "name": "one"},
        lambda text, ids: {"turns": ["Q", text]},
        lambda text, ids: {"messages": [{"role": "user", "content": text}]},
        None,
    ],
)
def test_a_file_is_copied_from(form: Any, tmp_path: Path) -> None:
    text = "the cat sat on a mat and looked"
    ids = char_tokenizer()(text).input_ids
    if form is None:
        path = tmp_path / "corpus.txt"
        path.write_text(text, encoding="utf-8")
    else:
        path = Path(_lines(tmp_path, {"text": "other"}, form(text, ids)))
    tree = Fed(ids[10:16], corpus=str(path)).propose()
    assert len(tree) > 2
    assert list(tree.tokens) == ids[16 : 16 + len(tree)]
    assert len(Fed(ids[10:16]).propose()) == 0


def test_a_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it stays as it is, however many drafters are made."""
    reads, original = 0, Path.read_text

    def read_text(self: Path, *args: Any, **options: Any) -> str:
        nonlocal reads
        reads += 1
        return original(self, *args, **options)

    monkeypatch.setattr(Path, "read_text", read_text)
    for text, expected in (("abcabc", 1), ("abcabc", 1), ("abcabcd", 2)):
        if text != "abcabc" or not reads:
            (tmp_path / "corpus.txt").write_text(text, encoding="utf-8")
        Fed([1], corpus=str(tmp_path / "corpus.txt"))
        assert reads == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "can't be read: No such file or directory"),
        (b"", "holds no text"),
        (b" \n", "holds no text"),
        (b"ab\xff", "is not UTF-8 (byte 2): save it as UTF-8"),
        (b'{"text": "a"}\n{"te', "corpus.jsonl:2: no JSON"),
        (b'{"txt": "a"}\n', 'corpus.jsonl:1: write {"token_ids": [...]}'),
        (b'{"text": 3}\n', "corpus.jsonl:1: write"),
        (b'{"token_ids": [1, 64]}\n', "corpus.jsonl:1: token 64 is not one of the target's 64"),
        (b'{"token_ids": [-1]}\n', "corpus.jsonl:1: token -1 is not one of the target's 64"),
        (b'{"token_ids": [true]}\n', "corpus.jsonl:1: write"),
        ('{"text": "a\u2028b"}\n[]'.encode(), "corpus.jsonl:2: write"),
    ],
)
def test_a_wrong_file_is_refused_in_a_line(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        outrider.generate(tiny_target(), [1, 2], "ngram", {"corpus": str(path)}, adaptive=False, max_new_tokens=2)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_text_needs_a_tokenizer_and_ids_do_not(tmp_path: Path) -> None:
    bare = outrider.load(tiny_model())
    bare.tokenizer = None
    info = outrider.Target(bare.model, None).info
    with pytest.raises(InputError, match="has no tokenizer; give JSON lines of"):
        Ngram(info, NgramOptions(corpus=_lines(tmp_path, {"text": "abc"})))
    assert Ngram(info, NgramOptions(corpus=_lines(tmp_path, {"token_ids": [1, 2, 3]})))
    with pytest.raises(InputError, match="is a folder: name a file"):
        Ngram(info, NgramOptions(corpus=str(tmp_path)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_n": 5, "max_n": 3}, "min_n = 5 is more than max_n = 3"),
        ({"min_n": 0}, "option min_n = 0: input should be greater than or equal to 1"),
        ({"pick": "oldest"}, "option pick = 'oldest': input should be 'recent', 'longest' or 'all'"),
        ({"pick": "recent", "branching": 2}, "branching is for pick = 'all'; pick = 'recent' copies one continuation"),
        ({"store": -1}, "option store = -1: input should be greater than or equal to 0"),
        ({"store": 10}, "store = 10: give 0 for none, or at least 64 tokens"),
        ({"store": True}, "option store = True: input should be a valid integer"),
        ({"corpus": 3}, "option corpus = 3: input should be a valid string"),
        ({"corpora": "x"}, "unknown option 'corpora'. Did you mean 'corpus'?"),
    ],
)
def test_a_wrong_option_is_refused_in_a_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        outrider.generate(tiny_target(), [1, 2], "ngram", options, adaptive=False, max_new_tokens=2)
    assert str(caught.value).startswith(f"drafter 'ngram': {message}")


@pytest.mark.parametrize("length", range(1, 9))
def test_the_text_does_not_depend_on_the_options(length: int, tmp_path: Path) -> None:
    """Case S16: every n, and chains and trees of every size."""
    target, prompt = tiny_target(length, 0.1), prompt_of(12, length)
    new = plain_loop(target.model, prompt, 40)
    accepted = 0
    for options in (
        {"min_n": length, "max_n": length},
        {"min_n": 1, "max_n": length, "branching": 1, "draft_tokens": 3},
        {"min_n": length, "max_n": 16, "pick": "recent", "store": 1000},
        {"max_n": 8, "pick": "longest", "nodes": 8, "corpus": _lines(tmp_path, {"token_ids": [*new, *prompt]})},
    ):
        result = outrider.generate(target, prompt, "ngram", options, max_new_tokens=40, adaptive=False)
        assert list(result.token_ids) == new
        accepted += result.stats.num_accepted_draft_tokens
    assert accepted > 0


def test_sampled_rows_of_a_batch_do_not_depend_on_the_store() -> None:
    target = tiny_target(1, 0.1)
    options: dict[str, Any] = {"adaptive": False, "max_new_tokens": 30, "temperature": 0.7, "seed": 3}
    drafter = Ngram(target.info, NgramOptions(min_n=1, store=2000))
    prompts = [prompt_of(20, 0) * 2, prompt_of(9, 1) * 3, prompt_of(15, 2)]
    accepted = 0
    for _ in range(2):
        rows = outrider.generate_batch(target, prompts, drafter, **options)
        accepted += sum(row.stats.num_accepted_draft_tokens for row in rows)
        plain = outrider.generate_batch(target, prompts, "none", **options)
        assert [row.token_ids for row in rows] == [row.token_ids for row in plain]
    assert drafter._store is not None
    assert len(drafter._store) == 2 * sum(len(prompt) + 31 for prompt in prompts)
    assert accepted > 10


def test_a_repeated_request_is_copied_from_the_store() -> None:
    target, prompt = tiny_target(0, 0.3), prompt_of(9)
    drafter = Ngram(target.info, NgramOptions(store=1000))
    first, second = (outrider.generate(target, prompt, drafter, adaptive=False, max_new_tokens=40) for _ in range(2))
    assert first.token_ids == second.token_ids == tuple(plain_loop(target.model, prompt, 40))
    assert second.stats.num_steps < first.stats.num_steps / 3


def test_a_session_of_turns_drafts_as_a_fresh_text_would() -> None:
    """What a turn takes back is gone from the index."""
    target = tiny_target(2, 0.1)
    drafter = Ngram(target.info, NgramOptions())
    with outrider.session(target, drafter, adaptive=False, max_new_tokens=20) as talk:
        talk.generate(prompt_of(9))
        talk.truncate(15)
        result = talk.generate(prompt_of(5, 1))
        (row,) = drafter._rows.values()
        whole = NgramIndex(2, 6)
        whole.extend(talk.ids)
        assert row.index.ids == whole.ids
        assert row.index._latest == whole._latest
    ids = [*talk.ids[: len(talk.ids) - len(result.token_ids)]]
    assert list(result.token_ids) == plain_loop(target.model, ids, 20)


def test_repeating_text_is_accepted() -> None:
    """A dead drafter must fail: in text with a short period nearly all drafts hold."""
    accepted = []
    for seed in range(10):
        target = tiny_target(seed, 0.1)
        result = outrider.generate(target, prompt_of(9, seed), "ngram", max_new_tokens=60, adaptive=False)
        accepted.append(result.stats.mean_acceptance_length or 0)
    assert max(accepted) > 4
    assert sum(length > 1.2 for length in accepted) >= 3


def test_ids_of_the_whole_vocabulary_are_fine() -> None:
    ids = [VOCAB - 1, 0] * 12
    assert len(Fed(ids).propose()) > 0
