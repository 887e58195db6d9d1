"""Writing Medusa's heads in the layouts that engines load: vLLM's, and that of the first implementation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from outrider import InputError
from outrider_drafters.files import write_files
from outrider_drafters.medusa.heads import HeadsShape

VLLM: Final = "medusa"
FASTER: Final = "fasterdecoding"
LAYOUTS: Final = (VLLM, FASTER)
"""Layouts that can be written, by the names that users give."""


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """Heads as they are written.

    Args:
        shape: what they are made of; no output layers where the target's own rows serve.
        weights: by their names in `Heads`.
        token_map: `[draft vocab]`, the target's ids of the heads' tokens; None where they are the same.
        whole: the target's vocabulary; None where it is not known.
        target: a folder or a Hub id; None where it is not known.
        accuracies: of every head, how often each of its ranks is right; None where that was not measured.
    """

    shape: HeadsShape
    weights: Mapping[str, torch.Tensor]
    token_map: torch.Tensor | None
    whole: int | None
    target: str | None
    accuracies: Sequence[Sequence[float]] | None = None


def write_medusa(folder: Path, heads: Written, layout: str) -> None:
    """Write heads to an existing folder, each file whole or not at all.

    Raises:
        InputError: the layout can't hold such heads.
        OSError: a file can't be written.
    """
    config = {"base_model_name_or_path": heads.target} if heads.target else {}
    tensors = {} if heads.token_map is None else {"token_map": heads.token_map}
    if layout == VLLM:
        write_files(folder, config | _vllm(heads), "model.safetensors", tensors | _merged(heads))
    else:
        found: dict[str, Any] = config | {
            "medusa_num_heads": heads.shape.heads,
            "medusa_num_layers": heads.shape.layers,
        }
        found |= {} if heads.shape.outputs else {"version": "2"}
        found |= {} if heads.whole is None else {"vocab_size": heads.whole}
        found |= {} if heads.accuracies is None else {"rank_accuracies": [list(one) for one in heads.accuracies]}
        write_files(folder, found, "medusa_lm_head.safetensors", tensors | _faster(heads))


def _vllm(heads: Written) -> dict[str, Any]:
    """Return vLLM's config; it has names for everything but heads without output layers.

    Raises:
        InputError: these are such heads, or what vLLM wants is not known.
    """
    shape, listed = heads.shape, heads.token_map
    if not shape.outputs:
        raise InputError("heads without output layers can't be written in vLLM's layout")
    if heads.whole is None:
        raise InputError("vLLM's layout tells vocab_size, and these heads don't; -m MODEL tells")
    if listed is not None and len(listed) == heads.whole and not torch.equal(listed.cpu(), torch.arange(heads.whole)):
        raise InputError("vLLM reads no token_map of the whole vocabulary")
    return {
        "model_type": "medusa",
        "architectures": ["MedusaModel"],
        "hidden_size": shape.hidden,
        "vocab_size": heads.whole,
        "truncated_vocab_size": shape.vocab,
        "num_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "medusa_fc_bias": shape.bias,
        "original_lm_head": shape.heads > 1 and one_output(heads),
        "torch_dtype": str(next(iter(heads.weights.values())).dtype).removeprefix("torch."),
    }


def one_output(heads: Written) -> bool:
    """Say whether all heads have the same output layer."""
    rows = [heads.weights[f"lm_heads.{head}.weight"] for head in range(heads.shape.outputs)]
    return len(rows) > 0 and all(torch.equal(one, rows[0]) for one in rows[1:])


def _merged(heads: Written) -> dict[str, torch.Tensor]:
    """Return the weights with a single output layer where all have the same."""
    more = {f"lm_heads.{head}.weight" for head in range(1, heads.shape.outputs)} if one_output(heads) else set()
    return {name: one for name, one in heads.weights.items() if name not in more}


def _faster(heads: Written) -> dict[str, torch.Tensor]:
    """Return the weights by the first implementation's names: biases of zeros where there are none, an output layer a head."""
    shape, found = heads.shape, {}
    for head in range(shape.heads):
        for layer in range(shape.layers):
            block = heads.weights[f"blocks.{head}.layers.{layer}.weight"]
            bias = heads.weights.get(f"blocks.{head}.layers.{layer}.bias")
            found[f"{head}.{layer}.linear.weight"] = block
            found[f"{head}.{layer}.linear.bias"] = torch.zeros_like(block[:, 0]) if bias is None else bias
        if shape.outputs:
            rows = heads.weights[f"lm_heads.{min(head, shape.outputs - 1)}.weight"]
            found[f"{head}.{shape.layers}.weight"] = rows.clone()  # a file holds no tensor twice
    return found
