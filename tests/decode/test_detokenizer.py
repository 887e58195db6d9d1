from typing import Any

import pytest

import outrider
from outrider.decode.detokenizer import Detokenizer
from support import char_tokenizer

TEXTS = [
    "Plain words, and  two spaces.\n\tA tab.",
    "Grüße aus Zürich – naïve café",
    "日本語のテキストと emoji 🦊🚀👩‍🔬 mixed",
    " leading space and trailing ",
]


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_join_to_the_text_and_never_hold_half_a_character(smollm2: outrider.Target, text: str) -> None:
    tokenizer = smollm2.tokenizer
    ids = tokenizer(text).input_ids
    pieces: list[str] = []
    stream = Detokenizer(tokenizer)
    for index, token in enumerate(ids):
        pieces += stream.push([token], last=index == len(ids) - 1)
    assert "".join(pieces) == tokenizer.decode(ids, skip_special_tokens=True) == text
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)
    assert Detokenizer(tokenizer).push(ids, last=True) == tuple(pieces)


def test_special_tokens_give_no_text(smollm2: outrider.Target) -> None:
    tokenizer: Any = smollm2.tokenizer
    ids = [*tokenizer("one two").input_ids, 2, *tokenizer(" three").input_ids, 2]
    assert "".join(Detokenizer(tokenizer).push(ids, last=True)) == "one two three"


def test_without_a_tokenizer_there_is_no_text() -> None:
    assert Detokenizer(None).push([1, 2, 3], last=True) == ("", "", "")


def test_one_piece_a_token() -> None:
    assert Detokenizer(char_tokenizer()).push([0, 1, 2]) == ("a", "b", "c")
