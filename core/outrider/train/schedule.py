"""The learning rate over a training: linear warm-up, then half a cosine (Loshchilov and Hutter 2017, arXiv:1608.03983)."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Schedule:
    """A learning rate by step.

    Args:
        peak: highest rate.
        steps: of the whole training.
        warmup: share of the steps in which it rises.
        floor: share of the peak at the end.
    """

    peak: float
    steps: int
    warmup: float = 0.04
    floor: float = 0.05

    def rate(self, step: int) -> float:
        """Return the rate of a step, counted from 0."""
        rising = max(1, round(self.warmup * self.steps))
        if step < rising:
            return self.peak * (step + 1) / rising
        done = min(1.0, (step - rising) / max(1, self.steps - rising))
        return self.peak * (self.floor + (1 - self.floor) * (1 + math.cos(math.pi * done)) / 2)
