"""What `outrider heads inspect` says of EAGLE heads."""

import dataclasses
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from eagle_files import LAYOUTS, SIZE, VOCAB, Files, eagle1, eagle3, specforge, speculators
from outrider import InputError, TargetInfo
from outrider.cli.app import app, run_app
from outrider_drafters.eagle.config import Method
from outrider_drafters.eagle.report import inspect_eagle
from support import tiny_model

TARGET = TargetInfo(VOCAB, SIZE, 8, 256, frozenset(), torch.float32, torch.device("meta"), None)
METHODS: tuple[Method, ...] = ("eagle", "eagle3")


@pytest.mark.parametrize("kind", ["safetensors", "bin", "sharded"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_is_known_by_one_drafter(tmp_path: Path, name: str, kind: str) -> None:
    files = LAYOUTS[name]()
    folder = files.write(tmp_path, kind)
    found = [inspect_eagle(folder, TARGET, method) for method in METHODS]
    own, other = found if "EAGLE-1" in name else found[::-1]
    assert other is None
    assert own is not None
    assert (own.drafter, own.hidden_size, own.vocab_size, own.misfit) == (own.drafter, SIZE, VOCAB, None)
    assert own.drafter == ("eagle" if "EAGLE-1" in name else "eagle3")
    assert own.parts == ("2 layers" if "two layers" in name or "Qwen3" in name else "1 layer")
    assert own.draft_vocab_size == (8 if "d2t" in files.tensors and len(files.tensors["d2t"]) == 8 else VOCAB)
    assert own.trained_for == ("some/target" if "speculators" in name else None)
    assert own.features is not None


def test_nothing_is_said_of_layers_that_depend_on_the_target(tmp_path: Path) -> None:
    folder = specforge(ids=(1, 3, 4)).write(tmp_path)
    report = inspect_eagle(folder, None, "eagle3")
    assert report is not None
    assert report.features is None
    assert report.details["layers as written"] == "1, 3, 4, counted by outputs"
    told = inspect_eagle(folder, TARGET, "eagle3")
    assert told is not None
    assert told.features == (2, 4, 5)


def test_variants_are_named(tmp_path: Path) -> None:
    files = speculators(layers=2, kind="qwen3", norm_output=True, fc_norm=True)
    files.config["transformer_layer_config"] |= {
        "sliding_window": 8,
        "layer_types": ["full_attention", "sliding_attention"],
        "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0},
    }
    report = inspect_eagle(files.write(tmp_path), None, "eagle3")
    assert report is not None
    assert report.details["variants"] == "qk_norm, fc_norm, norm_output"
    assert report.details["sliding"] == "8 tokens, in layers 1"
    assert report.details["rotary"] == "factor 2.0, rope_theta 5000.0, rope_type linear"
    longest = "256 tokens (transformer_layer_config.max_position_embeddings); beyond it nothing is drafted"
    assert report.details["longest context"] == longest


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda files: files.tensors.pop("d2t"), "lacks d2t, without which the 8 tokens"),
        (lambda files: (files.tensors.pop("d2t"), files.tensors.pop("t2d")), "lacks d2t"),
        (lambda files: files.tensors.update(d2t=torch.zeros(8)), "d2t is torch.float32, and must be whole numbers"),
        (lambda files: files.tensors.update(d2t=torch.tensor([100, *[0] * 7])), "d2t leads to id 100"),
        (lambda files: files.tensors.update(d2t=torch.arange(8)), "d2t and t2d disagree"),
        (lambda files: files.tensors.update({"norm.weight": torch.ones(SIZE).int()}), "norm.weight is (I|int)32"),
        (lambda files: files.config.update(num_key_value_heads=3), "num_key_value_heads 3, which must divide it"),
    ],
)
@pytest.mark.parametrize("kind", ["safetensors", "bin", "sharded"])
def test_what_generate_refuses_does_not_fit(
    tmp_path: Path, kind: str, change: Callable[[Files], Any], message: str
) -> None:
    files = eagle3()
    change(files)
    with pytest.raises(InputError, match=message):
        inspect_eagle(files.write(tmp_path, kind), TARGET, "eagle3")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": 48}, "hidden states of width 32, and the target has hidden states of width 48"),
        ({"vocab_size": 100}, "a vocabulary of 64, and the target has a vocabulary of 100"),
        ({"num_layers": 4}, "2, 2, 1 by default; they are not distinct, since the target has 4 layers"),
    ],
)
def test_a_misfit_is_reported_with_both_figures(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    report = inspect_eagle(eagle3().write(tmp_path), replace(TARGET, **change), "eagle3")
    assert report is not None
    assert message in str(report.misfit)


def test_what_is_no_eagle_head_is_left_to_others(tmp_path: Path) -> None:
    tiny_model().save_pretrained(tmp_path / "model")
    (tmp_path / "empty").mkdir()
    files = eagle1()
    folder = files.write(tmp_path / "other")
    (folder / "config.json").write_text(json.dumps({"speculators_model_type": "dflash"}))
    shutil.copy(folder / "config.json", tmp_path / "empty")
    for name in ("model", "empty", "other"):
        assert [inspect_eagle(tmp_path / name, TARGET, method) for method in METHODS] == [None, None]


def test_a_broken_head_is_told(tmp_path: Path) -> None:
    files = eagle3()
    del files.tensors["fc.weight"]
    folder = files.write(tmp_path)
    assert inspect_eagle(folder, None, "eagle") is None
    with pytest.raises(InputError, match=r"lacks fc.weight, by"):
        inspect_eagle(folder, None, "eagle3")


# The command.


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        status = run_app(app, ["heads", "inspect", *arguments], "outrider")
        found = capsys.readouterr()
        return status, found.out, found.err

    return call


def _model(folder: Path, **config: Any) -> str:
    model = tiny_model(num_hidden_layers=8, **config)
    model.save_pretrained(folder)
    (folder / "model.safetensors").unlink()  # the config alone must do
    return str(folder)


def test_the_command_shows_a_head_and_whether_it_fits(run: Run, tmp_path: Path) -> None:
    folder = str(speculators().write(tmp_path / "heads"))
    status, out, err = run(folder)
    assert (status, err) == (0, "")
    for part in ("eagle3", "speculators", "1 layer", "64, drafts 8 of them", "some/target", "by the target's number"):
        assert part in out
    assert "fits" not in out
    good, bad = _model(tmp_path / "good"), _model(tmp_path / "bad", hidden_size=64)
    status, out, _ = run(folder, "-m", good)
    assert status == 0
    assert "2, 4, 5" in out
    assert f"{good}: yes, by all figures; made for some/target, which is not checked" in " ".join(out.split())
    named = _model(tmp_path / "target")
    assert f"{named}: yes, by all figures\n" in re.sub(" +\n", "\n", run(folder, "-m", named)[1])
    status, out, err = run(folder, "-m", bad)
    assert (status, err) == (1, "")
    assert "hidden states of width 32, and the target has hidden states of width 64" in " ".join(out.split())


def test_the_command_prints_one_object(run: Run, tmp_path: Path) -> None:
    folder = eagle3().write(tmp_path / "heads")
    status, out, _ = run(str(folder), "--json")
    report = inspect_eagle(folder, None, "eagle3")
    assert report is not None
    assert (status, json.loads(out)) == (0, json.loads(json.dumps(dataclasses.asdict(report))))
    status, out, _ = run(str(folder), "--json", "-m", _model(tmp_path / "bad", vocab_size=65))
    found = json.loads(out)
    assert (status, found["fits"]) == (1, False)
    assert "a vocabulary of 65" in found["misfit"]
    status, out, _ = run(str(folder), "--json", "-m", _model(tmp_path / "good"))
    assert (status, json.loads(out)["fits"], json.loads(out)["features"]) == (0, True, [2, 4, 5])


def _broken() -> Files:
    files = eagle3()
    files.tensors["more"] = torch.ones(1)
    return files


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "'nowhere': no such folder"),
        (["some/one"], "'some/one': no such folder; if it is a Hub id, download it first and give its folder"),
        ([""], "'': give a folder of heads"),
        (["~nobody/heads"], "'~nobody/heads': "),
        (["{tmp}/broken", "-m", ""], "which model?"),
        (["{tmp}/file"], "a file; give its folder"),
        (["{tmp}"], "holds no heads that a drafter knows; asked: draft-model, eagle, eagle3"),
        (["{tmp}/broken"], "has unexpected more"),
        (["{tmp}/broken", "-m", "nowhere"], "model 'nowhere': no such folder"),
        ([], "Missing argument 'PATH'"),
    ],
)
def test_bad_input_is_one_line_and_status_2(run: Run, tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "file").touch()
    _broken().write(tmp_path / "broken")
    status, out, err = run(*[argument.format(tmp=tmp_path) for argument in arguments])
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert message in err
