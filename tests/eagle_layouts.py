"""Folders of heads for a tiny target, written from the tables of the published layouts; no drafter is imported."""

import json
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from outrider import TargetInfo


def eagle_config(info: TargetInfo, **more: Any) -> dict[str, Any]:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": info.hidden_size,
        "intermediate_size": 2 * info.hidden_size,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 1,
        "vocab_size": info.vocab_size,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
    }
    return config | more


def random(generator: torch.Generator, *shape: int, spread: float = 0.2) -> torch.Tensor:
    return spread * torch.randn(*shape, generator=generator)


def layer(generator: torch.Generator, prefix: str, size: int, reads: int) -> dict[str, torch.Tensor]:
    """A Llama layer's weights, of four heads and two of keys and values."""
    shapes = {
        "self_attn.q_proj": (size, reads),
        "self_attn.k_proj": (size // 2, reads),
        "self_attn.v_proj": (size // 2, reads),
        "self_attn.o_proj": (size, size),
        "mlp.gate_proj": (2 * size, size),
        "mlp.up_proj": (2 * size, size),
        "mlp.down_proj": (size, 2 * size),
    }
    found = {f"{prefix}{name}.weight": random(generator, *shape) for name, shape in shapes.items()}
    return found | {f"{prefix}post_attention_layernorm.weight": 1 + random(generator, size)}


def eagle(info: TargetInfo, seed: int = 0) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """EAGLE-1: no norm before the layer, no head."""
    generator = torch.Generator().manual_seed(seed)
    size = info.hidden_size
    tensors = layer(generator, "layers.0.", size, size) | {"fc.weight": random(generator, size, 2 * size)}
    return eagle_config(info, bias=False), tensors


def eagle3(
    info: TargetInfo, seed: int = 0, draft_vocab: int | None = None, layers: tuple[int, ...] = (0, 1)
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """EAGLE-3 as SafeAILab writes it, with its layers named."""
    generator = torch.Generator().manual_seed(seed)
    size, vocab = info.hidden_size, info.vocab_size
    few = vocab if draft_vocab is None else draft_vocab
    tensors = layer(generator, "midlayer.", size, 2 * size)
    tensors |= {f"midlayer.{name}.weight": 1 + random(generator, size) for name in ("input_layernorm", "hidden_norm")}
    tensors |= {"fc.weight": random(generator, size, len(layers) * size), "norm.weight": 1 + random(generator, size)}
    tensors["lm_head.weight"] = random(generator, few, size, spread=1.0)
    if few < vocab:
        kept = torch.randperm(vocab, generator=generator)[:few].sort().values
        tensors["d2t"] = kept - torch.arange(few)
        tensors["t2d"] = torch.zeros(vocab, dtype=torch.bool).index_fill(0, kept, True)
    more = {"draft_vocab_size": few, "eagle_aux_hidden_state_layer_ids": list(layers)}
    return eagle_config(info, **more), tensors


def write(folder: Path, config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    safetensors.torch.save_file({name: one.contiguous() for name, one in tensors.items()}, folder / "model.safetensors")
    return str(folder)


@lru_cache(maxsize=1)
def _folders() -> Any:
    return tempfile.TemporaryDirectory(prefix="outrider-heads-")


def random_eagle(info: TargetInfo, method: str) -> str:
    """A folder of random heads for a target."""
    make = {"eagle": eagle, "eagle3": eagle3}[method]
    name = f"{method}-{info.hidden_size}-{info.vocab_size}-{info.num_layers}"
    folder = Path(_folders().name) / name
    return str(folder) if folder.exists() else write(folder, *make(info))
