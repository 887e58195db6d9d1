"""Where a training stands: everything that the next step depends on, in one file that is whole or not there."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch

from outrider.errors import InputError

FILE: Final = "training.pt"


def save(folder: Path, state: Mapping[str, Any]) -> None:
    """Write the state of a training to its folder.

    Raises:
        InputError: it can't be written; what was there before stays.
    """
    part = folder / f".{FILE}.{os.getpid()}"
    try:
        torch.save(dict(state), part)
        part.replace(folder / FILE)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as the latter
        part.unlink(missing_ok=True)
        raise InputError(f"{folder / FILE} can't be written: {getattr(error, 'strerror', None) or error}") from error


def load(folder: Path, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the state of a training that was broken off; None where there is none.

    Args:
        folder: of the training.
        settings: of the training now, which must be those of before.

    Raises:
        InputError: the file can't be read, or is of a training with other settings.
    """
    file = folder / FILE
    if not file.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises whatever a broken file leads to
        raise InputError(f"{file} can't be read: {str(error).splitlines()[0]}; delete it to begin anew") from error
    for name, value in settings.items():
        if state["settings"].get(name) != value:
            raise InputError(
                f"{folder} holds a training with {name} = {state['settings'].get(name)!r}, and this has {value!r}: give the "
                f"same settings to go on, or another folder"
            )
    return state
