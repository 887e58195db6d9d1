"""Tensors from folders of weights: every kind of file, and nothing executed."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from outrider import InputError
from outrider_drafters.tensors import list_tensors, read_json, read_tensors, weight_file

SAFE, INDEX, BIN = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"
BIN_INDEX = "pytorch_model.bin.index.json"
NAMES = (SAFE, INDEX, BIN, BIN_INDEX)


def _tensors() -> dict[str, torch.Tensor]:
    return {
        "a.weight": torch.arange(6.0).reshape(2, 3),
        "d2t": torch.tensor([3, 9]),
        "t2d": torch.tensor([True, False, True]),
        "half": torch.ones(2, dtype=torch.bfloat16),
    }


def _write(folder: Path, kind: str) -> dict[str, torch.Tensor]:
    tensors = _tensors()
    halves = {name: {key: tensors[key] for key in list(tensors)[at::2]} for at, name in enumerate(("one", "two"))}
    if kind == SAFE:
        safetensors.torch.save_file(tensors, folder / SAFE)
    elif kind == BIN:
        torch.save(tensors, folder / BIN)
    else:
        end = "safetensors" if kind == INDEX else "bin"
        save: Any = safetensors.torch.save_file if kind == INDEX else torch.save
        for name, held in halves.items():
            save(held, folder / f"{name}.{end}")
        index = {key: f"{name}.{end}" for name, held in halves.items() for key in held}
        (folder / kind).write_text(json.dumps({"weight_map": index}))
    return tensors


@pytest.mark.parametrize("kind", NAMES)
def test_every_kind_of_file_gives_the_same_tensors(tmp_path: Path, kind: str) -> None:
    written = _write(tmp_path, kind)
    found, listed = read_tensors(tmp_path, NAMES), list_tensors(tmp_path, NAMES)
    assert found.keys() == listed.keys() == written.keys()
    for key, one in written.items():
        assert torch.equal(found[key], one)
        assert found[key].dtype == one.dtype
        assert listed[key].shape == tuple(one.shape)
    assert weight_file(tmp_path, NAMES) == tmp_path / kind


def test_the_preferred_file_counts(tmp_path: Path) -> None:
    _write(tmp_path, SAFE)
    torch.save({"other": torch.ones(1)}, tmp_path / BIN)
    assert "other" not in read_tensors(tmp_path, NAMES)
    assert read_tensors(tmp_path, (BIN, SAFE)).keys() == {"other"}


class _Payload:
    """What a pickle of a stranger may hold."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("legacy", [True, False])
def test_nothing_in_a_pickle_is_executed(tmp_path: Path, legacy: bool) -> None:
    mark = tmp_path / "executed"
    if legacy:
        (tmp_path / BIN).write_bytes(pickle.dumps({"a": _Payload(mark)}, protocol=2))
    else:
        torch.save({"a": _Payload(mark), "b": torch.ones(1)}, tmp_path / BIN)
    for read in (read_tensors, list_tensors):
        with pytest.raises(InputError, match="no file of plain tensors") as refused:
            read(tmp_path, NAMES)
        assert BIN in str(refused.value)
    assert not mark.exists()


def test_old_pickles_are_read(tmp_path: Path) -> None:
    torch.save(_tensors(), tmp_path / BIN, _use_new_zipfile_serialization=False)
    assert read_tensors(tmp_path, NAMES).keys() == list_tensors(tmp_path, NAMES).keys() == _tensors().keys()


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no weights: none of model\.safetensors, "):
        read_tensors(tmp_path, NAMES)
    (tmp_path / SAFE).write_bytes(b"no such thing")
    with pytest.raises(InputError, match=r"model\.safetensors can't be read"):
        read_tensors(tmp_path, NAMES)
    torch.save({"a": torch.ones(1), "epoch": 3}, tmp_path / BIN)
    with pytest.raises(InputError, match=r"pytorch_model\.bin: 'epoch' is a int, not a tensor"):
        read_tensors(tmp_path, (BIN,))
    torch.save([torch.ones(1)], tmp_path / BIN)
    with pytest.raises(InputError, match="holds a list"):
        read_tensors(tmp_path, (BIN,))
    for wrong in (b"", b"no such thing"):
        (tmp_path / BIN).write_bytes(wrong)
        with pytest.raises(InputError, match=r"pytorch_model\.bin can't be read"):
            read_tensors(tmp_path, (BIN,))


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 123\n"


@pytest.mark.parametrize("kind", NAMES)
def test_a_pointer_of_git_lfs_is_told(tmp_path: Path, kind: str) -> None:
    (tmp_path / kind).write_text(POINTER)
    for read in (read_tensors, list_tensors):
        with pytest.raises(InputError, match="is a pointer of Git LFS, not the file itself"):
            read(tmp_path, NAMES)
    with pytest.raises(InputError, match="is a pointer of Git LFS"):
        read_json(tmp_path / kind)


@pytest.mark.parametrize("kind", NAMES)
def test_what_nobody_may_read_is_told(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path, kind)

    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    for name in ("open", "stat"):  # the file, and the folder
        with monkeypatch.context() as patch:
            patch.setattr(Path, name, refuse)
            for read in (read_tensors, list_tensors):
                with pytest.raises(InputError, match=r"(model|one|json).* can't be read: Permission denied") as refused:
                    read(tmp_path, NAMES)
                assert str(tmp_path) in str(refused.value)


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_numbers_that_are_not_finite_are_named(tmp_path: Path, kind: str, value: float, monkeypatch: Any) -> None:
    made = _tensors()
    made["half"][1] = value
    monkeypatch.setitem(globals(), "_tensors", lambda: made)
    _write(tmp_path, kind)
    assert list_tensors(tmp_path, NAMES).keys() == made.keys()
    assert read_tensors(tmp_path, NAMES, {"d2t"}).keys() == {"d2t"}
    with pytest.raises(InputError, match="'half' holds numbers that are not finite"):
        read_tensors(tmp_path, NAMES)


def test_a_wrong_index_is_told(tmp_path: Path) -> None:
    _write(tmp_path, INDEX)
    index = read_json(tmp_path / INDEX)
    index["weight_map"]["more"] = "one.safetensors"
    (tmp_path / INDEX).write_text(json.dumps(index))
    with pytest.raises(InputError, match=r"one\.safetensors lacks what its index promises: more"):
        read_tensors(tmp_path, NAMES)
    for wrong in ({}, {"a": "../one.safetensors"}, {"a": 3}, None):
        (tmp_path / INDEX).write_text(json.dumps({"weight_map": wrong}))
        with pytest.raises(InputError, match="weight_map must name a file of the same folder"):
            read_tensors(tmp_path, NAMES)
    (tmp_path / INDEX).write_text("[]")
    with pytest.raises(InputError, match="must hold a JSON object"):
        read_tensors(tmp_path, NAMES)
