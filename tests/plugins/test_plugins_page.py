"""The page on plugins: its examples run, and it names every hook, status and variable."""

import inspect
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, get_args

import pytest

import outrider
from outrider.plugins import hookspecs, loader, selection
from outrider.plugins.package import package_files
from outrider.plugins.registry import Registry
from outrider.trace import VARIABLE
from pages import ROOT, blocks, read
from support import tiny_target

FILE = ROOT / "docs" / "plugins.md"
PAGE = read(FILE)


def _block(language: str) -> str:
    (found,) = blocks(FILE, language)
    return found.text


def test_every_hook_is_named_with_its_arguments() -> None:
    hooks = [one for one in vars(hookspecs).values() if hasattr(one, "outrider_spec")]
    assert len(hooks) == 2
    for hook in hooks:
        assert f"| `{hook.__name__}({', '.join(inspect.signature(hook).parameters)})` |" in PAGE


def test_the_example_is_a_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trained" / "one").mkdir(parents=True)
    (tmp_path / "trained" / "one" / "target.json").write_text("{}")
    (tmp_path / "outrider_echo.py").write_text(_block("python"))
    monkeypatch.syspath_prepend(tmp_path)
    known = Registry(loader.load_plugins([EntryPoint("echo", "outrider_echo", "outrider")]), strict=True)
    assert [(one.drafter, one.folder.name) for one in known.offers] == [("eagle3", "one")]
    target = tiny_target(0, 0.1)
    drafter: Any = known.find("echo").drafter
    result = outrider.generate(target, [1, 2] * 5, drafter, max_new_tokens=24, adaptive=False)
    assert result.stats.num_draft_tokens > 0
    assert result.token_ids == outrider.generate(target, [1, 2] * 5, "none", max_new_tokens=24).token_ids


def test_the_entry_point_is_that_of_the_template() -> None:
    made = tomllib.loads(package_files("outrider-foo")["pyproject.toml"])
    assert tomllib.loads(_block("toml"))["project"]["entry-points"] == made["project"]["entry-points"]


def test_everything_has_its_line() -> None:
    for variable in (selection.ONLY, selection.WITHOUT, VARIABLE):
        assert f"| `{variable}` |" in PAGE
    for status in get_args(loader.Status):
        assert f"`{status}`" in PAGE
