"""Medusa's heads as plain tensors, their formula written out, and every layout in which they are published.

Written from the tables of the layouts alone; nothing of the drafter is used.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import safetensors.torch
import torch

FILE = "medusa_lm_head.safetensors"


@dataclass(frozen=True)
class Weights:
    """Residual blocks of every head, outputs of every head (one for all, or none), and a map to the target's ids."""

    blocks: list[list[tuple[torch.Tensor, torch.Tensor | None]]]
    outputs: list[torch.Tensor]
    token_map: torch.Tensor | None = None

    def logits(self, state: torch.Tensor, head: int, own: torch.Tensor | None = None) -> torch.Tensor:
        """What a head says of a state `[hidden]`; `own` are the target's output rows."""
        for weight, bias in self.blocks[head]:
            inner = weight.double() @ state.double() + (0 if bias is None else bias.double())
            state = state.double() + inner / (1 + torch.exp(-inner))
        if self.outputs:
            return self.outputs[head if len(self.outputs) > 1 else 0].double() @ state
        assert own is not None
        return (own if self.token_map is None else own[self.token_map]).double() @ state


def random_weights(
    heads: int = 3,
    layers: int = 1,
    hidden: int = 32,
    vocab: int = 64,
    outputs: int | None = None,
    *,
    bias: bool = True,
    token_map: list[int] | None = None,
    seed: int = 0,
) -> Weights:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) / 3

    blocks = [[(draw(hidden, hidden), draw(hidden) if bias else None) for _ in range(layers)] for _ in range(heads)]
    rows = vocab if token_map is None else len(token_map)
    count = heads if outputs is None else outputs
    return Weights(
        blocks, [draw(rows, hidden) for _ in range(count)], None if token_map is None else torch.tensor(token_map)
    )


def faster_names(weights: Weights, prefix: str = "") -> dict[str, torch.Tensor]:
    named = {}
    for head, blocks in enumerate(weights.blocks):
        for layer, (weight, bias) in enumerate(blocks):
            named[f"{prefix}{head}.{layer}.linear.weight"] = weight
            if bias is not None:
                named[f"{prefix}{head}.{layer}.linear.bias"] = bias
        if weights.outputs:
            named[f"{prefix}{head}.{len(blocks)}.weight"] = weights.outputs[head]
    return named | _map(weights, prefix)


def vllm_names(weights: Weights, prefix: str = "") -> dict[str, torch.Tensor]:
    named = {}
    for head, blocks in enumerate(weights.blocks):
        for layer, (weight, bias) in enumerate(blocks):
            named[f"{prefix}blocks.{head}.layers.{layer}.weight"] = weight
            if bias is not None:
                named[f"{prefix}blocks.{head}.layers.{layer}.bias"] = bias
    named |= {f"{prefix}lm_heads.{head}.weight": rows for head, rows in enumerate(weights.outputs)}
    return named | _map(weights, prefix)


def _map(weights: Weights, prefix: str) -> dict[str, torch.Tensor]:
    return {} if weights.token_map is None else {f"{prefix}token_map": weights.token_map}


def write(folder: Path, file: str, named: dict[str, torch.Tensor], **config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    if file.endswith(".safetensors"):
        safetensors.torch.save_file({name: one.clone() for name, one in named.items()}, folder / file)
    else:
        torch.save(named, folder / file)
    if config:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def write_sharded(folder: Path, named: dict[str, torch.Tensor], **config: Any) -> Path:
    """Spread over two files with an index, as large models are."""
    names = sorted(named)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, held in parts.items():
        write(folder, file, {name: named[name] for name in held}, **config)
    index = {"weight_map": {name: file for file, held in parts.items() for name in held}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def _of_target(weights: Weights) -> dict[str, torch.Tensor]:
    """A whole model's file: its own weights, and the heads behind a prefix."""
    return {"model.embed_tokens.weight": torch.ones(64, 32), "lm_head.weight": torch.ones(64, 32)} | faster_names(
        weights, "medusa_head."
    )


MAP = [3, 9, 10, 20, 21, 40, 50, 63]
BOTH = {"medusa_num_heads": 3, "medusa_num_layers": 1}
VLLM: dict[str, Any] = {
    "model_type": "medusa",
    "hidden_size": 32,
    "vocab_size": 64,
    "num_heads": 3,
    "num_hidden_layers": 1,
}

Layout = tuple[Weights, Callable[[Path, Weights], Path]]

LAYOUTS: dict[str, Layout] = {
    "v0.1": (random_weights(), lambda at, held: write(at, "medusa_lm_head.pt", faster_names(held), **BOTH)),
    # Published configs count fewer heads than there are.
    "v0.1, no config": (random_weights(5), lambda at, held: write(at, "medusa_lm_head.pt", faster_names(held))),
    "two blocks": (random_weights(2, 2), lambda at, held: write(at, FILE, faster_names(held), medusa_num_layers=2)),
    "safetensors": (random_weights(), lambda at, held: write(at, FILE, faster_names(held), **BOTH)),
    "version 2": (
        random_weights(outputs=0),
        lambda at, held: write(at, FILE, faster_names(held), **BOTH, version="2"),
    ),
    "version 2 of some tokens": (
        random_weights(outputs=0, token_map=MAP),
        lambda at, held: write(at, FILE, faster_names(held), **BOTH, version="2"),
    ),
    "medusa-2": (
        random_weights(),
        lambda at, held: write(at, "model.safetensors", _of_target(held), **BOTH, num_attention_heads=4),
    ),
    "medusa-2, shards": (random_weights(), lambda at, held: write_sharded(at, _of_target(held), **BOTH)),
    "medusa-2, pickle": (random_weights(), lambda at, held: write(at, "pytorch_model.bin", _of_target(held))),
    "vllm": (
        random_weights(bias=False),
        lambda at, held: write(at, "model.safetensors", vllm_names(held), **VLLM, medusa_fc_bias=False),
    ),
    "vllm, prefix and bias": (
        random_weights(2, 2),
        lambda at, held: write(
            at,
            "model.safetensors",
            vllm_names(held, "medusa_heads."),
            **(VLLM | {"num_heads": 2, "num_hidden_layers": 2}),
            medusa_fc_bias=True,
        ),
    ),
    "vllm, one output": (
        random_weights(bias=False, outputs=1),
        lambda at, held: write(at, "model.safetensors", vllm_names(held), **VLLM, original_lm_head=True),
    ),
    "vllm, some tokens": (
        random_weights(bias=False, token_map=MAP),
        lambda at, held: write(at, "model.safetensors", vllm_names(held), **VLLM, truncated_vocab_size=8),
    ),
    "vllm, the target's output": (
        random_weights(bias=False, outputs=0, token_map=MAP),
        lambda at, held: write(at, "model.safetensors", vllm_names(held), **VLLM, original_lm_head=True),
    ),
}


@lru_cache(maxsize=64)
def _random_folder(hidden: int, vocab: int) -> TemporaryDirectory[str]:
    folder = TemporaryDirectory()
    write(Path(folder.name), FILE, faster_names(random_weights(3, 1, hidden, vocab, seed=1)))
    return folder


def random_heads(hidden: int, vocab: int) -> str:
    """The folder of random heads of these widths, kept as long as the tests run."""
    return _random_folder(hidden, vocab).name
