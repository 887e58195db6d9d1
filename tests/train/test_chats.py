import json
from pathlib import Path

import pytest

from outrider import InputError
from outrider.train.chats import Chat, read_chats
from outrider.train.preparation import prepare

ASK, ANSWER = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join(line + "\n" if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
    return path


def test_both_shapes_are_read(tmp_path: Path) -> None:
    share = {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}
    file = write(
        tmp_path / "x.jsonl", {"messages": [ASK, ANSWER]}, share, "", {"messages": [ASK, ANSWER], "finished": False}
    )
    found = list(read_chats(file))
    assert found == [Chat((ASK, ANSWER)), Chat((ASK, ANSWER)), Chat((ASK, ANSWER), finished=False)]
    assert [Chat(tuple(one.to_json()["messages"]), one.to_json().get("finished", True)) for one in found] == found


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "x.jsonl:2: no JSON"),
        ({"prompt": "a"}, "x.jsonl:2: no chat; a line is"),
        ({"messages": []}, "x.jsonl:2: no chat"),
        ({"messages": [{"role": "user"}]}, "x.jsonl:2, message 0: write"),
        ({"messages": [ASK, {"role": "cat", "content": "b"}]}, "x.jsonl:2, message 1: role 'cat' is none of"),
        ({"messages": [ASK, ANSWER], "finished": "no"}, "x.jsonl:2: finished is 'no'"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: object, message: str) -> None:
    with pytest.raises(InputError, match=message.replace(".", r"\.")):
        list(read_chats(write(tmp_path / "x.jsonl", {"messages": [ASK, ANSWER]}, line)))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be read: No such file"):
        list(read_chats(tmp_path / "no.jsonl"))


def test_what_cannot_be_learnt_from_is_left_out(tmp_path: Path) -> None:
    lines = [
        [ASK, ANSWER],
        [ASK, ANSWER],
        [ASK],
        [ANSWER, ASK, ANSWER],
        [ASK, ASK, ANSWER],
        [ASK, {**ANSWER, "content": "c"}],
    ]
    file = write(tmp_path / "x.jsonl", *({"messages": one} for one in lines))
    counts = prepare([file], tmp_path / "out.jsonl")
    assert counts == {"kept": 2, "said before": 1, "no answer": 1, "turns out of order": 2}
    assert len(list(read_chats(tmp_path / "out.jsonl"))) == 2


def test_nothing_is_written_where_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none of the 1 chats can be learnt from: 1 no answer"):
        prepare([write(tmp_path / "x.jsonl", {"messages": [ASK]})], tmp_path / "out.jsonl")
    with pytest.raises(InputError, match="x.jsonl:1: no JSON"):
        prepare([write(tmp_path / "x.jsonl", "{")], tmp_path / "out.jsonl")
    assert [one.name for one in tmp_path.iterdir()] == ["x.jsonl"]
