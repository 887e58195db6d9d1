import pytest

from outrider import InputError
from outrider.train.chats import Chat
from outrider.train.examples import count_tokens, encode_chats
from train.chatty import tokenizer

ASK, ANSWER = {"role": "user", "content": "w1 w2"}, {"role": "assistant", "content": "w3 w4"}


def learnt(chat: Chat, longest: int = 99) -> tuple[list[str], list[str]]:
    """All tokens, and those that are learnt."""
    (one,) = encode_chats(tokenizer(), [chat], longest)
    words = tokenizer().convert_ids_to_tokens(one.ids)
    return words, [word for word, answer in zip(words, one.answers, strict=True) if answer]


def test_answers_and_what_ends_them_are_learnt() -> None:
    words, marked = learnt(Chat((ASK, ANSWER)))
    assert words == ["<s>", "<user>", "w1", "w2", "<end>", "<bot>", "w3", "w4", "<end>"]
    assert marked == ["w3", "w4", "<end>"]


def test_an_unfinished_answer_has_no_end() -> None:
    words, marked = learnt(Chat((ASK, ANSWER), finished=False))
    assert (words[-1], marked) == ("w4", ["w3", "w4"])


def test_two_answers() -> None:
    again = {"role": "assistant", "content": "w7"}
    words, marked = learnt(Chat((ASK, ANSWER, ASK, again), finished=False))
    assert marked == ["w3", "w4", "<end>", "w7"]
    assert words.count("<end>") == 3
    text = tokenizer().apply_chat_template([ASK, ANSWER, ASK], tokenize=False, add_generation_prompt=True)
    assert words[:-1] == tokenizer().convert_ids_to_tokens(tokenizer()(text, add_special_tokens=False).input_ids)


def test_a_text_is_cut() -> None:
    words, marked = learnt(Chat((ASK, ANSWER)), 7)
    assert (len(words), marked) == (7, ["w3"])
    with pytest.raises(InputError, match="none of the 1 chats has an assistant's answer within its first 6 tokens"):
        learnt(Chat((ASK, ANSWER)), 6)


def test_tokens_that_are_learnt_are_counted() -> None:
    counts = count_tokens(encode_chats(tokenizer(), [Chat((ASK, ANSWER)), Chat((ASK, ANSWER))], 99), 70)
    ids = tokenizer().convert_tokens_to_ids(["w3", "w4", "<end>", "w1"])
    assert [int(counts[one]) for one in ids] == [2, 2, 2, 0]
    assert int(counts.sum()) == 6


def test_a_template_that_rewrites_is_refused() -> None:
    other = tokenizer().__class__(tokenizer_object=tokenizer()._tokenizer)
    other.chat_template = "{{ messages | length }}{% for m in messages %}{{ m['content'] }}{% endfor %}"
    with pytest.raises(InputError, match="rewrites earlier turns"):
        encode_chats(other, [Chat((ASK, ANSWER))], 99)
    other.chat_template = "{{ raise_exception('no') }}"
    with pytest.raises(InputError, match="can't write a chat of the data"):
        encode_chats(other, [Chat((ASK, ANSWER))], 99)
    other.chat_template = None
    with pytest.raises(InputError, match="no chat template"):
        encode_chats(other, [Chat((ASK, ANSWER))], 99)
