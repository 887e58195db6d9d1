"""Drafts across tokenizers: texts are followed, drafts come back as ids that go on with the text, and the text is as plain."""

import random
from functools import lru_cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import outrider
from other_tokenizers import KINDS, SENTENCES, composing, learnt
from outrider import DraftBatch, DraftTree, Target, TreeBatch
from outrider_drafters.draft_model.drafter import DraftModel, DraftModelOptions
from outrider_drafters.vocabulary.intersection import Intersection
from outrider_drafters.vocabulary.tokenizers import vocabularies
from outrider_drafters.vocabulary.translation import Translation
from outrider_drafters.vocabulary.vocabularies import Vocabulary
from support import plain_loop

LOSSLESS = ("bytes 300", "bytes 400", "pieces", "pieces with a space before", "composing")
PAIRS = [(one, other) for one in KINDS for other in KINDS if one != other]
# Every kind is a target once, and a draft model once.
RING = list(zip(KINDS, [*list(KINDS)[1:], *list(KINDS)[:1]], strict=True))
WORDS = [
    "the ",
    "road",
    " ",
    "\n",
    "  ",
    "e\u0301",
    "漢字",
    "🙂",
    "👩\u200d👩\u200d👧",
    "ﬁ",
    "Ab",
    "</s>",
    "<|im_start|>",
    "a",
]


def _vocabulary(kind: str) -> Vocabulary:
    tokenizer: Any = KINDS[kind]()
    return Vocabulary(tokenizer, len(tokenizer))


def _translation(target: str, draft: str) -> Translation:
    return Translation(_vocabulary(target), _vocabulary(draft))


@lru_cache(maxsize=8)
def _target(kind: str) -> Target:
    return outrider.load(learnt(kind), tokenizer=KINDS[kind]())


def _prompt(kind: str, sentence: int = 0, words: int = 4) -> list[int]:
    ids: list[int] = KINDS[kind]()(" ".join(SENTENCES[sentence].split()[:words]))["input_ids"]
    return ids


@pytest.mark.parametrize(("target", "draft"), PAIRS)
def test_what_the_target_would_say_comes_back_in_its_own_ids(target: str, draft: str) -> None:
    """A draft of the text that follows is, in the target's ids, what follows: at every place, inside words too."""
    ours, theirs = _vocabulary(target), _vocabulary(draft)
    translation = Translation(ours, theirs)
    ids = ours.encode(" ".join(SENTENCES))
    tried = right = 0
    for cut in range(1, len(ids) - 8):
        translation.follow(ids[:cut])
        coming, before = ours.text(ids[cut : cut + 8]), theirs.encode("\n")
        if "\N{REPLACEMENT CHARACTER}" in coming:
            continue
        tried += 1
        found = translation.propose(theirs.encode("\n" + coming)[len(before) :])
        right += found[:4] == ids[cut : cut + 4]
    faithful = target in LOSSLESS and draft in LOSSLESS
    assert right >= tried * (0.97 if faithful else 0.05)


@pytest.mark.parametrize(("target", "draft"), PAIRS)
def test_the_draft_model_reads_the_text(target: str, draft: str) -> None:
    ours, theirs = _vocabulary(target), _vocabulary(draft)
    translation, ids = Translation(ours, theirs), ours.encode(" ".join(SENTENCES * 8))
    before = list(translation.ids)
    for cut in range(0, len(ids), 3):
        kept = translation.follow(ids[:cut])
        assert translation.ids[:kept] == before[:kept]
        assert len(before) - kept <= 16
        text = ours.written(ids[:cut])
        text = text[: len(text) - len(translation.pending)]
        assert translation.ids == [*theirs.opening, *theirs.encode(text.decode())]
        before = list(translation.ids)


@settings(max_examples=150, deadline=None)
@given(
    pair=st.sampled_from(PAIRS),
    text=st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=6)), max_size=30).map("".join),
    seed=st.integers(0, 10**6),
)
def test_drafts_of_any_ids_go_on_with_any_text(pair: tuple[str, str], text: str, seed: int) -> None:
    """Nothing fails, and a draft says what the draft model's ids say, or less."""
    ours, theirs = map(_vocabulary, pair)
    translation, draw = Translation(ours, theirs), random.Random(seed)
    ids = [*ours.encode(text), *[draw.randrange(ours.size) for _ in range(draw.randrange(4))]]
    place = 0
    while place < len(ids):
        place += draw.randrange(1, 6)
        kept = translation.follow(ids[:place])
        assert 0 <= kept <= len(translation.ids)
        assert all(0 <= token < theirs.size for token in translation.ids)
        draft = [draw.randrange(theirs.size) for _ in range(draw.randrange(6))]
        if draw.random() < 0.5:
            draft = theirs.encode(draw.choice(WORDS) + text[:8])
        found = translation.propose(draft)
        assert all(0 <= token < ours.size for token in found)
        said = ours.written(found)
        drafted = ours.normal(theirs.written(draft).decode(errors="ignore"))
        if "\N{REPLACEMENT CHARACTER}" not in said.decode(errors="replace") and not translation.pending:
            assert drafted.startswith(said.decode()) or theirs.special & set(draft)


def test_ends_and_marks_become_the_other_model_s() -> None:
    ours, theirs = _vocabulary("bytes 400"), _vocabulary("bytes 300")
    translation = Translation(ours, theirs)
    end = ours.end()
    assert end is not None
    ids = [1, *ours.encode("the road."), end, *ours.encode(" it")]
    translation.follow(ids)
    assert translation.ids == [*theirs.encode("the road."), 0, *theirs.encode(" it")]
    assert translation.propose([*theirs.encode(" has"), 0, 5]) == [*ours.encode(" has"), end]
    assert translation.propose([0]) == [end]
    back = Translation(theirs, ours)
    back.follow(theirs.encode("the road."))
    assert back.ids == [1, *ours.encode("the road.")]


def test_a_chat_mark_that_the_draft_model_lacks_is_left_out() -> None:
    tokenizer = composing()
    ours, theirs = _vocabulary("composing"), _vocabulary("bytes 300")
    translation = Translation(ours, theirs)
    translation.follow(tokenizer("<|im_start|>the road<|im_start|>it has")["input_ids"])
    assert translation.ids == [*theirs.encode("the road"), *theirs.encode("it has")]
    twin = Translation(ours, ours)
    twin.follow(tokenizer("<|im_start|>the road<|im_start|>it has")["input_ids"])
    assert twin.ids == tokenizer("<|im_start|>the road<|im_start|>it has")["input_ids"]


def test_inside_a_character_a_draft_goes_on_with_it() -> None:
    ours, theirs = _vocabulary("bytes 300"), _vocabulary("pieces")
    translation, ids = Translation(ours, theirs), ours.encode("the 🙃 road")
    cut = next(at for at in range(len(ids)) if ours.written(ids[:at]).endswith(b"\xf0\x9f"))
    translation.follow(ids[:cut])
    assert translation.pending == b"\xf0\x9f"
    assert translation.ids == [*theirs.opening, *theirs.encode("the ")]
    assert translation.propose(theirs.encode("🙃 road"))[:3] == ids[cut : cut + 3]
    assert translation.propose(theirs.encode("road")) == []
    assert translation.propose(theirs.encode("\N{GOTHIC LETTER HWAIR} road")) == []


@pytest.mark.parametrize("target", LOSSLESS)
def test_inside_a_word_that_is_one_token_a_draft_goes_on_with_it(target: str) -> None:
    ours, theirs = _vocabulary(target), _vocabulary("bytes 300")
    translation, ids = Translation(ours, theirs), ours.encode(SENTENCES[1])
    at = max(range(1, len(ids)), key=lambda place: len(ours.written(ids[place : place + 1])))
    word, after = ours.text(ids[at : at + 1]), ours.text(ids[at + 1 : at + 3])
    translation.follow([*ids[:at], *ours.encode("\n" + word[:-2])[len(ours.encode("\n")) :]])
    rest = word[-2:] + after
    assert ours.text(translation.propose(theirs.encode(rest))) == rest


def test_a_text_that_is_taken_back_is_read_as_if_it_had_never_been() -> None:
    translation, ours = _translation("bytes 300", "pieces"), _vocabulary("bytes 300")
    ids, others = ours.encode(" ".join(SENTENCES * 3)), ours.encode(SENTENCES[1])
    for length in (len(ids) - 3, 40, 0):
        translation.forget(0)
        translation.follow(ids)
        before = list(translation.ids)
        translation.forget(length + 2)
        translation.forget(length)
        kept = translation.follow([*ids[:length], *others])
        assert translation.ids[:kept] == before[:kept]
        assert len(translation.ids) - kept < len(others) + 5
        fresh = _translation("bytes 300", "pieces")
        fresh.follow([*ids[:length], *others])
        assert translation.ids == fresh.ids


def _crossing(target: Target, model: Target) -> DraftModel:
    return DraftModel(target.info, DraftModelOptions(model=model, tokenizer="other", draft_tokens=5))


class Watched(DraftModel):
    """Keeps the trees that it proposed."""

    def __init__(self, target: Target, model: Target) -> None:
        super().__init__(target.info, DraftModelOptions(model=model, tokenizer="other", draft_tokens=5))
        self.trees: list[DraftTree] = []

    def propose(self, batch: DraftBatch) -> TreeBatch:
        batch_of_trees = super().propose(batch)
        self.trees += [tree for tree in batch_of_trees.unpack() if len(tree)]
        return batch_of_trees


@pytest.mark.parametrize("settings", [{}, {"temperature": 1.0}])
@pytest.mark.parametrize(("target", "draft"), [*RING, ("composing", "pieces"), ("pieces", "bytes 400")])
def test_the_text_is_that_of_plain_decoding(target: str, draft: str, settings: dict[str, Any]) -> None:
    accepted = 0
    served, model = _target(target), _target(draft)
    for sentence in range(3):
        drafter, prompt = _crossing(served, model), _prompt(target, sentence)
        result = outrider.generate(
            served, prompt, drafter, adaptive=False, max_new_tokens=30, seed=sentence, **settings
        )
        plain = outrider.generate(served, prompt, "none", max_new_tokens=30, seed=sentence, **settings)
        assert result.token_ids == plain.token_ids
        if not settings and served.tokenizer.eos_token_id is None:
            assert list(result.token_ids) == plain_loop(served.model, prompt, 30)
        accepted += result.stats.num_accepted_draft_tokens
    assert accepted > 0


@pytest.mark.parametrize("rule", ["rejection", "block", "match"])
@pytest.mark.parametrize(
    ("target", "draft"), [("bytes 300", "pieces"), ("pieces", "bytes 400"), ("bytes 400", "composing")]
)
def test_laws_over_the_common_tokens_are_honest(target: str, draft: str, rule: str) -> None:
    served, model = _target(target), _target(draft)
    accepted = 0
    for seed in range(3):
        drafter, common = Watched(served, model), Intersection.of(*vocabularies(served.info, model))
        options: dict[str, Any] = {
            "adaptive": False,
            "max_new_tokens": 24,
            "temperature": 1.0,
            "seed": seed,
            "rule": rule,
        }
        result = outrider.generate(served, _prompt(target), drafter, **options)
        accepted += result.stats.num_accepted_draft_tokens
        for tree in drafter.trees:
            assert set(tree.tokens) <= set(common.id_map.tolist())
            if rule == "match":
                assert tree.coupled
                continue
            assert tree.laws is not None
            assert tree.laws.id_map is not None
            assert torch.equal(tree.laws.id_map, common.id_map)
            assert torch.allclose(tree.laws.q.sum(-1), torch.ones(len(tree.laws.q), dtype=torch.float64), atol=1e-12)
        assert max(result.token_ids) < served.info.vocab_size
        if rule == "match":
            assert result.token_ids == outrider.generate(served, _prompt(target), "none", **options).token_ids
    assert accepted > 5


def test_every_token_is_fed_to_the_draft_model_about_once() -> None:
    """The prompt, then at most the draft and what of the text is new or encoded otherwise; it does not grow with the text."""
    served, model, fed = _target("bytes 300"), _target("pieces"), list[int]()
    prompt = served.tokenizer(" ".join(SENTENCES * 4)[:400])["input_ids"]
    drafter = _crossing(served, model)
    handle = model.model.register_forward_pre_hook(
        lambda module, args, kwargs: fed.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    steps = []
    for count in (40, 80, 160):
        fed.clear()
        result = outrider.generate(served, prompt, drafter, adaptive=False, max_new_tokens=count)
        steps.append((sum(fed[1:]), result.stats.num_steps))
        assert max(fed[1:]) < 24
    handle.remove()
    assert all(tokens <= rounds * (5 + 8) for tokens, rounds in steps)


def test_drafts_that_the_target_s_text_does_not_follow_end_with_the_context() -> None:
    """A draft model with less room than the text pauses."""
    served = _target("bytes 300")
    model = learnt("pieces")
    assert model.config.max_position_embeddings == 512
    short = outrider.load(_shortened(model, 24), tokenizer=KINDS["pieces"]())
    prompt = _prompt("bytes 300", 0, 3)
    result = outrider.generate(served, prompt, _crossing(served, short), adaptive=False, max_new_tokens=60)
    assert result.token_ids == outrider.generate(served, prompt, "none", max_new_tokens=60).token_ids
    assert 0 < result.stats.num_spec_steps < result.stats.num_steps


def _shortened(model: Any, positions: int) -> Any:
    config = type(model.config)(**(model.config.to_dict() | {"max_position_embeddings": positions}))
    other = type(model)(config).to(torch.float64).eval()
    other.load_state_dict(model.state_dict())
    return other


def test_sessions_and_batches_translate_a_row_each() -> None:
    served, model = _target("bytes 300"), _target("pieces")
    with outrider.session(served, _crossing(served, model), adaptive=False, max_new_tokens=12) as turns:
        for sentence in (0, 1, 2):
            before = [*turns.ids, *_prompt("bytes 300", sentence)]
            result = turns.generate(_prompt("bytes 300", sentence))
            assert result.token_ids == outrider.generate(served, before, "none", max_new_tokens=12).token_ids
            turns.truncate(len(turns.ids) - 5)
    prompts = [_prompt("bytes 300", sentence, 2 + sentence) for sentence in range(3)]
    results = outrider.generate_batch(served, prompts, _crossing(served, model), adaptive=False, max_new_tokens=30)
    for prompt, result in zip(prompts, results, strict=True):
        assert result.token_ids == outrider.generate(served, prompt, "none", max_new_tokens=30).token_ids
        assert result.stats.num_accepted_draft_tokens > 0
