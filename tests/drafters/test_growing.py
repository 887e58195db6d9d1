"""Ids of growing texts: what encoding all of it gives, from bounded tails."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from other_tokenizers import KINDS, SENTENCES
from outrider_drafters.vocabulary.growing import GrowingIds
from outrider_drafters.vocabulary.vocabularies import Vocabulary

LONG = " ".join(SENTENCES * 40)


def _vocabulary(kind: str) -> Vocabulary:
    tokenizer: Any = KINDS[kind]()
    return Vocabulary(tokenizer, len(tokenizer))


def _growing(kind: str) -> GrowingIds:
    return GrowingIds(_vocabulary(kind).encode, _vocabulary(kind).text)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", [0, 40, 700, 3000])
def test_ids_are_those_of_the_whole_text(kind: str, first: int) -> None:
    encode, growing = _vocabulary(kind).encode, _growing(kind)
    growing.grow(LONG[:first])
    for at in range(first, first + 900, 3):
        growing.grow(LONG[at : at + 3])
        assert growing.ids == encode(LONG[: at + 3])


@pytest.mark.parametrize("kind", KINDS)
def test_only_a_bounded_tail_is_encoded_again(kind: str) -> None:
    vocabulary, lengths = _vocabulary(kind), list[int]()

    def encode(text: str) -> list[int]:
        lengths.append(len(text))
        return vocabulary.encode(text)

    growing = GrowingIds(encode, vocabulary.text)
    growing.grow(LONG[:5000])
    assert len(lengths) <= 20
    lengths.clear()
    for at in range(5000, 8000):
        growing.grow(LONG[at])
    assert max(lengths) < 1000
    assert len(lengths) < 3000 * 1.1


@pytest.mark.parametrize("kind", KINDS)
def test_ids_that_stay_are_told(kind: str) -> None:
    """The ids that are said to stay do, they are all that do, and only a few at the end change."""
    growing, before = _growing(kind), list[int]()
    for letter in LONG[:1500]:
        kept = growing.grow(letter)
        assert growing.ids[:kept] == before[:kept]
        assert kept in (len(before), len(growing.ids)) or growing.ids[kept] != before[kept]
        assert len(before) - kept <= 12
        before = list(growing.ids)


@settings(max_examples=60, deadline=None)
@given(kind=st.sampled_from(sorted(KINDS)), parts=st.lists(st.text(max_size=60), max_size=40), long=st.booleans())
def test_any_text_keeps_what_it_says(kind: str, parts: list[str], long: bool) -> None:
    encode, growing, text = _vocabulary(kind).encode, _growing(kind), ""
    for part in [LONG[:600] if long else "", *parts]:
        before = list(growing.ids)
        kept = growing.grow(part)
        assert growing.ids[:kept] == before[:kept]
        text += part
    if len(text) < 250:  # before any point is set
        assert growing.ids == encode(text)


def test_ids_that_later_text_changes_are_taken_back() -> None:
    """All of them, by a tokenizer that reads a text otherwise where it holds a mark."""
    growing = GrowingIds(lambda text: [int("!" in text)] * len(text), lambda ids: " " * len(ids))
    for letter in "ab " * 400:
        growing.grow(letter)
    assert growing.grow("!") == 0
    assert growing.ids == [1] * 1201


def test_a_tokenizer_that_no_point_suits_is_not_asked_at_every_step() -> None:
    """One whose ids all change with the length of the text."""
    calls = list[int]()

    def encode(text: str) -> list[int]:
        calls.append(len(text))
        return [len(text)] * len(text)

    growing = GrowingIds(encode, lambda ids: "")
    for at in range(2000):
        growing.grow("ab "[at % 3])
        assert growing.ids == [at + 1] * (at + 1)
    assert len(calls) < 2000 + 12 * (2000 // 256 + 1)
