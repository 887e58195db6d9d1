"""What tree masks and ragged batches cost: a forward under them against the same forward without."""

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Final

import torch

from outrider.draft.batch import TreeBatch
from outrider.draft.tree import DraftTree
from outrider.errors import InputError
from outrider.target.masked import MaskedTier
from outrider.target.model import Target
from outrider.target.tier import Opening

CONTEXT: Final = 256
NODES: Final = 24
ROWS: Final = 8
_ROW_NODES: Final = 8
_STEP: Final = 12


def tree_mask_cost(target: Target, rounds: int = 15) -> float:
    """Return the median cost of verifying a tree of 24 nodes behind 256 tokens, over a causal forward of as many tokens."""
    tier = _masked(target)
    ids = _ids(target, CONTEXT + 1 + NODES)
    tree = DraftTree(tuple(ids[-NODES:]), tuple((node - 1) // 2 if node else -1 for node in range(NODES)))
    chain = torch.tensor([ids[CONTEXT:]], device=target.info.device)
    caches = [target.open(1, Opening(2 * CONTEXT)) for _ in range(2)]
    for cache in caches:
        target.prefill(cache, [ids[:CONTEXT]])
    positions = torch.arange(CONTEXT, CONTEXT + 1 + NODES, device=target.info.device)[None]
    batch = TreeBatch.pack([tree])

    def verify() -> None:
        target.forward(caches[0], [ids[CONTEXT]], batch)
        tier.rollback(caches[0], NODES)

    def causal() -> None:
        tier.caller(caches[1].layers, chain, positions)
        caches[1].append(positions)
        tier.rollback(caches[1], NODES)

    return _ratio(verify, causal, rounds, target.info.device)


def ragged_batch_cost(target: Target, rounds: int = 9) -> float:
    """Return the median cost of a step of 8 rows of different lengths, over a causal forward of as many equal rows."""
    tier = _masked(target)
    ids = _ids(target, CONTEXT)
    prompts = [ids[: CONTEXT - _STEP * row] for row in range(ROWS)]
    ragged, padded = (target.open(ROWS, Opening(2 * CONTEXT)) for _ in range(2))
    target.prefill(ragged, prompts)
    target.prefill(padded, [ids] * ROWS)
    tree = DraftTree(tuple(ids[:_ROW_NODES]), tuple((node - 1) // 2 if node else -1 for node in range(_ROW_NODES)))
    batch = TreeBatch.pack([tree] * ROWS)
    chain = torch.tensor([ids[: 1 + _ROW_NODES]] * ROWS, device=target.info.device)
    positions = torch.arange(CONTEXT, CONTEXT + 1 + _ROW_NODES, device=target.info.device).expand_as(chain)

    def step() -> None:
        target.forward(ragged, ids[:ROWS], batch)
        tier.rollback(ragged, _ROW_NODES)

    def causal() -> None:
        tier.caller(padded.layers, chain, positions)
        padded.append(positions)
        tier.rollback(padded, _ROW_NODES)

    return _ratio(step, causal, rounds, target.info.device)


def _masked(target: Target) -> MaskedTier:
    if not isinstance(target.tier, MaskedTier):
        raise InputError(f"the model is served in the tier {target.tier.name}, which builds no masks")
    return target.tier


def _ids(target: Target, count: int) -> list[int]:
    generator = torch.Generator().manual_seed(0)
    ids: list[int] = torch.randint(0, target.info.vocab_size, (count,), generator=generator).tolist()
    return ids


def _ratio(one: Callable[[], None], other: Callable[[], None], rounds: int, device: torch.device) -> float:
    """Time two calls in turn and return the median of their ratios."""
    found = []
    for number in range(rounds + 2):
        pair = (one, other) if number % 2 else (other, one)
        times = {call: _seconds(call, device) for call in pair}
        found.append(times[one] / times[other])
    return median(found[2:])


def _seconds(call: Callable[[], None], device: torch.device) -> float:
    start = perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return perf_counter() - start
