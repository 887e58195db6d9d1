"""The networks of EAGLE heads against formulas written out plainly, without a cache, and their rotary embeddings."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from eagle_files import HEADS, LLAMA, SHARED, SIZE, VOCAB, Files, eagle1, eagle3, specforge, speculators
from outrider import TargetInfo
from outrider_drafters.eagle.checkpoint import read_eagle
from outrider_drafters.eagle.network import Attend

TARGET = TargetInfo(VOCAB, SIZE, 8, 256, frozenset(), torch.float64, torch.device("cpu"), None)
TOKENS = 7


def causal(layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)


def formula(weights: dict[str, torch.Tensor], embeds: torch.Tensor, states: torch.Tensor, layers: int) -> torch.Tensor:
    """EAGLE-1 for one row `[tokens, hidden]`, token by token and head by head."""
    weights = {name: one.double() for name, one in weights.items()}
    rows = [
        weights["fc.weight"] @ torch.cat([embed, state]) + weights.get("fc.bias", torch.zeros(SIZE))
        for embed, state in zip(embeds, states, strict=True)
    ]
    for index in range(layers):
        own = {name.removeprefix(f"layers.{index}."): one for name, one in weights.items()}
        read = [norm(row, own["input_layernorm.weight"]) if index else row for row in rows]
        rows = [row + part for row, part in zip(rows, attention(own, read), strict=True)]
        rows = [row + mlp(own, norm(row, own["post_attention_layernorm.weight"])) for row in rows]
    return torch.stack(rows)


def norm(row: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return weight * row / math.sqrt(float((row * row).mean()) + LLAMA["rms_norm_eps"])


def mlp(own: dict[str, torch.Tensor], row: torch.Tensor) -> torch.Tensor:
    gate = own["mlp.gate_proj.weight"] @ row
    return own["mlp.down_proj.weight"] @ (gate / (1 + torch.exp(-gate)) * (own["mlp.up_proj.weight"] @ row))


def attention(own: dict[str, torch.Tensor], rows: list[torch.Tensor]) -> list[torch.Tensor]:
    size = SIZE // HEADS
    found = []
    for at, row in enumerate(rows):
        heads = []
        for head in range(HEADS):
            query = turned(projected(own, "q", head, row), at)
            shared = head // (HEADS // SHARED)
            keys = [turned(projected(own, "k", shared, rows[past]), past) for past in range(at + 1)]
            weights = [math.exp(float(query @ key) / math.sqrt(size)) for key in keys]
            values = [projected(own, "v", shared, rows[past]) for past in range(at + 1)]
            heads.append(sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights))
        found.append(own["self_attn.o_proj.weight"] @ torch.cat(heads))  # type: ignore[arg-type]
    return found


def projected(own: dict[str, torch.Tensor], kind: str, head: int, row: torch.Tensor) -> torch.Tensor:
    size = SIZE // HEADS
    rows = slice(head * size, (head + 1) * size)
    name = f"self_attn.{kind}_proj"
    bias = own.get(f"{name}.bias")
    return own[f"{name}.weight"][rows] @ row + (0 if bias is None else bias[rows])


def turned(vector: torch.Tensor, position: int) -> torch.Tensor:
    """Turn pairs of a vector by angles of base 10000, which are float32."""
    half = len(vector) // 2
    found = vector.clone()
    for pair in range(half):
        speed = (1.0 / (torch.tensor(10000.0) ** torch.tensor(2 * pair / len(vector)))).float()
        angle = speed * position
        cos, sin = angle.cos().double(), angle.sin().double()
        found[pair] = vector[pair] * cos - vector[pair + half] * sin
        found[pair + half] = vector[pair + half] * cos + vector[pair] * sin
    return found


@pytest.mark.parametrize(
    "files",
    [
        lambda: eagle1(),
        lambda: eagle1(bias=False),
        lambda: eagle1(attention_bias=True),
        lambda: eagle1(layers=2),
    ],
)
@torch.no_grad()
def test_eagle_1_is_its_formula(tmp_path: Path, files: Callable[[], Files]) -> None:
    written = files()
    config, network = read_eagle(written.write(tmp_path), TARGET)
    embeds, states = torch.randn(2, 2, TOKENS, SIZE, dtype=torch.float64)
    fed_back, for_logits = network(embeds, network.fuse(states), torch.arange(TOKENS).expand(2, -1), causal)
    assert torch.equal(fed_back, for_logits)  # no norm comes after
    assert network.logits(for_logits) is None
    for row in range(2):
        expected = formula(written.tensors, embeds[row], states[row], config.num_layers)
        assert (fed_back[row] - expected).abs().max() < 1e-9
        assert expected.std() > 0.1


@torch.no_grad()
def test_rows_and_steps_do_not_mix(tmp_path: Path) -> None:
    """One position at a time, with the keys and values kept by the caller, gives what one call gives."""
    _, network = read_eagle(speculators(layers=2).write(tmp_path), TARGET)
    embeds, hidden = torch.randn(2, 2, TOKENS, SIZE, dtype=torch.float64)
    positions = torch.arange(TOKENS).expand(2, -1)
    whole, _ = network(embeds, hidden, positions, causal)
    held: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def attend(layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        if layer in held:
            key, value = (torch.cat(both, dim=2) for both in zip(held[layer], (key, value), strict=True))
        held[layer] = key, value
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, enable_gqa=True)

    given: Attend = attend
    steps = [network(embeds[:, [at]], hidden[:, [at]], positions[:, [at]], given)[0] for at in range(TOKENS)]
    assert (torch.cat(steps, dim=1) - whole).abs().max() < 1e-12


@torch.no_grad()
def test_specforges_norm_output_never_feeds_back_normed_states(tmp_path: Path) -> None:
    embeds, hidden = torch.randn(2, 1, TOKENS, SIZE, dtype=torch.float64)
    positions = torch.arange(TOKENS)[None]
    files = specforge()
    for told, expected in ((None, True), (True, True), (False, False)):
        written = replace(files, config=files.config | ({} if told is None else {"norm_output": told}))
        _, network = read_eagle(written.write(tmp_path / str(told)), TARGET)
        fed_back, for_logits = network(embeds, hidden, positions, causal)
        assert network.norm is not None
        assert torch.equal(for_logits, network.norm(fed_back) if expected else fed_back)


# Its own rotary embedding, whatever the target's is, in the older and the newer spelling.

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
YARN = {"factor": 4.0, "original_max_position_embeddings": 64}
LONG = {"short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [2.0, 3.0, 4.0, 5.0], "factor": 4.0}
LONG |= {"original_max_position_embeddings": 64}
SPELT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "default": ({"rope_theta": 500000.0}, {"rope_type": "default", "rope_theta": 500000.0}),
    "absent": ({}, {"rope_type": "default", "rope_theta": 10000.0}),
    "linear": (
        {"rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0},
    ),
    "dynamic": (
        {"rope_theta": 20000.0, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
        {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 20000.0},
    ),
    "llama3": (
        {"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3"} | LLAMA3},
        {"rope_type": "llama3", "rope_theta": 500000.0} | LLAMA3,
    ),
    "yarn": (
        {"rope_theta": 10000.0, "rope_scaling": {"rope_type": "yarn", "type": "yarn"} | YARN},
        {"rope_type": "yarn", "rope_theta": 10000.0} | YARN,
    ),
    "longrope": (
        {"rope_scaling": {"type": "longrope"} | LONG},
        {"rope_type": "longrope", "rope_theta": 10000.0} | LONG,
    ),
    "several axes": (
        {"rope_theta": 1e6, "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]}},
        {"rope_type": "default", "rope_theta": 1e6},
    ),
}


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize("kind", SPELT)
@pytest.mark.parametrize("method", ["eagle", "eagle3"])
def test_a_head_turns_as_its_file_says(tmp_path: Path, kind: str, new: bool, method: str) -> None:
    old, parameters = SPELT[kind]
    files = eagle1() if method == "eagle" else eagle3()
    files.config |= {"rope_parameters": parameters} if new else old
    config, network = read_eagle(files.write(tmp_path), TARGET)
    assert config.max_positions == (64 if kind == "longrope" else LLAMA["max_position_embeddings"])
    shape = {name: LLAMA[name] for name in ("hidden_size", "num_attention_heads", "max_position_embeddings")}
    expected = LlamaRotaryEmbedding(transformers.LlamaConfig(**shape, rope_parameters=dict(parameters)))
    # Far enough that a wrong frequency shows, and short of where some kinds change them.
    positions = torch.tensor([[0, 1, 17, 63]])
    cos, sin = expected(torch.zeros(1, dtype=torch.float64), positions)
    found = network.rotary(positions, torch.float64)
    assert torch.equal(found.cos[:, 0], cos)
    assert torch.equal(found.sin[:, 0], sin)


def test_kinds_of_rotation_differ(tmp_path: Path) -> None:
    """Else the test above could not tell a scaling that was lost."""
    found = []
    for kind, (old, _) in SPELT.items():
        files = eagle1()
        files.config |= old
        _, network = read_eagle(files.write(tmp_path / kind), TARGET)
        found.append((network.rotary.frequencies, network.rotary.factor))
    same = [
        (one, other)
        for one in range(len(found))
        for other in range(one)
        if torch.equal(found[one][0], found[other][0]) and found[one][1] == found[other][1]
    ]
    assert same == []
