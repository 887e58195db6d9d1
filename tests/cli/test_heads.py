"""`outrider heads export` on tiny folders: what is printed, what lies in the folder, and how bad input ends."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch

from eagle_files import eagle3
from medusa_layouts import FILE, faster_names, random_weights, write
from outrider.cli.app import app, run_app
from support import char_tokenizer, tiny_model

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object) -> tuple[int, str, str]:
        status = run_app(app, ["heads", "export", *map(str, arguments)], "outrider")
        found = capsys.readouterr()
        return status, found.out, found.err

    return call


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tiny_model(dtype=torch.bfloat16, num_hidden_layers=8).save_pretrained(folder)
    char_tokenizer().save_pretrained(folder)
    return folder


def test_a_head_is_written_and_described(run: Run, tmp_path: Path) -> None:
    source = eagle3().write(tmp_path / "a")
    status, out, err = run(source, "--layout", "speculators", "--out", tmp_path / "b", "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert (found["drafter"], found["layout"], found["draft_vocab_size"]) == ("eagle3", "speculators", 8)
    status, out, _ = run(tmp_path / "b", "--layout", "eagle", "--out", tmp_path / "c")
    assert status == 0
    assert "safeailab" in out
    files = [safetensors.torch.load_file(tmp_path / one / "model.safetensors") for one in ("a", "c")]
    assert files[0].keys() == files[1].keys()
    assert all(torch.equal(one, files[1][name]) for name, one in files[0].items())


def test_the_config_of_a_model_is_enough_for_eagle(run: Run, tmp_path: Path, model: Path) -> None:
    bare = tmp_path / "model"
    bare.mkdir()
    (bare / "config.json").write_bytes((model / "config.json").read_bytes())
    status, out, _ = run(
        eagle3().write(tmp_path / "a"), "--layout", "speculators", "--out", tmp_path / "b", "-m", bare, "--json"
    )
    assert status == 0
    found = json.loads(out)
    assert (found["fits"], found["features"], found["trained_for"]) == (True, [2, 4, 5], str(bare))
    config = json.loads((tmp_path / "b" / "config.json").read_text())
    verifier = {"name_or_path": str(bare), "architectures": ["LlamaForCausalLM"]}
    assert config["speculators_config"]["verifier"] == verifier


def test_the_rows_of_a_model_are_its_own_in_its_dtype(run: Run, tmp_path: Path, model: Path) -> None:
    source = write(tmp_path / "a", FILE, faster_names(random_weights(outputs=0)), version="2")
    status, _, err = run(source, "--layout", "medusa", "--out", tmp_path / "b")
    assert status == 2
    assert len(err.splitlines()) == 1
    assert "-m MODEL has them" in err
    status, _, _ = run(source, "--layout", "medusa", "--out", tmp_path / "b", "-m", model)
    assert status == 0
    rows = safetensors.torch.load_file(tmp_path / "b" / "model.safetensors")["lm_heads.0.weight"]
    assert rows.dtype == torch.bfloat16
    assert torch.equal(rows, safetensors.torch.load_file(model / "model.safetensors")["lm_head.weight"])


@pytest.mark.parametrize(
    ("layout", "out", "message"),
    [
        (
            "specforge",
            "b",
            "holds medusa heads, which are written as medusa, fasterdecoding; 'specforge' is a layout of",
        ),
        ("medusas", "b", "there is no layout 'medusas'. Did you mean 'medusa'?"),
        ("medusa", "a", "is not empty; heads are written to a new folder or an empty one"),
    ],
)
def test_bad_input_is_one_line_and_status_2(run: Run, tmp_path: Path, layout: str, out: str, message: str) -> None:
    source = write(tmp_path / "a", FILE, faster_names(random_weights()))
    status, printed, err = run(source, "--layout", layout, "--out", tmp_path / out)
    assert (status, printed) == (2, "")
    assert len(err.splitlines()) == 1
    assert message in err
    assert [one.name for one in tmp_path.iterdir()] == ["a"]


def test_heads_for_another_model_are_refused(run: Run, tmp_path: Path, model: Path) -> None:
    source = write(tmp_path / "a", FILE, faster_names(random_weights(hidden=16)))
    status, _, err = run(source, "--layout", "medusa", "--out", tmp_path / "b", "-m", model)
    assert status == 2
    assert "the target's hidden width is 32" in err
