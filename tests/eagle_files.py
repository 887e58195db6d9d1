"""Heads of EAGLE as their publishers write them, with random weights, from tables of names and shapes alone."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

VOCAB, SIZE, INNER, HEADS, SHARED = 64, 32, 48, 4, 2
DRAFTED = (3, 9, 10, 20, 21, 40, 50, 63)
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": SIZE,
    "intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_key_value_heads": SHARED,
    "num_hidden_layers": 1,
    "vocab_size": VOCAB,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "max_position_embeddings": 256,
    "torch_dtype": "float16",
    "tie_word_embeddings": False,
    "use_cache": True,
}


@dataclass
class Files:
    """A head's config and tensors, to be changed by a test before they are written."""

    config: dict[str, Any]
    tensors: dict[str, torch.Tensor]
    renamed: dict[str, str] = field(default_factory=dict)

    def write(self, folder: Path, kind: str = "safetensors") -> Path:
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        tensors = {name: one.contiguous() for name, one in self.tensors.items()}
        if kind == "safetensors":
            safetensors.torch.save_file(tensors, folder / "model.safetensors")
        elif kind == "bin":
            torch.save(tensors, folder / "pytorch_model.bin")
        else:
            parts = {"a": list(tensors)[::2], "b": list(tensors)[1::2]}
            for part, names in parts.items():
                safetensors.torch.save_file({name: tensors[name] for name in names}, folder / f"{part}.safetensors")
            places = {name: f"{part}.safetensors" for part, names in parts.items() for name in names}
            (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
        return folder

    def plain(self) -> dict[str, torch.Tensor]:
        """The weights by the names that SafeAILab's EAGLE-1 and speculators' EAGLE-3 have."""
        found = {}
        for name, one in self.tensors.items():
            first = next((start for start in self.renamed if name.startswith(start)), "")
            found[self.renamed.get(first, "") + name.removeprefix(first)] = one
        return found


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape) * 0.3


def layer(start: str, width: int, norms: Sequence[str], *, bias: bool = False) -> dict[str, torch.Tensor]:
    size = SIZE // HEADS
    shapes: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj.weight": (HEADS * size, width),
        "self_attn.k_proj.weight": (SHARED * size, width),
        "self_attn.v_proj.weight": (SHARED * size, width),
        "self_attn.o_proj.weight": (SIZE, HEADS * size),
        "mlp.gate_proj.weight": (INNER, SIZE),
        "mlp.up_proj.weight": (INNER, SIZE),
        "mlp.down_proj.weight": (SIZE, INNER),
    }
    if bias:
        shapes |= {f"self_attn.{one}_proj.bias": (shapes[f"self_attn.{one}_proj.weight"][0],) for one in "qkv"}
    found = {f"{start}{name}": random(*shape) for name, shape in shapes.items()}
    return found | {f"{start}{norm}.weight": 1 + random(SIZE) for norm in norms}


FIRST, LATER = ("post_attention_layernorm",), ("input_layernorm", "post_attention_layernorm")
MIDDLE = ("input_layernorm", "hidden_norm", "post_attention_layernorm")


def eagle1(*, bias: bool = True, told: bool = True, attention_bias: bool = False, layers: int = 1) -> Files:
    """SafeAILab's EAGLE-1 and -2."""
    tensors = {"embed_tokens.weight": random(VOCAB, SIZE), "fc.weight": random(SIZE, 2 * SIZE)}
    tensors |= {"fc.bias": random(SIZE)} if bias else {}
    tensors |= layer("layers.0.", SIZE, FIRST, bias=attention_bias)
    for index in range(1, layers):
        tensors |= layer(f"layers.{index}.", SIZE, LATER, bias=attention_bias)
    config = LLAMA | {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": layers}
    return Files(config | ({"bias": bias} if told else {}), tensors)


def speculators_eagle1(*, bias: bool = False) -> Files:
    """speculators' EAGLE-1, before 0.5."""
    tensors = {"fusion_fc.weight": random(SIZE, 2 * SIZE)} | layer("transformer.", SIZE, FIRST)
    tensors |= {"fusion_fc.bias": random(SIZE)} if bias else {}
    config = _speculators("eagle", "llama", 1) | {"layernorms": False, "fusion_bias": bias}
    return Files(config, tensors, {"fusion_fc.": "fc.", "transformer.": "layers.0."})


def vllm_eagle1(*, bias: bool = False) -> Files:
    """vLLM's own EAGLE-1, with a copy of the target's head."""
    tensors = {"fc.weight": random(SIZE, 2 * SIZE), "lm_head.weight": random(VOCAB, SIZE)}
    tensors |= {"fc.bias": random(SIZE)} if bias else {}
    tensors |= layer("model.layers.0.", SIZE, FIRST) | {"model.embed_tokens.weight": random(VOCAB, SIZE)}
    config = {"architectures": ["EAGLEModel"], "model_type": "eagle", "model": LLAMA, "eagle_fc_bias": bias}
    return Files(config | {"truncated_vocab_size": VOCAB}, tensors, {"model.": ""})


def _vocabulary(reduced: bool, always: bool = False) -> dict[str, torch.Tensor]:
    if not reduced and not always:
        return {}
    ids = torch.tensor(DRAFTED) if reduced else torch.arange(VOCAB)
    marks = torch.zeros(VOCAB, dtype=torch.bool)
    marks[ids] = True
    return {"d2t": ids - torch.arange(len(ids)), "t2d": marks}


def _eagle3(first: str, reduced: bool, layers: int, wide: int = SIZE, features: int = 3) -> dict[str, torch.Tensor]:
    tensors = {"fc.weight": random(SIZE, features * wide), "norm.weight": 1 + random(SIZE)}
    tensors |= {"lm_head.weight": random(len(DRAFTED) if reduced else VOCAB, SIZE)}
    tensors |= layer(first, 2 * SIZE, MIDDLE)
    for index in range(1, layers):
        tensors |= layer(f"layers.{index}.", SIZE, LATER)
    return tensors


def eagle3(*, reduced: bool = True, wide: int = SIZE, bare: bool = False) -> Files:
    """SafeAILab's EAGLE-3."""
    tensors = _eagle3("midlayer.", reduced, 1, wide) | _vocabulary(reduced)
    config = LLAMA | {"architectures": ["LlamaForCausalLM"], "draft_vocab_size": len(DRAFTED) if reduced else VOCAB}
    if wide != SIZE:
        config |= {"target_hidden_size": wide}
        tensors |= {} if bare else {"embed_tokens.weight": random(VOCAB, SIZE)}
    return Files(config, tensors, {"midlayer.": "layers.0."})


def specforge(*, reduced: bool = True, embeddings: bool = True, ids: Sequence[int] = (), **more: Any) -> Files:
    """SpecForge's EAGLE-3."""
    tensors = _eagle3("midlayer.", reduced, 1) | _vocabulary(reduced, always=True)
    tensors |= {"embed_tokens.weight": random(VOCAB, SIZE)} if embeddings else {}
    config = LLAMA | {"architectures": ["LlamaForCausalLMEagle3"], "head_dim": SIZE // HEADS}
    config["draft_vocab_size"] = len(DRAFTED) if reduced else VOCAB
    if ids:
        config["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": list(ids), "use_aux_hidden_state": True}
    return Files(config | more, tensors, {"midlayer.": "layers.0."})


def speculators(*, reduced: bool = True, kind: str = "llama", layers: int = 1, **flags: Any) -> Files:
    """speculators' EAGLE-3."""
    tensors = _eagle3("layers.0.", reduced, layers) | _vocabulary(reduced)
    tensors |= {"embed_tokens.weight": random(VOCAB, SIZE)}
    if flags.get("norm_before_fc"):
        tensors["input_norm.weight"] = 1 + random(3 * SIZE)
    if flags.get("fc_norm"):
        tensors |= {f"fc_norm.{index}.weight": 1 + random(SIZE) for index in range(3)}
    if kind == "qwen3":
        size = SIZE // HEADS
        tensors |= {f"layers.{i}.self_attn.{one}_norm.weight": 1 + random(size) for i in range(layers) for one in "qk"}
    config = _speculators("eagle3", kind, layers) | {"draft_vocab_size": len(DRAFTED) if reduced else VOCAB}
    return Files(config | {"norm_before_residual": False, "target_hidden_size": None} | flags, tensors)


def _speculators(method: str, kind: str, layers: int) -> dict[str, Any]:
    inner = LLAMA | {"model_type": kind, "num_hidden_layers": layers, "head_dim": SIZE // HEADS}
    proposal = {"proposal_type": "greedy", "speculative_tokens": 3, "verifier_accept_k": 1, "accept_tolerance": 0.0}
    verifier = {"name_or_path": "some/target", "architectures": ["LlamaForCausalLM"]}
    return {
        "architectures": ["Eagle3Speculator" if method == "eagle3" else "EagleSpeculator"],
        "speculators_model_type": method,
        "speculators_version": "0.4.0",
        "transformer_layer_config": inner,
        "speculators_config": {
            "algorithm": method,
            "proposal_methods": [proposal],
            "default_proposal_method": "greedy",
            "verifier": verifier,
        },
    }


LAYOUTS: dict[str, Callable[[], Files]] = {
    "EAGLE-1": eagle1,
    "EAGLE-1, no bias": lambda: eagle1(bias=False),
    "EAGLE-1, bias by its presence": lambda: eagle1(told=False),
    "EAGLE-1, no bias by its absence": lambda: eagle1(bias=False, told=False),
    "EAGLE-1, attention bias": lambda: eagle1(attention_bias=True),
    "EAGLE-1, two layers": lambda: eagle1(layers=2),
    "EAGLE-1, speculators": speculators_eagle1,
    "EAGLE-1, speculators, bias": lambda: speculators_eagle1(bias=True),
    "EAGLE-1, vLLM": vllm_eagle1,
    "EAGLE-1, vLLM, bias": lambda: vllm_eagle1(bias=True),
    "EAGLE-3": eagle3,
    "EAGLE-3, whole vocabulary": lambda: eagle3(reduced=False),
    "EAGLE-3, SpecForge": specforge,
    "EAGLE-3, SpecForge for SGLang": lambda: specforge(embeddings=False),
    "EAGLE-3, SpecForge, whole vocabulary": lambda: specforge(reduced=False),
    "EAGLE-3, SpecForge, layers": lambda: specforge(ids=(0, 3, 5)),
    "EAGLE-3, speculators": speculators,
    "EAGLE-3, speculators, whole vocabulary": lambda: speculators(reduced=False),
    "EAGLE-3, speculators, two layers": lambda: speculators(layers=2),
    "EAGLE-3, speculators, Qwen3": lambda: speculators(kind="qwen3", layers=2),
    "EAGLE-3, speculators, norm before fc": lambda: speculators(norm_before_fc=True, norm_output=True),
    "EAGLE-3, speculators, norms before fc": lambda: speculators(fc_norm=True, norm_before_residual=True),
}
