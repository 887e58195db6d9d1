"""`outrider tune` on a tiny model: the file that it writes is what `generate` and `compare` take."""

import json
from pathlib import Path
from typing import Any

import pytest

import outrider
from compare.schemas import faults
from outrider.cli.app import app, run_app
from outrider.tune.result import schema
from tune.clocked import Clocked, clocked, flat, linear

PUBLISHED = Path(__file__).parents[2] / "docs" / "schema" / "tune-1.json"
PROMPT = "abc abc abc abc"
BROKEN = """
import outrider

class Broken(outrider.RowDrafter[outrider.DrafterOptions]):
    name = "broken"
    requires_api = (0, 1)

    def propose_row(self, view):
        raise RuntimeError("the disk is wet")
"""


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Clocked:
    made = clocked(monkeypatch, flat)
    for place in ("tune", "target"):
        monkeypatch.setattr(f"outrider.cli.{place}.load", lambda name, **_: made)
    return made


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in (PROMPT, "once upon a time")))
    return file


def run(*arguments: Any) -> int:
    return run_app(app, [str(one) for one in arguments], "outrider")


def tune(prompts: Path, *more: Any) -> int:
    return run("tune", "-m", "tiny", "--prompts", prompts, "--max-new-tokens", 24, "--runs", 1, "--raw", *more)


def test_the_file_is_what_generate_and_compare_take(
    target: Clocked, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "tuned.toml"
    assert tune(prompts, "-d", "ngram[min_n=1]", "-d", "self", "--out", out) == 0
    told = capsys.readouterr()
    assert "What a forward of the target costs" in told.out
    assert "###" in told.out
    assert "speed-up predicted" in told.out
    assert "Use " in told.out
    assert str(out) in told.out
    assert "left" in told.err
    text = ["generate", "-p", PROMPT, "--max-new-tokens", 24, "--json"]
    assert run(*text, "--config", out) == 0
    found = json.loads(capsys.readouterr().out)
    assert run(*text, "-m", "tiny", "-d", "none", "--raw", "--temperature", 0) == 0
    plain = json.loads(capsys.readouterr().out)
    assert found["token_ids"] == plain["token_ids"]
    assert found["stats"]["num_accepted_draft_tokens"] > 0
    assert run("compare", "--config", out, "--prompts", prompts, "--runs", 1, "--max-new-tokens", 16, "-f", "json") == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["kind"] for row in rows] == ["plain", "drafter"]
    assert rows[1]["options"] == outrider.config.load_config(out).drafter_choice.options  # type: ignore[union-attr]


def test_where_it_does_not_pay_the_file_says_none(
    target: Clocked, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target.cost = linear
    out = tmp_path / "tuned.toml"
    assert tune(prompts, "-d", "ngram", "--out", out) == 0
    assert "Do not speculate" in capsys.readouterr().out
    assert 'name = "none"' in out.read_text()
    assert run("generate", "-p", PROMPT, "--max-new-tokens", 8, "--config", out) == 0
    assert "drafter none" in capsys.readouterr().err


def test_without_out_the_file_is_printed(target: Clocked, prompts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(prompts, "-d", "ngram[min_n=1]") == 0
    assert '[drafter]\nname = "ngram"' in capsys.readouterr().out


def test_json_holds_everything(target: Clocked, prompts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(prompts, "-d", "ngram[min_n=1]", "--json", "--grid", 4) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["format"] == "outrider.tune"
    assert found["candidates"][0]["predictions"]
    assert found["validation"]["runs"]
    assert found["bars"][-1]["name"] == "chosen / best"
    assert "[drafter]" in found["config"]
    published = json.loads(PUBLISHED.read_text())
    assert published == json.loads(json.dumps(schema()))
    assert faults(found, published, published) == []


def test_the_report_draws_predicted_and_measured(
    target: Clocked, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    html = tmp_path / "tuned.html"
    assert tune(prompts, "-d", "ngram[min_n=1]", "-d", "self", "--json", "--html", html) == 0
    told = capsys.readouterr()
    assert f"report: {html}" in told.err
    found, page = json.loads(told.out), html.read_text()
    assert page.index("Predicted and measured") < page.index("What was compared")
    for one in found["candidates"]:
        assert f"predicted {one['predictions'][0]['speed_up']:.2f}x" in page
    drawn = [one for one in found["checked"] if one["predicted"] and one["speed_up"]]
    assert drawn
    for one in drawn:
        assert f"measured {one['speed_up']['value']:.2f}x" in page


def test_a_full_disk_leaves_the_old_file(
    target: Clocked, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "tuned.toml"
    out.write_text("old")

    def full(text: str, path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("outrider.cli.tune.write", full)
    assert tune(prompts, "-d", "ngram[min_n=1]", "--out", out) == 1
    assert f"{out} can't be written: No space left on device" in capsys.readouterr().err
    assert out.read_text() == "old"


def test_a_drafter_that_fails_is_told_of_and_the_others_go_on(
    target: Clocked, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "broken.py"
    file.write_text(BROKEN)
    assert tune(prompts, "-d", f"{file}::Broken", "-d", "ngram[min_n=1]", "--out", tmp_path / "tuned.toml") == 1
    told = capsys.readouterr().out
    assert "the disk is wet" in told
    assert "Use ngram" in told
    assert 'name = "ngram"' in (tmp_path / "tuned.toml").read_text()


def test_ctrl_c_shows_what_was_measured(
    target: Clocked, prompts: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("outrider.tune.tuning.compare", stop)
    assert tune(prompts, "-d", "ngram[min_n=1]") == 130
    told = capsys.readouterr()
    assert "Interrupted" in told.out
    assert "predicted" in told.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-d", "ngrm"], "Did you mean 'ngram'?"),
        (["-d", "ngram[color=red]"], "color"),
        (["-d", "ngram", "--prompts", "EMPTY"], "holds no prompt"),
        (["-d", "ngram", "--rule", "luck"], "luck"),
        (["-d", "ngram", "--batch-size", "0"], "--batch-size 0"),
        (["-d", "ngram", "--batch-size", "8"], "there are 2 prompts"),
        (["-d", "ngram", "--out", "/nowhere/at/all.toml"], "there is no folder"),
        (["-d", "ngram", "--out", "/"], "it is a folder"),
        (["-d", "none"], "leave it out"),
        (["-d", "ngram", "--temperature", "-1"], "temperature"),
        ([], "-d"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], says: str, target: Clocked, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    given = [str(empty) if one == "EMPTY" else one for one in arguments]
    assert tune(prompts, *given) == 2
    told = capsys.readouterr()
    assert says in told.err
    assert told.err.strip().count("\n") == 0
