"""References for EAGLE-3's network from another implementation: the forward of the package `speculators`.

    python tests/oracle/eagle3_reference.py write     makes the files beside this one anew
    python tests/oracle/eagle3_reference.py compare   makes them in memory and compares with these files

It runs in an environment of its own (`make oracle`, `requirements.txt`); the tests only read the files. Everything is in
float64: the norms of that package compute in float32, so they are replaced here by the same formula in float64.
"""

import itertools
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # saving would look for the target's name

import safetensors.torch
import torch
from speculators import SpeculatorsConfig, VerifierConfig  # type: ignore[import-not-found]
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig  # type: ignore[import-not-found]
from speculators.proposals.greedy import GreedyTokenProposalConfig  # type: ignore[import-not-found]
from transformers import LlamaConfig, Qwen3Config
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

HERE = Path(__file__).parent
TOKENS, STEPS, VOCAB, DRAFT_VOCAB, SIZE = 5, 3, 24, 8, 16
DRAFTED = (1, 2, 5, 9, 10, 17, 20, 23)
SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": SIZE,
    "intermediate_size": 24,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "max_position_embeddings": 64,
}
ROPES: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 2.0, "rope_theta": 20000.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0, "original_max_position_embeddings": 16},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
        "rope_theta": 500000.0,
    },
}


def cases() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """By name: keys of the head, and keys of its layers."""
    found: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    before: dict[str, dict[str, Any]] = {"plain": {}, "norm_before_fc": {"norm_before_fc": True}}
    before["fc_norm"] = {"fc_norm": True}
    for kind, layers, flags, residual, output, reduced in itertools.product(
        ("llama", "qwen3"), (1, 2), before, (False, True), (False, True), (False, True)
    ):
        name = f"{kind}-{layers}-{flags}-residual{residual:d}-output{output:d}-reduced{reduced:d}"
        head = before[flags] | {"norm_before_residual": residual, "norm_output": output}
        head["draft_vocab_size"] = DRAFT_VOCAB if reduced else VOCAB
        found[name] = head, {"model_type": kind, "num_hidden_layers": layers}
    plain, one = {"draft_vocab_size": DRAFT_VOCAB}, {"num_hidden_layers": 1}
    for kind in ("llama", "qwen3"):
        found[f"{kind}-bias"] = plain, {"model_type": kind, "attention_bias": True, **one}
        sliding = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 2, "num_hidden_layers": 2}
        if kind == "qwen3":
            found["qwen3-sliding"] = plain, {"model_type": kind, "use_sliding_window": True, **sliding}
    for name, rope in ROPES.items():
        found[f"llama-{name}"] = plain, {"model_type": "llama", "rope_parameters": rope, **one}
    found["llama-four-features"] = (
        plain | {"eagle_aux_hidden_state_layer_ids": [1, 2, 4, 5]},
        {"model_type": "llama", **one},
    )
    return found


def precise(self: Any, states: torch.Tensor) -> Any:
    """The norm in float64."""
    found: torch.Tensor = states * torch.rsqrt(states.square().mean(-1, keepdim=True) + self.variance_epsilon)
    return found * self.weight


def model_of(head: dict[str, Any], layers: dict[str, Any]) -> Any:
    """A head of the other implementation, with weights that only depend on their names and shapes."""
    kinds: dict[str, Any] = {"llama": LlamaConfig, "qwen3": Qwen3Config}
    given = {key: value for key, value in layers.items() if key != "model_type"}
    inner = kinds[layers["model_type"]](**SHAPE, **given)
    inner._attn_implementation = "sdpa"
    ids = head.get("eagle_aux_hidden_state_layer_ids", [2, 3, 4])
    whole = SpeculatorsConfig(
        algorithm="eagle3",
        proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=3)],
        default_proposal_method="greedy",
        verifier=VerifierConfig(name_or_path="some/target", architectures=["LlamaForCausalLM"]),
    )
    keys = head | {"eagle_aux_hidden_state_layer_ids": ids}
    model = Eagle3DraftModel(Eagle3SpeculatorConfig(transformer_layer_config=inner, speculators_config=whole, **keys))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            seed = sum(index * ord(letter) for index, letter in enumerate(name, 1)) + sum(weight.shape)
            drawn = torch.randn(weight.shape, generator=torch.Generator().manual_seed(seed))
            weight.copy_(drawn * 0.4 + (1.0 if "norm" in name else 0.0))
        if head["draft_vocab_size"] == DRAFT_VOCAB:
            drafted = torch.tensor(DRAFTED)
            model.d2t.copy_(drafted - torch.arange(DRAFT_VOCAB))
            model.t2d.zero_()[drafted] = True
    return model


@torch.no_grad()
def logits_of(model: Any, features: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Logits of every step `[steps, tokens, draft vocab]`: its forward gives their argmax only."""
    seen: list[torch.Tensor] = []
    model = model.double().eval()
    model.lm_head.register_forward_hook(lambda module, inputs, output: seen.append(output[0]))
    model(features, ids[None], torch.zeros(1, TOKENS, dtype=torch.long), ttt_steps=STEPS)
    return torch.stack(seen)


def in_float64() -> None:
    """Let the norms compute in float64."""
    norms: list[Any] = [LlamaRMSNorm, Qwen3RMSNorm]
    for norm in norms:
        norm.forward = precise


def make() -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Weights, inputs and logits of all cases; and each case's config file, with its tensors' names."""
    in_float64()
    draw = torch.Generator().manual_seed(7)
    tensors = {"ids": torch.randint(0, VOCAB, (TOKENS,), generator=draw)}
    tensors |= {f"features.{n}": torch.randn(1, TOKENS, n * SIZE, generator=draw, dtype=torch.float64) for n in (3, 4)}
    described: dict[str, Any] = {}
    for name, (head, layers) in cases().items():
        model = model_of(head, layers)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            config = json.loads((Path(folder) / "config.json").read_text())
            weights = safetensors.torch.load_file(Path(folder) / "model.safetensors")
        count = len(config["eagle_aux_hidden_state_layer_ids"])
        places = {key: f"{key}/{'x'.join(map(str, one.shape))}" for key, one in weights.items()}
        for key, one in weights.items():
            known = tensors.setdefault(places[key], one)
            if not torch.equal(known, one):
                raise RuntimeError(f"{name}: {key} is not a function of its name and shape")
        tensors[f"logits.{name}"] = logits_of(model, tensors[f"features.{count}"], tensors["ids"])
        described[name] = {"config": config, "tensors": sorted(places.values()), "features": count}
    return tensors, {"bases": shared(described), "cases": described}


def shared(described: dict[str, Any]) -> dict[str, Any]:
    """Take out of the config files what all of them say alike, and return it."""
    base: dict[str, Any] = {}
    for place in ("transformer_layer_config", None):
        configs = [case["config"] if place is None else case["config"][place] for case in described.values()]
        alike = {k: v for k, v in configs[0].items() if all(k in c and c[k] == v for c in configs)}
        for config in configs:
            for key in alike:
                del config[key]
        base["layers" if place else "head"] = alike
    return base


def main(what: str) -> int:
    """Write the files, or compare with them; returns the exit status."""
    tensors, described = make()
    file, text = HERE / "eagle3.safetensors", json.dumps(described, indent=None, sort_keys=True) + "\n"
    if what == "write":
        safetensors.torch.save_file(tensors, file)
        (HERE / "eagle3.json").write_text(text)
        print(f"{len(described['cases'])} cases, {file.stat().st_size + len(text)} bytes")
        return 0
    kept = safetensors.torch.load_file(file)
    if kept.keys() != tensors.keys() or json.loads((HERE / "eagle3.json").read_text()) != described:
        print("the files hold other cases than this script makes")
        return 1
    error = max(float((kept[key].double() - one.double()).abs().max()) for key, one in tensors.items())
    print(f"{len(described['cases'])} cases made anew; largest difference from the files {error:.1e}")
    return int(error > 1e-12)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
