"""`outrider compare`, `diff` and `merge` on a tiny model: what is printed and written, and how bad input ends."""

import csv
import io
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import outrider
from compare.schemas import faults
from outrider.cli.app import app, run_app
from outrider.compare.files import read
from outrider.compare.strategies import Drafting

Call = Callable[..., tuple[int, str, str]]
PUBLISHED = Path(__file__).parents[2] / "docs" / "schema" / "compare-1.json"
SHORT = ("--runs", "1", "--max-new-tokens", "12")


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    lines = [
        {"prompt": "secret one one", "category": "a"},
        {"turns": ["ab ab ab", "abc"], "category": "b"},
        {"prompt": "xyz", "category": "a"},
    ]
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Call:
    def call(*arguments: str | Path) -> tuple[int, str, str]:
        status = run_app(app, [str(one) for one in arguments], "outrider")
        found = capsys.readouterr()
        return status, found.out, found.err

    return call


@pytest.fixture
def compare(run: Call, model_folder: Path) -> Call:
    def call(*arguments: str | Path) -> tuple[int, str, str]:
        return run("compare", "-m", model_folder, "--dtype", "float64", *arguments)

    return call


def test_a_table_with_the_baseline_and_the_fastest_marked(compare: Call, prompts: Path, tmp_path: Path) -> None:
    saved, trace = tmp_path / "run.json", tmp_path / "trace.jsonl"
    status, out, err = compare(
        "-d", "ngram", "-d", "ngram[max_n=3,nodes=8]", "--prompts", prompts, *SHORT, "--save", saved, "--trace", trace
    )
    assert status == 0
    for part in (
        "baseline",
        "(fastest)",
        "ngram[max_n=3,nodes=8]",
        "identical",
        "tokens a step by category",
        "break-even",
    ):
        assert part in out
    assert "12 of 12 runs" in err
    found, published = read(saved), json.loads(PUBLISHED.read_text())
    assert faults(json.loads(saved.read_text()), published, published) == []
    assert [row.name for row in found.rows] == ["none", "ngram", "ngram[max_n=3,nodes=8]"]
    assert found.rows[2].options == {"max_n": 3, "nodes": 8}
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    assert sum(len(line["tokens"]) for line in lines) == sum(one.tokens for one in found.figures) == 12 * 12
    assert sum(line["step"] > 0 for line in lines) == sum(one.steps for one in found.figures)
    assert "secret" not in saved.read_text() + trace.read_text()
    assert all(one.text is None for one in found.prompts)


def test_formats_say_the_same(compare: Call, prompts: Path, tmp_path: Path) -> None:
    record, saved = tmp_path / "runs.jsonl", tmp_path / "run.json"
    asked = ("-d", "ngram", "--prompts", prompts, *SHORT, "--resume", record, "--save", saved)
    outs = {how: compare(*asked, "-f", how)[1] for how in ("md", "csv", "json", "jsonl")}
    figures = {one.row: one for one in read(saved).figures}
    told = json.loads(outs["json"])
    lines = [json.loads(line) for line in outs["jsonl"].splitlines()]
    assert [one["name"] for one in told["rows"]] == [one["name"] for one in lines] == ["none", "ngram"]
    cells = list(csv.DictReader(io.StringIO(outs["csv"])))
    for at, name in enumerate(("none", "ngram")):
        for line in (told["rows"][at], lines[at], cells[at]):
            rate = figures[name].tokens_per_second
            assert rate is not None
            assert float(line["tokens_per_second"]) == pytest.approx(rate.value)
            assert int(line["accepted"]) == figures[name].accepted
            assert line["verdict"] == "identical"
    rate = figures["ngram"].tokens_per_second
    assert rate is not None
    assert f"| {rate.value:.1f} (" in outs["md"]
    assert outs["md"].count("| none") >= 2
    # All but the first were taken from the record.
    assert len(record.read_text().splitlines()) == 1 + 8
    assert "secret" not in record.read_text()


def test_drafters_of_a_config_and_sizes_of_batches(compare: Call, tmp_path: Path, prompts: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(
        '[[drafters]]\nname = "ngram"\n[drafters.options]\nmax_n = 4\n[[drafters]]\nname = "lookahead"\n'
        "[generation]\nmax_new_tokens = 8\ntemperature = 1.0\nseed = 3\nadaptive = false\n"
    )
    status, out, _ = compare(
        "--config", config, "--prompts", prompts, "--runs", "1", "--batch-size", "1,2", "-f", "json"
    )
    found = json.loads(out)
    assert status == 0
    names = ["none", "ngram[max_n=4]", "lookahead"]
    assert [one["name"] for one in found["rows"]] == [f"{name}@{size}" for size in (1, 2) for name in names]
    assert (found["settings"]["seed"], found["settings"]["adaptive"], found["settings"]["sampled"]) == (3, False, True)
    assert {one["verdict"] for one in found["rows"]} == {"identical"}
    config.write_text('[[drafters]]\nname = "ngram"\n[[drafters]]\nname = "ngram"\n[drafters.options]\nmax_m = 4\n')
    status, _, err = compare("--config", config)
    assert status == 2
    assert "c.toml:6" in err
    assert "max_m" in err


def test_generate_takes_one_drafter_of_a_config(run: Call, model_folder: Path, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text('[[drafters]]\nname = "lookahead"\n')
    asked = ("generate", "-m", model_folder, "-p", "hello", "--config", config, "--max-new-tokens", "4")
    status, _, err = run(*asked)
    assert status == 2
    assert "[[drafters]] are for outrider compare" in err
    assert run(*asked, "-d", "ngram")[0] == 0


def test_acceptance_alone(compare: Call, prompts: Path) -> None:
    status, out, _ = compare(
        "-d",
        "ngram",
        "-d",
        "lookahead",
        "--acceptance-only",
        "--each",
        "1",
        "--longest",
        "10",
        "--prompts",
        prompts,
        *SHORT,
    )
    assert status == 0
    assert "none" not in out
    assert "tokens/s" not in out
    assert "not adaptive" in out
    assert "3 prompts" in out  # one of a, and one of b with its two turns


def test_every_drafter_that_needs_no_options(compare: Call, prompts: Path, tmp_path: Path) -> None:
    saved, report = tmp_path / "run.json", tmp_path / "report.html"
    asked = ["--every", "-d", "ngram", "--count", "1", "--prompts", prompts, "--save", saved, "--html", report]
    status, out, err = compare(*asked, *SHORT)
    assert status == 0, out + err
    rows = [one.name for one in read(saved).rows]
    assert rows[:2] == ["none", "ngram"]
    assert len(set(rows)) == len(rows)
    left = set(re.findall(r"left out: (\S+) \(", err))
    assert {"eagle3", "medusa"} <= left
    assert {*rows, *left} == {one.name for one in outrider.drafters()}
    assert f"report: {report}" in err
    assert "<!doctype html>" in report.read_text(encoding="utf-8")[:40].lower()


def test_what_a_report_needs_is_missed_before_anything_is_measured(
    compare: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.setattr("outrider.cli.target.load", None)
    status, out, err = compare("-d", "ngram", "--html", tmp_path / "report.html")
    assert (status, out) == (2, "")
    assert err == "error: the report needs jinja2: pip install 'outrider[report]'\n"


def test_rules_and_rows_of_transformers(compare: Call, model_folder: Path) -> None:
    status, out, _ = compare(
        "-d", "ngram", "--rule", "match", "--rule", "block", "--temperature", "1", "--with-hf", "--assistant", model_folder,
        *SHORT, "-f", "json",
    )  # fmt: skip
    assert status == 0
    verdicts = {one["name"]: one["verdict"] for one in json.loads(out)["rows"]}
    assert verdicts == {
        "none": "identical",
        "ngram match": "identical",
        "ngram block": "not compared",
        "transformers generate": "not compared",
        "transformers prompt lookup": "not compared",
        "transformers assisted": "not compared",
    }


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ((), {"temperature": 0.0}),
        (("--top-p", "0.9"), {"top_p": 0.9}),
        (("--temperature", "0.5", "--top-k", "4"), {"temperature": 0.5, "top_k": 4}),
    ],
)
def test_texts_are_greedy_where_nothing_says_how_to_draw(compare: Call, asked: tuple[str, ...], told: Any) -> None:
    settings = json.loads(compare("-d", "none", "--count", "1", *asked, *SHORT, "-f", "json")[1])["settings"]
    assert settings["generation"] == {"max_new_tokens": 12} | told
    assert settings["sampled"] == bool(asked)


def test_shards_are_merged(compare: Call, run: Call, prompts: Path, tmp_path: Path) -> None:
    asked = ("-d", "ngram", "--prompts", prompts, "--no-adaptive", *SHORT)
    for shard in ("1/2", "2/2"):
        assert compare(*asked, "--shard", shard, "--save", tmp_path / f"{shard[0]}.json")[0] == 0
    assert compare(*asked, "--save", tmp_path / "whole.json")[0] == 0
    status, out, _ = run("merge", tmp_path / "1.json", tmp_path / "2.json", "--out", tmp_path / "both.json")
    assert status == 0
    assert "4 prompts" in out
    both, whole = read(tmp_path / "both.json"), read(tmp_path / "whole.json")
    assert [run.token_ids for run in both.runs] == [run.token_ids for run in whole.runs]
    assert [(one.tokens, one.steps, one.accepted) for one in both.figures] == [
        (one.tokens, one.steps, one.accepted) for one in whole.figures
    ]
    status, _, err = run("merge", tmp_path / "1.json", tmp_path / "1.json", "--out", tmp_path / "x.json")
    assert (status, "both have prompt" in err, (tmp_path / "x.json").exists()) == (2, True, False)
    assert run("merge", tmp_path / "1.json", "--out", tmp_path / "x.json")[0] == 2


def test_differences_and_their_status(compare: Call, run: Call, prompts: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        compare("-d", "ngram", "--no-adaptive", "--prompts", prompts, *SHORT, "--save", tmp_path / f"{name}.json")
    both = tmp_path / "a.json", tmp_path / "b.json"
    status, out, _ = run("diff", *both)
    assert status == 0
    assert "speedup" in out
    assert "on 4 prompts" in out
    # What is asked for can't be: something is then below it, and is said.
    status, _, err = run("diff", *both, "--fail-below", "length:1.01")
    assert status == 1
    assert "ngram: length is 1.000 of what it was, below 1.01" in err
    assert run("diff", *both, "--fail-below", "length:0.99")[0] == 0
    assert run("diff", *both, "--fail-below", "length")[0] == 2
    assert "| row | what |" in run("diff", *both, "-f", "md")[1]
    assert json.loads(run("diff", *both, "-f", "json")[1])["prompts"] == 4
    assert run("diff", *both, "-f", "xml")[0] == 2
    old = json.loads(both[0].read_text()) | {"version": 0}
    both[0].write_text(json.dumps(old))
    status, _, err = run("diff", *both)
    assert status == 2
    assert "version 0 of the schema, and this outrider reads 1" in err


def test_a_drafter_that_fails_midway(compare: Call, tmp_path: Path, prompts: Path) -> None:
    file = tmp_path / "bad.py"
    file.write_text(
        "import outrider\n"
        "class Bad(outrider.RowDrafter):\n"
        "    name = 'bad'\n    requires_api = (0, 1)\n    calls = 0\n"
        "    def propose_row(self, view):\n"
        "        Bad.calls += 1\n"
        "        if Bad.calls > 25:\n            raise RuntimeError('worn out')\n"
        "        return outrider.DraftTree.chain([view.ids[-1]][:view.max_depth])\n"
    )
    saved = tmp_path / "run.json"
    status, out, _ = compare(
        "-d", f"{file}::Bad", "-d", "ngram", "--prompts", prompts, "--no-adaptive", *SHORT, "--save", saved
    )
    assert status == 1
    assert "FAILED: drafter 'bad' failed in propose: RuntimeError: worn out" in out
    found = read(saved)
    runs = [one.runs for one in found.figures]
    assert runs[0] == runs[2] == 4
    assert 0 < runs[1] < 4
    assert found.complete


def test_a_text_that_is_wrong_gives_status_1(compare: Call, prompts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Drafting.run

    def lies(self: Drafting, tasks: Any) -> Any:
        made = whole(self, tasks)
        if self._word == "ngram":
            made[0].token_ids[3] = (made[0].token_ids[3] + 1) % 64
        return made

    monkeypatch.setattr(Drafting, "run", lies)
    status, out, _ = compare("-d", "ngram", "--prompts", prompts, *SHORT)
    assert status == 1
    assert "FAULT" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-d", "ngram", "--batch-size", "0"], "--batch-size 0: write whole numbers"),
        (["-d", "ngram", "--batch-size", "1,x"], "write whole numbers"),
        (["-d", "ngrm"], "Did you mean 'ngram'?"),
        (["-d", "ngram[max_m=3]"], "max_m"),
        ([], "which drafters?"),
        (["-d", "ngram", "--rule", "best"], "best"),
        (["-d", "ngram", "--shard", "3/2"], "write i/n"),
        (["-d", "ngram", "--save", "/none/here/x.json"], "there is no folder /none/here"),
        (["-d", "ngram", "--trace", "/none/here/x.jsonl"], "there is no folder /none/here"),
        (["-d", "ngram", "--html", "/"], "it is a folder"),
        (["-d", "ngram", "--assistant", "x"], "add --with-hf"),
        (["-d", "ngram", "--temperature", "-1"], "temperature"),
        (["-d", "ngram", "--prompts", "/none.jsonl"], "can't be read"),
        (["-d", "ngram", "-f", "xml"], "xml"),
    ],
)
def test_bad_input_is_one_line(compare: Call, arguments: list[str], message: str) -> None:
    status, out, err = compare(*arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "message"), [('{"prompt": "a"}\n{"promt": "b"}\n', "prompts.jsonl:2: write"), ("\n", "no prompt")]
)
def test_bad_prompts_are_told_by_line(compare: Call, prompts: Path, text: str, message: str) -> None:
    prompts.write_text(text)
    status, _, err = compare("-d", "ngram", "--prompts", prompts)
    assert status == 2
    assert message in err


def test_a_full_disk_is_told_and_the_table_is_printed(
    compare: Call, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("outrider.compare.files.dumps", full)
    status, out, err = compare("-d", "ngram", "--prompts", prompts, *SHORT, "--save", prompts.with_name("x.json"))
    assert status == 1
    assert "identical" in out
    assert "No space left on device" in err


def test_ctrl_c_keeps_what_was_measured(model_folder: Path, tmp_path: Path) -> None:
    record, saved = tmp_path / "runs.jsonl", tmp_path / "run.json"
    command = [sys.executable, "-m", "outrider", "compare", "-m", str(model_folder), "-d", "ngram"]
    command += ["--runs", "5000", "--max-new-tokens", "30", "--resume", str(record), "--save", str(saved)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for _ in range(3000):
        if record.exists() and len(record.read_text().splitlines()) > 8:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "baseline" in out
    assert "not everything was measured" in out
    assert err.rstrip().endswith("interrupted")
    found = read(saved)
    assert not found.complete
    assert len(found.runs) == len(record.read_text().splitlines()) - 1 >= 8
