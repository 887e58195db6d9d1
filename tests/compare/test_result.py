import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import outrider
from compare.schemas import faults
from outrider.compare.files import dumps, read, save, schema, write
from outrider.compare.pooled import with_figures

DATA = Path(__file__).parent / "data" / "run.json"
PUBLISHED = Path(__file__).parents[2] / "docs" / "schema" / "compare-1.json"


def value() -> Any:
    return json.loads(DATA.read_text())


def test_the_published_schema_is_that_of_the_code() -> None:
    assert json.loads(PUBLISHED.read_text()) == json.loads(json.dumps(schema()))


def test_a_saved_comparison_is_of_the_published_schema_and_comes_back_whole(tmp_path: Path) -> None:
    published = json.loads(PUBLISHED.read_text())
    found = read(DATA)
    assert faults(value(), published, published) == []
    save(found, tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text()) == value()
    assert read(tmp_path / "again.json") == found
    assert [path.name for path in tmp_path.iterdir()] == ["again.json"]


@pytest.mark.parametrize(
    ("place", "put"),
    [
        (("settings", "seed"), "one"),
        (("settings", "colour"), 1),
        (("runs", 0, "steps", "emitted", 0), 1.5),
        (("rows", 0, "kind"), "other"),
        (("runs", 0, "token_ids"), None),
    ],
)
def test_what_the_schema_forbids_is_refused_with_its_place(tmp_path: Path, place: tuple[Any, ...], put: Any) -> None:
    published, found = json.loads(PUBLISHED.read_text()), value()
    inner = found
    for part in place[:-1]:
        inner = inner[part]
    inner[place[-1]] = put
    assert faults(found, published, published)
    (tmp_path / "bad.json").write_text(json.dumps(found))
    with pytest.raises(outrider.InputError, match=r"bad\.json: " + ".".join(map(str, place))):
        read(tmp_path / "bad.json")


@pytest.mark.parametrize(
    ("place", "put", "message"),
    [
        (("runs", 1, "row"), "who", r"runs\.1\.row: there is no row 'who'"),
        (("runs", 0, "prompt"), 99, r"runs\.0\.prompt: there is no prompt 99"),
        (("runs", 0, "part"), 7, r"runs\.0\.part: there is no part 7"),
        (("runs", 0, "steps", "drafted"), [1], r"runs\.0\.steps\.drafted: 1 entries, and there are \d+ steps"),
        (("runs", 0, "pieces"), ["a"], r"runs\.0\.pieces: 1 entries, and there are \d+ tokens"),
        (("figures", 0, "row"), "who", r"figures: there is no row 'who'"),
    ],
)
def test_loose_ends_are_refused(tmp_path: Path, place: tuple[Any, ...], put: Any, message: str) -> None:
    found = value()
    inner = found
    for part in place[:-1]:
        inner = inner[part]
    inner[place[-1]] = put
    (tmp_path / "bad.json").write_text(json.dumps(found))
    with pytest.raises(outrider.InputError, match=r"bad\.json: " + message):
        read(tmp_path / "bad.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": "outrider.compare", "version": 0}', "version 0 of the schema, and this outrider reads 1"),
        ('{"format": "outrider.compare", "version": 2}', "version 2 of the schema.*: it was written by a newer one"),
        ('{"format": "other"}', "no saved comparison"),
        ("[1]", "no saved comparison"),
        ("{", "no saved comparison"),
        ("\x00", "no saved comparison"),
    ],
)
def test_other_files_are_told_apart(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(outrider.InputError, match=message):
        read(path)
    with pytest.raises(outrider.InputError, match="can't be read"):
        read(tmp_path / "none.json")


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.json"
    path.write_text("old")

    def full(*_: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("outrider.compare.files.dumps", full)
    with pytest.raises(OSError, match="No space left"):
        save(read(DATA), path)
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("run.json", "old")]


def close(one: Any, other: Any) -> bool:
    """Whether two values are the same up to the last digits of their numbers."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(close, one, other))
    return bool(one == (pytest.approx(other, rel=1e-9) if isinstance(other, float) else other))


def test_the_example_is_of_today() -> None:
    """Its figures are those that are worked out from its runs, so that reports read nothing that is gone."""
    found = read(DATA)
    again = replace(found, figures=())
    assert close(json.loads(dumps(with_figures(again))), json.loads(dumps(found)))


def test_a_link_stays_one_and_a_device_is_not_replaced(tmp_path: Path) -> None:
    file, link, pipe = (tmp_path / name for name in ("file", "link", "pipe"))
    link.symlink_to(file)
    write("told", link)
    assert (link.is_symlink(), file.read_text()) == (True, "told")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write("told", pipe)
    assert (pipe.is_fifo(), os.read(reader, 9)) == (True, b"told")
    os.close(reader)
