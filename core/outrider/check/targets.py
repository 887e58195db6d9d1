"""Tiny random targets for checks: real models, fast on a CPU."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Final

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from outrider.target.load import load
from outrider.target.model import Target

VOCABULARY: Final = 64
FEW: Final = 5
"""So few ids that all draws can be enumerated; with fewer a target can't be probed."""
VARIED: Final = 0.3
REPETITIVE: Final = 0.1
"""Initialiser ranges: varied text, and text that soon repeats itself, so that drafters find something to copy."""


_SHIFT: Final[ContextVar[int]] = ContextVar("_SHIFT", default=0)


@contextmanager
def other_inputs(seed: int) -> Iterator[None]:
    """Let checks run on other random targets and texts than by default."""
    before = _SHIFT.set(1000 * seed)
    try:
        yield
    finally:
        _SHIFT.reset(before)


def tiny_target(seed: int = 0, spread: float = VARIED, vocabulary: int = VOCABULARY) -> Target:
    """Return a random two-layer Llama in float64, where greedy text is far from ties."""
    return _tiny_target(seed + _SHIFT.get(), spread, vocabulary)


@lru_cache(maxsize=32)
def _tiny_target(seed: int, spread: float, vocabulary: int) -> Target:
    config = LlamaConfig(
        vocab_size=vocabulary,
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


def prompt(length: int, seed: int = 0, vocabulary: int = VOCABULARY) -> list[int]:
    """Return random ids."""
    generator = torch.Generator().manual_seed(seed + _SHIFT.get())
    ids: list[int] = torch.randint(0, vocabulary, (length,), generator=generator).tolist()
    return ids


def plain_text(target: Target, ids: Sequence[int], count: int) -> list[int]:
    """Decode greedily, one token a forward and without a cache: the reference, which shares no code with the loop."""
    return list(_plain_text(target, tuple(ids), count))


@lru_cache(maxsize=1024)
@torch.no_grad()
def _plain_text(target: Target, ids: tuple[int, ...], count: int) -> tuple[int, ...]:
    model: Any = target.model
    new: list[int] = []
    for _ in range(count):
        logits = model(torch.tensor([[*ids, *new]])).logits[0, -1]
        new.append(int(logits.float().argmax()))
    return tuple(new)
