import json
from pathlib import Path
from typing import Any

import pytest

import outrider
from outrider.compare.figures import median_interval, ratios
from outrider.compare.prompts import BUILTIN
from outrider.compare.runner import Run, run
from outrider.prompt_file import NamedPrompt, read_prompts

PROMPTS = [NamedPrompt("one", "1"), NamedPrompt("two", "2")]


class Contestants:
    """Two contestants whose calls are recorded."""

    def __init__(self, fail_at: int = 10**9) -> None:
        self.calls: list[tuple[str, str]] = []
        self._fail_at = fail_at

    def all(self) -> dict[str, Any]:
        return {"a": self._one("a"), "b": self._one("b")}

    def _one(self, name: str) -> Any:
        def contestant(prompt: NamedPrompt) -> Any:
            if len(self.calls) == self._fail_at:
                raise KeyboardInterrupt
            self.calls.append((name, prompt.name))
            return [1, 2, 3], 0.5 if name == "a" else 1.0, {"num_tokens": 3, "num_steps": 1}

        return contestant


def test_contestants_take_turns_and_change_order() -> None:
    made = Contestants()
    runs = run(made.all(), PROMPTS, 2, {})
    order = [("a", "one"), ("b", "one"), ("a", "two"), ("b", "two")]
    assert made.calls == [*order, ("b", "one"), ("a", "one"), ("b", "two"), ("a", "two")]
    assert len(runs) == 8
    assert ratios(runs, "a", "b") == [2.0] * 4
    assert ratios(runs, "a", "b", "one") == [2.0] * 2


def test_an_interrupted_record_goes_on_where_it_stopped(tmp_path: Path) -> None:
    record = tmp_path / "runs.jsonl"
    first = Contestants(fail_at=5)
    with pytest.raises(KeyboardInterrupt):
        run(first.all(), PROMPTS, 2, {"n": 1}, record)
    with record.open("a") as file:
        file.write('{"contestant": "a", "pro')  # killed in the middle of a line
    second = Contestants()
    runs = run(second.all(), PROMPTS, 2, {"n": 1}, record)
    assert len(second.calls) == 3
    assert len(runs) == 8
    assert all(isinstance(one, Run) and one.token_ids == (1, 2, 3) for one in runs)
    third = Contestants()
    assert run(third.all(), PROMPTS, 2, {"n": 1}, record) == runs
    assert third.calls == []


def test_a_record_of_other_settings_is_not_taken_up(tmp_path: Path) -> None:
    record = tmp_path / "runs.jsonl"
    run(Contestants().all(), PROMPTS, 1, {"n": 1}, record)
    before = record.read_text()
    with pytest.raises(outrider.InputError, match="other settings"):
        run(Contestants().all(), PROMPTS, 1, {"n": 2}, record)
    with pytest.raises(outrider.InputError, match="other settings"):
        run(Contestants().all(), [NamedPrompt("one", "changed"), PROMPTS[1]], 1, {"n": 1}, record)
    assert record.read_text() == before
    record.write_bytes(b"\xff\xfe\n")
    with pytest.raises(outrider.InputError, match="no record of runs"):
        run(Contestants().all(), PROMPTS, 1, {"n": 1}, record)
    with pytest.raises(outrider.InputError, match="can't be used"):
        run(Contestants().all(), PROMPTS, 1, {"n": 1}, tmp_path)
    record.write_text("something else\n")
    with pytest.raises(outrider.InputError, match="no record of runs"):
        run(Contestants().all(), PROMPTS, 1, {"n": 1}, record)


def test_prompts_of_one_name_are_refused() -> None:
    with pytest.raises(outrider.InputError, match="same name"):
        run(Contestants().all(), [PROMPTS[0]] * 2, 1, {})


@pytest.mark.parametrize(("count", "rank"), [(3, 0), (5, 0), (6, 0), (9, 1), (10, 1), (12, 2), (20, 5)])
def test_the_interval_holds_the_median_at_95_percent(count: int, rank: int) -> None:
    """Ranks from the usual table of the binomial interval."""
    values = [float(value) for value in range(count)]
    found = median_interval(values)
    assert (found.low, found.high) == (float(rank), float(count - 1 - rank))


def test_prompts_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    lines = [{"prompt": "one"}, {"name": "x", "prompt": "two"}, {"question_id": 7, "turns": ["three", "four"]}]
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    assert read_prompts(path) == (
        NamedPrompt("1", "one"),
        NamedPrompt("x", "two"),
        NamedPrompt("7", "three", later=("four",)),
    )


@pytest.mark.parametrize(
    ("text", "message"), [("", "no prompt"), ("{", ":1: no JSON"), ('{"a": 1}', ":1: write"), ("3", ":1")]
)
def test_a_bad_prompts_file_is_told_by_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(text)
    with pytest.raises(outrider.InputError, match=message):
        read_prompts(path)
    with pytest.raises(outrider.InputError, match="can't be read"):
        read_prompts(tmp_path / "none")


def test_the_built_in_prompts_are_a_story_an_edit_and_a_quote() -> None:
    assert [prompt.name for prompt in BUILTIN] == ["story", "code edit", "quote"]


def test_a_record_that_was_cut_in_its_first_line_begins_again(tmp_path: Path) -> None:
    record = tmp_path / "deep" / "runs.jsonl"
    run(Contestants().all(), PROMPTS, 1, {"n": 1}, record)
    record.write_text(record.read_text()[:15])
    made = Contestants()
    assert len(run(made.all(), PROMPTS, 1, {"n": 1}, record)) == len(made.calls) == 4
