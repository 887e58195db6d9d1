import json
from pathlib import Path
from typing import Any

import pytest

import outrider
from outrider.prompt_file import NamedPrompt, read_prompts

MESSAGES = [
    {"role": "system", "content": "be short"},
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "answer"},
    {"role": "user", "content": "two"},
]
SHARED = [{"from": "human", "value": "one"}, {"from": "gpt", "value": "answer"}, {"from": "human", "value": "two"}]
SHAPES: list[tuple[Any, NamedPrompt]] = [
    ({"prompt": "one"}, NamedPrompt("1", "one")),
    ({"name": "x", "prompt": "one", "category": "qa"}, NamedPrompt("x", "one", "qa")),
    ({"question_id": 7, "turns": ["one", "two"], "category": "c"}, NamedPrompt("7", "one", "c", ("two",))),
    ({"messages": MESSAGES}, NamedPrompt("1", "one", "", ("two",), "be short")),
    ({"id": "s", "conversations": SHARED}, NamedPrompt("s", "one", "", ("two",))),
]


@pytest.mark.parametrize(("value", "wanted"), SHAPES)
def test_all_shapes_are_read_as_lines_and_as_a_list(tmp_path: Path, value: Any, wanted: NamedPrompt) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(value) + "\n\n")
    (tmp_path / "a.json").write_text(json.dumps([value], indent=1))
    assert read_prompts(tmp_path / "a.jsonl") == read_prompts(tmp_path / "a.json") == (wanted,)


def test_lines_of_text_are_prompts(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("say one\n\n  say two \n")
    assert read_prompts(tmp_path / "a.txt") == (NamedPrompt("1", "say one"), NamedPrompt("3", "say two"))


def test_the_opening_has_the_system_prompt() -> None:
    assert NamedPrompt("a", "one").opening == "one"
    assert NamedPrompt("a", "one", system="s").opening == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "one"},
    ]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"turns": ["one", ""]}, 'write {"prompt"'),
        ({"turns": "one"}, 'write {"prompt"'),
        ({"messages": [{"role": "user"}]}, "message 1 has no text"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "message 1 has the role 'tool'"),
        ({"messages": [*MESSAGES, {"role": "system", "content": "x"}]}, "message 5 has the role 'system'"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, 'write {"prompt"'),
        ({"conversations": "x"}, "message 1 has no text"),
    ],
)
def test_what_is_no_prompt_is_told_with_its_line(tmp_path: Path, value: Any, message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "good"}\n' + json.dumps(value) + "\n")
    with pytest.raises(outrider.InputError, match=rf"a\.jsonl:2: .*{message}"):
        read_prompts(path)


@pytest.mark.parametrize(
    ("text", "message"), [("{", "a.json:1: no JSON"), ("{}", "expected a list"), ("[]", "no prompt")]
)
def test_a_json_file_is_a_list(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(outrider.InputError, match=message):
        read_prompts(tmp_path / "a.json")
