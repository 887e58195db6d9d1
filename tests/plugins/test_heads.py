"""Which drafter answers for a folder of heads, and what becomes of those that fail at it."""

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from outrider import DrafterError, DrafterOptions, HeadsReport, InputError, RowDrafter, TargetInfo, inspect_heads
from outrider.draft.contract import API
from outrider.target.load import outline
from outrider.target.model import describe
from registries import registry_of
from support import lively, tiny_model

REPORT = HeadsReport("one", "its own", "2 heads", 32, 64, None, (2,), None)


def _drafter(name: str, answer: Any) -> type[RowDrafter[DrafterOptions]]:
    """A drafter that reads heads and answers so."""

    def inspect(cls: Any, folder: Path, target: TargetInfo | None) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    kind: Any = type(name.title(), (RowDrafter,), {"name": name, "requires_api": API, "propose_row": lambda *_: None})
    if answer is not NotImplemented:
        kind.inspect_heads = classmethod(inspect)
    found: type[RowDrafter[DrafterOptions]] = kind
    return found


@pytest.mark.parametrize(
    "before", [None, NotImplemented, InputError("not mine"), ZeroDivisionError("oops"), "no report"]
)
def test_the_drafter_that_knows_a_folder_answers_whatever_the_others_do(tmp_path: Path, before: Any) -> None:
    known = registry_of(_drafter("a", before), _drafter("b", REPORT))
    assert inspect_heads(tmp_path, None, known) == REPORT


def test_nobody_knows_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no heads that a drafter knows; asked: a, b"):
        inspect_heads(
            tmp_path, None, registry_of(_drafter("b", None), _drafter("a", None), _drafter("c", NotImplemented))
        )
    with pytest.raises(InputError, match="config.json: wrong"):
        inspect_heads(tmp_path, None, registry_of(_drafter("a", None), _drafter("b", InputError("config.json: wrong"))))
    with pytest.raises(DrafterError, match="drafter 'b' failed in inspect_heads: ZeroDivisionError: oops"):
        inspect_heads(tmp_path, None, registry_of(_drafter("a", None), _drafter("b", ZeroDivisionError("oops"))))
    with pytest.raises(DrafterError, match="expected a HeadsReport or None, got str"):
        inspect_heads(tmp_path, None, registry_of(_drafter("b", "no report")))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "It holds no files."),
        ({"config.json": "{}"}, r"no weights \(such as model.safetensors\), only config.json"),
        ({"model.safetensors": ["fc.weight"]}, "It holds model.safetensors, and no config.json"),
        ({"model.safetensors": ["module.fc.weight", "module.norm"], "config.json": "{}"}, "begin with 'module.'"),
        ({"model.safetensors": ["fc", "norm"], "config.json": "{}"}, "with tensors such as fc, norm"),
        ({"a.bin": "", "config.json": "["}, "It holds config.json and a.bin"),
        (
            {
                "config.json": '{"architectures": ["SomeModel"]}',
                "model.safetensors.index.json": '{"weight_map": {"model.layers.0.a": "x", "model.layers.1.a": "y"}}',
            },
            r"It holds a whole model \(SomeModel, 2 layers\)",
        ),
        ({"model.safetensors": ["transformer.h.0.a", "transformer.h.1.a"]}, r"a whole model \(2 layers\)"),
        ({"model.safetensors": "version https://git-lfs", "config.json": "{}"}, "It holds config.json and model."),
    ],
)
def test_a_folder_that_nobody_knows_is_described(tmp_path: Path, files: dict[str, Any], message: str) -> None:
    for name, held in files.items():
        if isinstance(held, str):
            (tmp_path / name).write_text(held)
        else:
            safetensors.torch.save_file({one: torch.ones(1) for one in held}, tmp_path / name)
    with pytest.raises(InputError, match=f"asked: a. .*{message}"):
        inspect_heads(tmp_path, None, registry_of(_drafter("a", None)))


def test_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="a file; give its folder"):
        inspect_heads(tmp_path / "file")
    with pytest.raises(InputError, match="no such folder"):
        inspect_heads(tmp_path / "nowhere")


@pytest.mark.parametrize("kind", ["llama", "gpt2", "opt", "t5"])
def test_a_model_is_outlined_by_its_config_alone(tmp_path: Path, kind: str) -> None:
    """As the loaded model is described, without its weights being there."""
    model = tiny_model() if kind == "llama" else lively(kind, decoder_start_token_id=0)
    model.save_pretrained(tmp_path)
    loaded = describe(model, None)
    (tmp_path / "model.safetensors").unlink()
    found = outline(str(tmp_path))
    for name in ("vocab_size", "hidden_size", "num_layers", "max_positions", "eos_ids"):
        assert getattr(found, name) == getattr(loaded, name)
    assert found.device.type == "meta"
    assert found.parts is None
