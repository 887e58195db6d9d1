"""From no data at all to heads that draft, by the command line alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from outrider.cli.app import app, run_app
from train.chatty import target, write_chats


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("data", "train", "target"):
        monkeypatch.setattr(f"outrider.cli.{place}.load", lambda name, **_: target())


def run(*arguments: Any) -> int:
    return run_app(app, [str(one) for one in arguments], "outrider")


def test_from_no_data_to_heads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chats, heads = tmp_path / "chats.jsonl", tmp_path / "heads"
    openings = tmp_path / "openings.txt"
    openings.write_text("w1 w2\n\nw3\n")
    made = [
        "data",
        "synthesize",
        "-m",
        "tiny",
        "--out",
        chats,
        "--tokens",
        1500,
        "--batch-size",
        32,
        "--max-tokens",
        160,
    ]
    assert run(*made, "--openings", openings, "--seed", 5) == 0
    told = capsys.readouterr()
    assert "tokens of answers" in told.out
    assert "min left" in told.err
    trained = ["train", "medusa", "-m", "tiny", "--data", chats, "--out", heads, "--epochs", 30, "--rate", 0.01]
    trained += ["--batch-tokens", 512, "--accumulate", 1, "-o", "heads=2", "-o", "layers=2", "--evaluate-every", 50]
    assert run(*trained) == 0
    told = capsys.readouterr()
    found = json.loads(told.out)
    assert found["mean_acceptance_length"] > 1
    assert len(found["by_depth"]) <= 2
    assert "weights to train" in told.err
    assert "accepted on held-out text" in told.err
    log = [json.loads(line) for line in (heads / "training.jsonl").read_text().splitlines()]
    assert log[-1]["steps"] == found["steps"]
    assert log[0]["loss"][0] > [one for one in log if "loss" in one][-1]["loss"][0]
    assert run("heads", "inspect", heads) == 0
    assert "tiny" in capsys.readouterr().out
    assert run("generate", "-m", "tiny", "-d", f"medusa[heads={heads}]", "-p", "w1 w2", "--no-adaptive") == 0
    assert "drafter medusa" in capsys.readouterr().err


def test_prepared_files_train(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = write_chats(tmp_path / "raw.jsonl", 20)
    assert run("data", "prepare", raw, raw, "--out", tmp_path / "chats.jsonl") == 0
    assert "chats, " in capsys.readouterr().out
    trained = ["train", "draft-model", "-m", "tiny", "--data", tmp_path / "chats.jsonl", "--out", tmp_path / "heads"]
    assert run(*trained, "--online", "--prompts", 0, "-o", "layers=[1]", "--precision", "bf16", "--accumulate", 1) == 0
    assert json.loads(capsys.readouterr().out) == {"heads": str(tmp_path / "heads")}
    assert not (tmp_path / "heads" / "states").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "ngram", "-m", "x", "--data", "d", "--out", "o"], "has nothing to train"),
        (["train", "eagel3", "-m", "x", "--data", "d", "--out", "o"], "Did you mean 'eagle3'?"),
        (["train", "eagle3", "-m", "x", "--data", "d", "--out", "o", "-o", "step=2"], "Did you mean 'steps'?"),
        (["train", "eagle3", "-m", "x", "--data", "none", "--out", "o"], "none can't be read: No such file"),
        (
            ["train", "eagle3", "-m", "x", "--data", "d", "--out", "o", "--online", "--states", "s"],
            "leave --states out",
        ),
        (["data", "synthesize", "-m", "x", "--out", "no/x.jsonl"], "can't be written: No such file"),
        (["data", "synthesize", "-m", "x", "--out", "x", "--openings", "none"], "openings file none can't be read"),
        (["data", "synthesize", "-m", "x", "--out", "x", "--prompts", "a", "--openings", "b"], "--prompts begin them"),
        (["data", "prepare", "none", "--out", "x"], "none can't be read"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*arguments) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1
    assert not list(tmp_path.iterdir())
