"""What verifying costs outside the model: sampling a draft against processing its emitted tokens alone."""

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any, Final

import torch
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopPLogitsWarper

from outrider.draft.tree import DraftTree
from outrider.verify.decisions import Keyed
from outrider.verify.sampling import Sampler

VOCABULARY: Final = 49_152
DRAFT: Final = 8


def sampling_overhead(rounds: int = 30) -> tuple[float, float, float]:
    """Measure verifying a draft of which every token is accepted, at temperature 0.7 and top-p 0.9.

    Returns:
        Medians of: milliseconds to verify; that over processing and drawing the emitted tokens alone with the same
        processors; that over doing so with transformers' own.
    """
    own: Any = LogitsProcessorList([TemperatureLogitsWarper(0.7), TopPLogitsWarper(0.9)])
    sampler = Sampler.of(own, Keyed(1))
    logits = 4 * torch.randn(DRAFT + 1, VOCABULARY, generator=torch.Generator().manual_seed(0))
    ids = list(range(300))
    accepted = [_draw(sampler.processors, logits[row : row + 1], len(ids) + row) for row in range(DRAFT)]
    tree = DraftTree.chain(accepted)

    def verify() -> None:
        sampler.verify(sampler.scores(logits, tree, ids), len(ids))

    def alone() -> None:
        for row in range(DRAFT + 1):
            _draw(sampler.processors, logits[row : row + 1], len(ids) + row)

    def transformers_alone() -> None:
        for row in range(DRAFT + 1):
            _draw(own, logits[row : row + 1], len(ids) + row)

    times = [_in_turn((verify, alone, transformers_alone), number) for number in range(rounds + 3)][3:]
    return (
        1000 * median(row[0] for row in times),
        median(row[0] / row[1] for row in times),
        median(row[0] / row[2] for row in times),
    )


def _in_turn(calls: Sequence[Callable[[], None]], first: int) -> list[float]:
    """Time calls, beginning with another one every time, since each leaves the caches to the next."""
    times = [0.0] * len(calls)
    for place in range(len(calls)):
        index = (first + place) % len(calls)
        calls[index]()  # not timed: the caches are its own then
        start = perf_counter()
        calls[index]()
        times[index] = perf_counter() - start
    return times


def _draw(processors: Callable[[Any, Any], torch.Tensor], logits: torch.Tensor, position: int) -> int:
    scores = processors(torch.tensor([[0]]), logits.to(torch.float32, copy=True))[0]
    return int(Keyed(1).target(scores, position))
