"""What a folder holds that was given for heads and has none, in words."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError, safe_open

_WEIGHTS: Final = (".safetensors", ".bin", ".pt", ".pth")
_INDEX: Final = ".index.json"
_LAYER: Final = re.compile(r"\.(?:layers?|blocks?|h)\.(\d+)\.")
_WRAPPED: Final = "module."


def describe(folder: Path) -> str:
    """Say what a folder holds, and what heads would have besides; only names in its files are looked at."""
    try:
        files = sorted(one.name for one in folder.iterdir() if one.is_file())
    except OSError as error:
        return f"It can't be read: {error.strerror or error}."
    weights = [name for name in files if name.endswith((*_WEIGHTS, _INDEX))]
    if not weights:
        return (
            f"It holds no weights (such as model.safetensors), only {_listed(files)}."
            if files
            else "It holds no files."
        )
    names = sorted(name for file in weights for name in _tensors(folder / file))
    if names and all(name.startswith(_WRAPPED) for name in names):
        return f"The names of its tensors begin with '{_WRAPPED}', as a trainer's wrapper writes them; save them without it."
    layers = {match[1] for name in names for match in _LAYER.finditer(f".{name}")}
    if len(layers) > 1:
        return f"It holds a whole model ({_kind(folder)}{len(layers)} layers)."
    if "config.json" not in files:
        return f"It holds {_listed(weights)}, and no config.json."
    inside = f", with tensors such as {_listed(names)}" if names else ""
    return f"It holds config.json and {_listed(weights)}{inside}."


def _tensors(file: Path) -> list[str]:
    """Return the names of a file's tensors; none where nothing but opening a pickle would tell, or it is broken."""
    try:
        if file.name.endswith(_INDEX):
            index = json.loads(file.read_text(encoding="utf-8"))["weight_map"]
            return [str(name) for name in index]
        if file.suffix != ".safetensors":
            return []
        with safe_open(file, framework="pt") as stored:
            return list(stored.keys())
    except (OSError, ValueError, KeyError, TypeError, SafetensorError):
        return []


def _kind(folder: Path) -> str:
    try:
        found: Any = json.loads((folder / "config.json").read_text(encoding="utf-8"))["architectures"][0]
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return ""
    return f"{found}, "


def _listed(names: Sequence[str], most: int = 4) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
