import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import outrider
from outrider import InputError
from outrider.train.chat_file import ChatFile, Progress
from outrider.train.chats import Chat, read_chats
from outrider.train.conversation import Conversation, Limits, repeats
from outrider.train.lockstep import draw, write
from outrider.train.synthesis import Recipe, synthesize
from outrider.train.template import ChatTemplate
from train.chatty import target, tokenizer

ASKED = [[{"role": "user", "content": text}] for text in ("w1", "w2 w3 w4 w5 w6", "w7 w8", "w9 w10 w11")]
LIMITS = Limits(turns=2, user=48, answer=48, chat=200)
RECIPE = Recipe(seed=3, batch_size=12, limits=LIMITS)


def made(out: Path, recipe: Recipe = RECIPE, tokens: int | None = 300) -> list[Progress]:
    seen: list[Progress] = []
    synthesize(target(), recipe, out, tokens, lambda done: seen.append(replace(done)))
    return seen


def test_rows_in_lockstep_are_those_of_plain_decoding() -> None:
    template = ChatTemplate.of(tokenizer())
    lines = [Conversation(template, tokenizer(), LIMITS, messages=one) for one in ASKED]
    write(target(), lines, 0)
    plain = outrider.generate_batch(target(), ASKED, "none", max_new_tokens=LIMITS.answer, temperature=0)
    assert [one.chat.messages[-1]["content"] for one in lines] == [one.text for one in plain]
    assert len({one.text for one in plain}) > 1
    assert [one.finished for one in lines] == [one.finish_reason != "length" for one in plain]


def test_what_the_model_asks_is_part_of_the_chat() -> None:
    template = ChatTemplate.of(tokenizer())
    lines = [Conversation(template, tokenizer(), LIMITS, opening="w20 w21") for _ in range(80)]
    write(target(), lines, 1)
    found = [one.chat for one in lines if one.chat.messages]
    assert found
    for chat in found:
        assert chat.messages[0]["content"].startswith("w20 w21")
        assert [one["role"] for one in chat.messages] == ["user", "assistant"] * (len(chat.messages) // 2)
    assert any(len(chat.messages) == 4 for chat in found)
    answers = {chat.messages[0]["content"]: chat.messages[1]["content"] for chat in found}
    prompts: list[Any] = [[{"role": "user", "content": text}] for text in answers]
    plain = outrider.generate_batch(target(), prompts, "none", max_new_tokens=LIMITS.answer, temperature=0)
    assert [one.text for one in plain] == list(answers.values())


def test_the_template_is_read_off_a_chat() -> None:
    found = ChatTemplate.of(tokenizer())
    ids = tokenizer().convert_tokens_to_ids
    assert found.start == tuple(ids(["<s>", "<user>"]))
    assert found.answer == tuple(ids(["<end>", "<bot>"]))
    assert found.turn == tuple(ids(["<end>", "<user>"]))
    assert found.ends == {ids("<end>")}


def test_draws_follow_the_law() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, -50.0]]).expand(4000, -1)
    noise = torch.Generator().manual_seed(0)
    hot = draw(logits, [0.5] * 4000, noise).bincount(minlength=4) / 4000
    torch.testing.assert_close(hot, (logits[0] / 0.5).softmax(-1), atol=0.03, rtol=0)
    assert not torch.allclose(hot, logits[0].softmax(-1), atol=0.03)
    assert draw(logits, [0.0] * 4000, noise).tolist() == [2] * 4000


def test_text_is_made_until_there_is_enough_and_gone_on_with(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole.jsonl", tmp_path / "broken.jsonl"
    assert made(whole)[-1].tokens >= 300
    begun = made(broken, tokens=1)[-1]
    assert 0 < begun.tokens < 300
    kept = broken.read_bytes()
    with broken.open("ab") as file:  # as a kill in the middle of a batch leaves it
        file.write(b'{"messages": [{"role": "user", "content": "w1"}]}\n{"mess')
    rest = made(broken)
    assert rest[0] == begun
    assert broken.read_bytes().startswith(kept)
    assert broken.read_bytes() == whole.read_bytes()
    assert made(whole) == [rest[-1]]  # nothing is left to do
    chats = list(read_chats(whole))
    assert len(chats) == rest[-1].chats
    assert len({chat.messages[0]["content"] for chat in chats}) == len(chats)


def test_prompts_are_answered_once(tmp_path: Path) -> None:
    recipe = replace(RECIPE, prompts=tuple(tuple(one) for one in ASKED), batch_size=3, temperatures=(0.0,))
    done = made(tmp_path / "x.jsonl", recipe, None)
    assert done[-1].batches == 2
    assert [chat.messages[0]["content"] for chat in read_chats(tmp_path / "x.jsonl")] == [
        one[0]["content"] for one in ASKED
    ]


def test_other_settings_and_other_files_are_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "x.jsonl"
    made(out, tokens=1)
    with pytest.raises(InputError, match=r"was made with seed 3, and this is 4: give another file"):
        made(out, replace(RECIPE, seed=4))
    (tmp_path / "mine.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match="is there, and not made by `data synthesize`"):
        made(tmp_path / "mine.jsonl")
    assert (tmp_path / "mine.jsonl").read_text() == "{}\n"
    with pytest.raises(InputError, match=r"can't be written: No such file"):
        made(tmp_path / "no" / "x.jsonl")


def test_a_full_disk_leaves_whole_batches(tmp_path: Path) -> None:
    out = tmp_path / "x.jsonl"
    made(out, tokens=1)
    kept = out.read_bytes()
    writer = ChatFile(out, json.loads((tmp_path / "x.jsonl.recipe.json").read_text()))
    with writer:

        class Full:
            def __init__(self, file: Any) -> None:
                self.file = file

            def __getattr__(self, name: str) -> Any:
                return getattr(self.file, name)

            def write(self, data: bytes) -> int:
                return int(self.file.write(data[:7]))

        writer._file = Full(writer._file)  # type: ignore[assignment]
        with pytest.raises(InputError, match="can't be written: no space left"):
            writer.add([Chat((ASKED[0][0], ASKED[1][0]))], 0)
    assert out.read_bytes() == kept


def test_loops_are_seen() -> None:
    assert repeats([1, 2, 3, 4] * 16)
    assert not repeats([1, 2, 3, 4] * 15)
    assert not repeats(list(range(64)))


def test_a_model_without_turns_is_refused() -> None:
    other = tokenizer().__class__(tokenizer_object=tokenizer()._tokenizer)
    with pytest.raises(InputError, match="no chat template"):
        ChatTemplate.of(other)
    other.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    with pytest.raises(InputError, match="does not end its turns with a special token"):
        ChatTemplate.of(other)
    other.chat_template = "{{ raise_exception('x') }}"
    with pytest.raises(InputError, match="does not hold plain turns"):
        ChatTemplate.of(other)
