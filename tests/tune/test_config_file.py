"""The config file is read as it was meant."""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outrider.config import load_config
from outrider.errors import InputError
from outrider.tune.config_file import config_of, toml
from outrider.tune.result import Choice, Tuned
from outrider.tune.settings import Setting
from tune.clocked import settings

VALUES = [
    True,
    3,
    0.25,
    1e-7,
    'a "quoted" C:\\path\n\ttab \x7f \x01 ü 漢 😀',
    [1, [2, 3], "x"],
    {"name": "ngram", "options": {"min_n": 2, "a b": [True]}},
]


@pytest.mark.parametrize("value", VALUES)
def test_values_come_back(value: Any) -> None:
    assert tomllib.loads(f"value = {toml(value)}")["value"] == value


def test_what_is_no_value_is_refused() -> None:
    with pytest.raises(InputError, match="can't be written as TOML"):
        toml(object())


def made(setting: Setting | None) -> Tuned:
    choice = Choice(batch_size=1, setting=setting, speed_up=None, reason="because")
    return Tuned(
        settings=settings(),
        budget_seconds=1,
        seconds=1,
        costs=(),
        plain_seconds={},
        prompts=(),
        candidates=(),
        choices=(choice,),
    )


def test_a_choice_is_read_by_the_config(tmp_path: Path) -> None:
    parts = ["ngram", {"name": "ngram", "options": {"min_n": 1, "draft_tokens": 4}}]
    setting = Setting("cascade", {"drafters": parts, "mode": "merge", "nodes": 8}, rule="block")
    file = tmp_path / "tuned.toml"
    file.write_text(config_of(made(setting), {"model": "smollm2", "dtype": "float32", "temperature": 0.7}))
    found = load_config(file)
    assert found.target.model == "smollm2"
    assert found.target.dtype == "float32"
    assert found.drafter_choice is not None
    assert found.drafter_choice.name == "cascade"
    assert found.drafter_choice.options == setting.options
    generation = {name: value for name, value in found.generation.model_dump().items() if value is not None}
    assert generation == {"temperature": 0.7, "rule": "block", "adaptive": False}
    adaptive = replace(setting, adaptive=True, rule="match")
    file.write_text(config_of(made(adaptive), {}))
    assert load_config(file).generation.adaptive is True


def test_no_speculation_is_the_drafter_none(tmp_path: Path) -> None:
    file = tmp_path / "tuned.toml"
    file.write_text(config_of(made(None), {"model": "smollm2"}))
    found = load_config(file)
    assert found.drafter_choice is not None
    assert found.drafter_choice.name == "none"
    assert "because" in file.read_text()
