"""Tiny random targets for checks: real models, fast on a CPU."""

from functools import lru_cache
from typing import Any, Final

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from outrider.target.load import load
from outrider.target.model import Target

VOCABULARY: Final = 64
VARIED: Final = 0.3
REPETITIVE: Final = 0.1
"""Initialiser ranges: varied text, and text that soon repeats itself, so that drafters find something to copy."""


@lru_cache(maxsize=16)
def tiny_target(seed: int = 0, spread: float = VARIED) -> Target:
    """Return a random two-layer Llama in float64, where greedy text is far from ties."""
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=spread,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model: Any = LlamaForCausalLM(config)
    return load(model.double().eval())


def prompt(length: int, seed: int = 0) -> list[int]:
    """Return random ids."""
    ids: list[int] = torch.randint(0, VOCABULARY, (length,), generator=torch.Generator().manual_seed(seed)).tolist()
    return ids


@torch.no_grad()
def plain_text(target: Target, ids: list[int], count: int) -> list[int]:
    """Decode greedily, one token a forward and without a cache: the reference, which shares no code with the loop."""
    model: Any = target.model
    new: list[int] = []
    for _ in range(count):
        logits = model(torch.tensor([[*ids, *new]])).logits[0, -1]
        new.append(int(logits.float().argmax()))
    return new
