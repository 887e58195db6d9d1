"""A new plugin's package: its files, and which names and folders are refused."""

import ast
import tomllib
from pathlib import Path
from typing import Any

import pytest

from outrider import InputError
from outrider.cli.app import app, run_app
from outrider.plugins.package import new_plugin, package_files
from registries import registry_of
from support import Scripted

ROOT = Path(__file__).parents[2]


def test_the_template_in_plugins_is_what_is_made() -> None:
    folder = ROOT / "plugins" / "outrider-template"
    found = {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file() and not {"__pycache__", ".pytest_cache"} & set(path.parts)
    }
    assert found == package_files("outrider-template")


def test_a_package_has_its_name_everywhere(tmp_path: Path) -> None:
    folder = new_plugin("outrider-two-words", tmp_path / "here")
    made = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert made == {"LICENSE", "README.md", "outrider_two_words.py", "pyproject.toml", "tests/test_two_words.py"}
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    assert project["project"]["name"] == "outrider-two-words"
    assert project["project"]["dependencies"] == ["outrider"]
    assert project["project"]["entry-points"]["outrider"] == {"two-words": "outrider_two_words"}
    module = ast.parse((folder / "outrider_two_words.py").read_text())
    assert [one.name for one in module.body if isinstance(one, ast.ClassDef)] == ["TwoWordsOptions", "TwoWords"]
    assert (folder / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    for path in folder.rglob("*.*"):
        assert "$" not in path.read_text(), path


@pytest.mark.parametrize(
    "name",
    [
        "",
        "foo",
        "outrider",
        "outrider-",
        "outrider-Foo",
        "outrider-a_b",
        "outrider-1a",
        "outrider-a--b",
        "../outrider-a",
    ],
)
def test_a_bad_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"plugin name '.*': write outrider- and the drafter's name"):
        new_plugin(name, tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("name", ["ngram", "none", "eagle3", "draft-model"])
def test_a_built_in_s_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"outrider.* has a drafter '{name}'; choose another name"):
        new_plugin(f"outrider-{name}", tmp_path / "x")


def test_a_name_that_would_hide_something_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is a module outrider_drafters already"):
        new_plugin("outrider-drafters", tmp_path / "x")
    foreign: Any = type("Foreign", (Scripted,), {"name": "foreign"})
    with pytest.raises(InputError, match="test 1 has a drafter 'foreign'"):
        new_plugin("outrider-foreign", tmp_path / "x", registry_of(foreign))


def test_a_folder_that_holds_something_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="full is not empty; name a new folder with --out"):
        new_plugin("outrider-foo", tmp_path / "full")
    with pytest.raises(InputError, match="mine.txt is a file"):
        new_plugin("outrider-foo", tmp_path / "full" / "mine.txt")
    with pytest.raises(InputError, match="can't be written: Not a directory"):
        new_plugin("outrider-foo", tmp_path / "full" / "mine.txt" / "deeper")
    assert [path.name for path in tmp_path.rglob("*.txt")] == ["mine.txt"]
    assert (new_plugin("outrider-foo", tmp_path / "empty") / "outrider_foo.py").is_file()


def test_the_command_makes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_app(app, ["plugin", "new", "outrider-foo"], "outrider") == 0
    assert "pip install -e outrider-foo" in capsys.readouterr().out
    assert (tmp_path / "outrider-foo" / "pyproject.toml").is_file()
    assert run_app(app, ["plugin", "new", "outrider-foo"], "outrider") == 2
    assert capsys.readouterr().err.startswith("error: outrider-foo is not empty")
    assert run_app(app, ["plugin", "new", "outrider-foo", "--out", "other"], "outrider") == 0
