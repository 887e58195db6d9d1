"""The order of training: texts of like length together, shuffled by a seed."""

import random
from collections.abc import Iterator, Sequence

import torch

from outrider.draft.training import TrainBatch
from outrider.train.examples import Example
from outrider.train.states import States
from outrider.verify.noise import derive

_WINDOW = 256
"""Texts that are sorted by length together: more would put like with like, fewer would pad more."""


def plan(examples: Sequence[Example], tokens: int, seed: int, epoch: int) -> list[list[int]]:
    """Return the batches of an epoch, as indices of examples.

    Args:
        examples: that are gone through once.
        tokens: most of a batch, padding included; a longer text is a batch of its own.
        seed: of the order.
        epoch: which one.
    """
    luck = random.Random(derive(seed, epoch))
    order = list(range(len(examples)))
    luck.shuffle(order)
    batches: list[list[int]] = []
    for first in range(0, len(order), _WINDOW):
        window = sorted(order[first : first + _WINDOW], key=lambda index: len(examples[index].ids))
        batches += _packed(window, examples, tokens)
    luck.shuffle(batches)
    return batches


def _packed(order: Sequence[int], examples: Sequence[Example], tokens: int) -> Iterator[list[int]]:
    """Yield runs of an order, rising in length, that fit into a number of tokens."""
    batch: list[int] = []
    for index in order:
        if batch and (len(batch) + 1) * len(examples[index].ids) > tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def load_batch(examples: Sequence[Example], states: States, chosen: Sequence[int], device: torch.device) -> TrainBatch:
    """Put examples and the target's states on them together, padded on the right."""
    longest = max(len(examples[index].ids) for index in chosen)
    ids = torch.zeros(len(chosen), longest, dtype=torch.long)
    answers = torch.zeros(len(chosen), longest, dtype=torch.bool)
    for row, index in enumerate(chosen):
        own = examples[index]
        ids[row, : len(own.ids)] = torch.tensor(own.ids)
        answers[row, : len(own.ids)] = torch.tensor(own.answers)
    ids = ids.to(device)
    return TrainBatch(ids, answers.to(device), states.of(chosen, ids))
