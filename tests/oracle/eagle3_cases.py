"""The cases that `eagle3_reference.py` made: heads as the other implementation saved them, inputs, and logits."""

import json
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

HERE = Path(__file__).parent
TENSORS = safetensors.torch.load_file(HERE / "eagle3.safetensors")
DESCRIBED: dict[str, Any] = json.loads((HERE / "eagle3.json").read_text())
CASES: dict[str, Any] = DESCRIBED["cases"]
VOCAB, SIZE, LAYERS = 24, 16, 7


def write(name: str, folder: Path) -> dict[str, torch.Tensor]:
    """Write a case as the other implementation saved it."""
    case, bases = CASES[name], DESCRIBED["bases"]
    config = bases["head"] | case["config"]
    config["transformer_layer_config"] = bases["layers"] | case["config"]["transformer_layer_config"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {place.partition("/")[0]: TENSORS[place] for place in case["tensors"]}
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    return tensors
