"""Every example of the README runs."""

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

import outrider
from outrider.cli.app import app, run_app
from outrider.config import Config

README = (Path(__file__).parent.parent / "README.md").read_text()


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_python_examples_run_in_order(smollm2: outrider.Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outrider, "load", lambda name: smollm2)
    scope: dict[str, Any] = {}
    blocks = _blocks("python")
    assert len(blocks) == 5
    for block in blocks:
        exec(compile(block, "README.md", "exec"), scope)
    assert scope["result"].text
    registered: list[type] = []
    assert scope["result"].stats.num_accepted_draft_tokens > 0
    scope["register_drafters"](registered.append)
    assert registered == [scope["Repeat"]]


def test_the_commands_run(
    smollm2: outrider.Target, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("outrider.cli.generate.load", lambda name, **_: smollm2)
    monkeypatch.setattr("outrider.cli.inspect.load", lambda name, **_: smollm2)
    commands = [line for block in _blocks("sh") for line in block.splitlines()]
    assert len(commands) == 8
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "outrider"
        assert run_app(app, arguments, program) == 0, command
        assert capsys.readouterr().out


def test_the_config_example_is_valid() -> None:
    config = Config.model_validate(tomllib.loads(_blocks("toml")[0]))
    assert config.drafter_choice is not None
    assert config.target.model == "smollm2"
    nested = Config.model_validate(tomllib.loads(_blocks("toml")[1])).drafter_choice
    assert nested is not None
    outrider.choose(nested.name, nested.options)


def test_every_drafter_and_option_is_in_the_table() -> None:
    for record in outrider.drafters():
        if record.distribution == "outrider":
            (row,) = [line for line in README.splitlines() if line.startswith(f"| `{record.name}` |")]
            assert all(f"`{option}`" in row for option in record.options)
