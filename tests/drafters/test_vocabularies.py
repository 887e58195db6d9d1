"""Tokens as bytes."""

import copy
from typing import Any

import pytest

import outrider
from other_tokenizers import KINDS, SENTENCES, byte_level, composing, lower_cased, one_word_a_token, pieces, syllables
from outrider_drafters.vocabulary.intersection import Intersection
from outrider_drafters.vocabulary.tokenizers import vocabularies
from outrider_drafters.vocabulary.vocabularies import Vocabulary
from support import char_tokenizer, tiny_model

LOSSLESS = ("bytes 300", "bytes 400", "pieces", "composing")


def _vocabulary(tokenizer: Any, more: int = 0) -> Vocabulary:
    return Vocabulary(tokenizer, len(tokenizer) + more)


@pytest.mark.parametrize("kind", LOSSLESS)
@pytest.mark.parametrize("text", [*SENTENCES, "  a\n\n\tb ", "🙂🙃", "e\u0301 漢字", "\x00\x7f ÿ"])
def test_a_text_is_what_its_tokens_spell(kind: str, text: str) -> None:
    vocabulary = _vocabulary(KINDS[kind]())
    expected = vocabulary.normal(text)
    assert vocabulary.written(vocabulary.encode(text)).decode() == expected
    assert (expected == text) is not (kind == "composing" and "\u0301" in text)


def test_tokens_spell_the_same_in_every_kind_of_tokenizer() -> None:
    for vocabulary, words in (
        (_vocabulary(byte_level(400)), ("Ġthe", "Ċ", "Ã")),
        (_vocabulary(pieces(420)), ("▁t", "<0x0A>", "<0xC3>")),
    ):
        names = vocabulary._tokenizer.get_vocab()
        assert vocabulary.spelled(names[words[0]]) == words[0].replace("Ġ", " ").replace("▁", " ").encode()
        assert [vocabulary.spelled(names[word]) for word in words][1:] == [b"\n", b"\xc3"]
    others = _vocabulary(lower_cased()), _vocabulary(one_word_a_token()), _vocabulary(char_tokenizer())
    found = [[vocabulary.written([token]) for token in vocabulary.encode("the road.")] for vocabulary in others]
    assert found[0] == [b" the", b" road", b"."]
    assert found[1][1] == b" road."
    assert b"".join(found[2]) == b"the road."


def test_special_tokens_spell_nothing_and_have_roles() -> None:
    tokenizer = byte_level(400, "</s>", "<s>")
    ours, theirs = _vocabulary(tokenizer), _vocabulary(pieces(420))
    chat, plain = _vocabulary(composing()), _vocabulary(byte_level(300))
    assert ours.spelled(tokenizer.eos_token_id) is None
    assert ours.opening == [1]
    assert chat.opening == []
    assert theirs.counterpart(tokenizer.eos_token_id, ours) == 2
    assert plain.counterpart(tokenizer.eos_token_id, ours) == 0
    assert plain.counterpart(tokenizer.bos_token_id, ours) is None
    assert plain.counterpart(chat.encode("<|im_start|>")[0], chat) is None
    assert chat.counterpart(chat.encode("<|im_start|>")[0], chat) == 1


def test_a_model_may_have_more_ends_than_its_tokenizer() -> None:
    tokenizer = composing()
    vocabulary = Vocabulary(tokenizer, len(tokenizer), {1})
    assert vocabulary.eos_ids == {0, 1}
    assert vocabulary.end() == 0
    assert vocabulary.end([1, 17, 18]) == 1
    assert _vocabulary(byte_level(300)).counterpart(1, vocabulary) == 0


@pytest.mark.parametrize("target", LOSSLESS)
def test_vocabularies_without_common_tokens_are_told(target: str) -> None:
    with pytest.raises(outrider.InputError, match=r"of the draft model's \d+ tokens in common, too few .* 'match'"):
        Intersection.of(_vocabulary(KINDS[target]()), _vocabulary(syllables()))


@pytest.mark.parametrize(
    ("target", "draft"), [(one, other) for one in KINDS for other in KINDS if "words" not in (one, other)]
)
def test_common_tokens_are_the_same_bytes_one_to_one(target: str, draft: str) -> None:
    theirs, ours = (Vocabulary(KINDS[kind](), len(KINDS[kind]()) - 3) for kind in (target, draft))
    common = Intersection.of(theirs, ours)
    pairs = list(zip(common.draft_ids.tolist(), common.id_map.tolist(), strict=True))
    assert len({one for one, _ in pairs}) == len({other for _, other in pairs}) == len(pairs)
    ends = {(ours.end(), theirs.end())}
    assert all(ours.spelled(one) == theirs.spelled(other) != None or (one, other) in ends for one, other in pairs)  # noqa: E711
    assert max(one for one, _ in pairs) < ours.size
    assert max(other for _, other in pairs) < theirs.size
    if target == draft:
        assert all(ours.spelled(one) == ours.spelled(other) for one, other in pairs)
        assert common.share > 0.7


def test_a_byte_of_last_resort_gives_way_to_a_piece() -> None:
    tokenizer = pieces(420)
    names = tokenizer.get_vocab()
    common = Intersection.of(_vocabulary(byte_level(300)), _vocabulary(tokenizer))
    assert names["e"] in common.draft_ids.tolist()
    assert names["<0x65>"] not in common.draft_ids.tolist()
    assert names["<0x0A>"] in common.draft_ids.tolist()


@pytest.mark.parametrize("missing", ["the target", "the draft model"])
def test_a_missing_tokenizer_is_told(missing: str) -> None:
    pair = [outrider.load(tiny_model(), tokenizer=None if one == missing else char_tokenizer()) for one in
            ("the target", "the draft model")]  # fmt: skip
    with pytest.raises(outrider.InputError, match=f"{missing} has no tokenizer.*load it with one"):
        vocabularies(pair[0].info, pair[1])


def test_what_a_tokenizer_refuses_is_left_out() -> None:
    """One without an unknown token."""
    tokenizer = copy.deepcopy(char_tokenizer())
    model: Any = type(tokenizer.backend_tokenizer.model)
    tokenizer.backend_tokenizer.model = model(tokenizer.get_vocab())
    with pytest.raises(Exception, match="UNK"):
        tokenizer("a-b")
    vocabulary = _vocabulary(tokenizer)
    assert vocabulary.encode("a--b🙂c-") == [0, 1, 2]
    assert vocabulary.encode("--") == []
