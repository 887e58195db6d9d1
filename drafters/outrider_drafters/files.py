"""Writing folders of weights, each file whole or not at all."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file


def write_files(folder: Path, config: Mapping[str, Any], name: str, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write weights and `config.json` to an existing folder.

    Args:
        folder: where.
        config: the JSON object.
        name: of the weights' file.
        tensors: by their names.

    Raises:
        OSError: a file can't be written; those that were there stay.
    """
    weights, text = (folder / f".{one}.{os.getpid()}" for one in (name, "config.json"))
    try:
        save_file({key: one.contiguous() for key, one in tensors.items()}, weights, metadata={"format": "pt"})
        text.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        weights.replace(folder / name)
        text.replace(folder / "config.json")
    except SafetensorError as error:
        raise OSError(str(error)) from error
    finally:
        for part in (weights, text):
            part.unlink(missing_ok=True)
