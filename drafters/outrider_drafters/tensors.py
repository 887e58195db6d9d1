"""Tensors from a folder of published weights: safetensors, a sharded index, or a pickle of plain tensors.

Nothing in a file is executed: pickles are read by torch's restricted loader, which knows tensors and containers only.
"""

import json
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open

from outrider import InputError

_POINTER: Final = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """What a file says of a tensor, without its values: of pickles too, which are mapped, not read."""

    file: Path
    shape: tuple[int, ...]
    dtype: str

    @property
    def floating(self) -> bool:
        """Whether it holds floating numbers, as weights do, of a dtype that needs no scales beside it."""
        return self.dtype.lower() in ("f64", "f32", "f16", "bf16", "float64", "float32", "float16", "bfloat16")


def is_file(path: Path) -> bool:
    """Whether there is such a file.

    Raises:
        InputError: nobody may look, which is another thing.
    """
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror or error}") from error


def weight_file(folder: Path, names: Sequence[str]) -> Path | None:
    """Return the first of these files that the folder holds; None where it holds none.

    Raises:
        InputError: nobody may look into the folder.
    """
    return next((folder / name for name in names if is_file(folder / name)), None)


def read_tensors(folder: Path, names: Sequence[str], only: Collection[str] | None = None) -> dict[str, torch.Tensor]:
    """Read the tensors of the first of some files that a folder holds.

    Args:
        folder: of the weights.
        names: of files, the preferred first: `.safetensors`, `.safetensors.index.json`, `.bin.index.json`, else a pickle.
        only: tensors that are wanted, where the others are not; files of an index that hold none of them are not opened.

    Returns:
        The tensors by their names, on the CPU, in the dtype of the file.

    Raises:
        InputError: there is none of these files, or one that can't be read, or something in it is no tensor, or a number in one
            is not finite.
    """
    found: dict[str, torch.Tensor] = {}
    for part, keys in _parts(_weight_file(folder, names)):
        if only is not None and keys and not any(key in only for key in keys):
            continue
        held = _read(part, only)
        _compare(part, held, [key for key in keys if only is None or key in only])
        _check_finite(part, held)
        found |= {key: held[key] for key in (keys or held) if key in held}
    return found


def list_tensors(folder: Path, names: Sequence[str]) -> dict[str, StoredTensor]:
    """Return the shapes of all tensors of the first of some files that a folder holds; see `read_tensors`.

    Raises:
        InputError: as `read_tensors`.
    """
    found: dict[str, StoredTensor] = {}
    for part, keys in _parts(_weight_file(folder, names)):
        held = _list(part)
        _compare(part, held, keys)
        found |= {key: held[key] for key in (keys or held)}
    return found


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        InputError: the file can't be read, or holds something else.
    """
    _check_file(path)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"{path} holds a {type(found).__name__}, and must hold a JSON object")
    return found


def listed(names: Iterable[str], most: int = 12) -> str:
    """Write names in their order, and where there are many, how many more."""
    found = sorted(names)
    return ", ".join(found[:most]) + (f" and {len(found) - most} more" if len(found) > most else "")


def _check_file(file: Path) -> None:
    """Refuse a file that can't be opened, and one that only stands for another.

    Raises:
        InputError: it is such a file.
    """
    try:
        with file.open("rb") as opened:
            start = opened.read(len(_POINTER))
    except OSError as error:
        raise InputError(f"{file} can't be read: {error.strerror or error}") from error
    if start == _POINTER:
        raise InputError(
            f"{file} is a pointer of Git LFS, not the file itself; run `git lfs pull` in its folder, or download it"
        )


def _check_finite(file: Path, held: Mapping[str, torch.Tensor]) -> None:
    for key, one in held.items():
        if one.is_floating_point() and not bool(torch.isfinite(one.float() if one.itemsize == 1 else one).all()):
            raise InputError(f"{file}: '{key}' holds numbers that are not finite (nan or inf): nothing comes of it")


def _weight_file(folder: Path, names: Sequence[str]) -> Path:
    found = weight_file(folder, names)
    if found is None:
        raise InputError(f"{folder} holds no weights: none of {', '.join(names)}")
    return found


def _parts(file: Path) -> list[tuple[Path, list[str]]]:
    """Return the files that hold tensors, with the names that an index promises of each; none where there is no index."""
    if not file.name.endswith(".index.json"):
        return [(file, [])]
    index: Any = read_json(file).get("weight_map")
    # A name that leads out of the folder is no shard of it.
    inside = isinstance(index, dict) and all(isinstance(one, str) and Path(one).name == one for one in index.values())
    if not (index and inside):
        raise InputError(f"{file}: weight_map must name a file of the same folder for every tensor")
    return [
        (file.parent / part, [key for key in index if index[key] == part]) for part in dict.fromkeys(index.values())
    ]


def _compare(file: Path, held: Mapping[str, object], keys: Sequence[str]) -> None:
    missing = [key for key in keys if key not in held]
    if missing:
        raise InputError(f"{file} lacks what its index promises: {', '.join(missing)}")


def _read(file: Path, only: Collection[str] | None = None) -> dict[str, torch.Tensor]:
    _check_file(file)
    if file.suffix != ".safetensors":
        held = _unpickle(file, mapped=only is not None)
        return held if only is None else {key: one.clone() for key, one in held.items() if key in only}
    try:
        with safe_open(file, framework="pt") as stored:
            keys = [key for key in stored.keys() if only is None or key in only]  # noqa: SIM118
            return {key: stored.get_tensor(key) for key in keys}
    except (SafetensorError, OSError) as error:
        raise _unreadable(file, error) from error


def _list(file: Path) -> dict[str, StoredTensor]:
    _check_file(file)
    if file.suffix != ".safetensors":
        held = _unpickle(file, mapped=True)
        return {key: StoredTensor(file, tuple(one.shape), _name(one.dtype)) for key, one in held.items()}
    try:
        with safe_open(file, framework="pt") as stored:
            slices = {key: stored.get_slice(key) for key in stored.keys()}  # noqa: SIM118
            return {key: StoredTensor(file, tuple(one.get_shape()), one.get_dtype()) for key, one in slices.items()}
    except (SafetensorError, OSError) as error:
        raise _unreadable(file, error) from error


def _unpickle(file: Path, *, mapped: bool) -> dict[str, torch.Tensor]:
    try:
        held = torch.load(file, map_location="cpu", weights_only=True, mmap=mapped or None)
    except Exception as error:  # torch raises whatever broken or refused pickles lead to
        if mapped and "mmap can only be used" in str(error):  # files of before torch 1.6
            return _unpickle(file, mapped=False)
        raise _unreadable(file, error) from error
    if not isinstance(held, dict):
        raise InputError(f"{file} holds a {type(held).__name__}, and must hold tensors by name")
    wrong = [key for key, one in held.items() if not (isinstance(key, str) and isinstance(one, torch.Tensor))]
    if wrong:
        raise InputError(f"{file}: '{wrong[0]}' is a {type(held[wrong[0]]).__name__}, not a tensor")
    return held


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _unreadable(file: Path, error: BaseException) -> InputError:
    text = " ".join(str(error).split()) or type(error).__name__
    if "weights_only" in text:  # torch's advice is to execute it
        text = "it is no file of plain tensors, and nothing else is taken: a pickle's code would have to be executed"
    return InputError(f"{file} can't be read: {text[:200]}")
