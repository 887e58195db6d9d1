"""EAGLE-3's network against the logits of another implementation, for every variant that both have.

The files in `tests/oracle` are made by `eagle3_reference.py` there, which says how; `make oracle` makes them anew.
"""

from pathlib import Path

import pytest
import torch

from oracle.eagle3_cases import CASES, LAYERS, SIZE, TENSORS, VOCAB, write
from outrider import TargetInfo
from outrider_drafters.eagle.checkpoint import read_eagle
from outrider_drafters.eagle.network import Attend

STEPS, LIMIT = 3, 1e-9


def target() -> TargetInfo:
    return TargetInfo(VOCAB, SIZE, LAYERS, None, frozenset(), torch.float64, torch.device("cpu"), None)


class Unrolled:
    """Attention as in EAGLE-3's training: the first step's keys up to a token, and the token's own ones of later steps."""

    def __init__(self, window: int | None, sliding: frozenset[int]) -> None:
        self.window, self.sliding = window, sliding
        self.held: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {}

    def __call__(self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        held = self.held.setdefault(layer, [])
        held.append((key, value))
        at = torch.arange(query.shape[2])
        causal = at[:, None] >= at
        if layer in self.sliding and self.window is not None:
            causal &= at[:, None] - at < self.window
        mask = torch.cat([causal, *[torch.eye(len(at), dtype=torch.bool)] * (len(held) - 1)], dim=-1)
        keys, values = (torch.cat(parts, dim=2) for parts in zip(*held, strict=True))
        groups = query.shape[1] // keys.shape[1]
        keys, values = (one.repeat_interleave(groups, dim=1) for one in (keys, values))
        scores = query @ keys.transpose(2, 3) * query.shape[-1] ** -0.5
        found: torch.Tensor = scores.masked_fill(~mask, -torch.inf).softmax(-1) @ values
        return found


@torch.no_grad()
def logits_of(name: str, folder: Path, first: int = 1) -> torch.Tensor:
    """The steps of a case; the other implementation counts positions from 1."""
    write(name, folder)
    config, network = read_eagle(folder, target())
    attend: Attend = Unrolled(config.sliding_window, config.sliding_layers)
    ids = TENSORS["ids"][None]
    hidden = network.fuse(TENSORS[f"features.{CASES[name]['features']}"])
    found = []
    for step in range(STEPS):
        tokens = torch.cat([ids[:, step:], torch.zeros(1, step, dtype=torch.long)], dim=1)
        assert network.embed_tokens is not None
        positions = first + step + torch.arange(ids.shape[1])[None]
        hidden, for_logits = network(network.embed_tokens(tokens), hidden, positions, attend)
        logits = network.logits(for_logits)
        assert logits is not None
        found.append(logits[0])
    return torch.stack(found)


@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_the_other_implementation(name: str, tmp_path: Path) -> None:
    expected = TENSORS[f"logits.{name}"]
    found = logits_of(name, tmp_path)
    assert found.shape == expected.shape
    assert (found - expected).abs().max() < LIMIT
    assert expected.std() > 0.1


def test_every_variant_makes_a_difference() -> None:
    """Else a head could be read without one of them, and no case above would tell."""
    plain = "llama-2-plain-residual0-output0-reduced0"
    others = ["residual1", "output1", "norm_before_fc", "fc_norm", "qwen3"]
    names = [plain.replace("residual0", "residual1"), plain.replace("output0", "output1")]
    names += [plain.replace("plain", others[2]), plain.replace("plain", others[3]), plain.replace("llama", "qwen3")]
    for name in names:
        assert (TENSORS[f"logits.{name}"] - TENSORS[f"logits.{plain}"]).abs().max() > 0.1, name


def test_only_distances_between_positions_count(tmp_path: Path) -> None:
    """Up to the rounding of angles, which are float32 in both implementations."""
    name = "llama-1-plain-residual0-output0-reduced1"
    assert (logits_of(name, tmp_path, first=0) - TENSORS[f"logits.{name}"]).abs().max() < 1e-5
