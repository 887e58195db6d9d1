"""A machine whose forwards take what a test says, and no time passes otherwise."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from outrider import Target
from outrider.compare.result import Settings
from outrider.prompt_file import NamedPrompt
from outrider.tune.result import Tuned
from outrider.tune.settings import Space
from outrider.tune.tuning import Tuning
from support import tiny_target

PROMPTS = (NamedPrompt("story", "once upon a time"), NamedPrompt("copy", "abc abc abc abc abc"))
Cost = Callable[[int, int], float]
"""Seconds of a forward by its texts and the tokens of each."""


def flat(texts: int, rows: int) -> float:
    """Every forward takes the same."""
    return 0.05


def linear(texts: int, rows: int) -> float:
    """Every token takes as long as the first."""
    return 0.01 * texts * rows


def rising(texts: int, rows: int) -> float:
    """A forward has a price, and every token a small one."""
    return 0.02 + 0.002 * texts * rows


class Clocked(Target):
    """A target on a clock."""

    def __init__(self, target: Target, cost: Cost) -> None:
        super().__init__(target.model, target.tokenizer)
        self.cost, self.now = cost, 0.0

    def forward(self, cache: Any, roots: Any, batch: Any) -> Any:
        self.now += self.cost(len(roots), 1 + batch.width)
        return super().forward(cache, roots, batch)


def clocked(monkeypatch: pytest.MonkeyPatch, cost: Cost, spread: float = 0.1) -> Clocked:
    """A tiny target on such a machine."""
    target = Clocked(tiny_target(spread=spread), cost)
    for place in ("outrider.decode.stats", "outrider.decode.work", "outrider.compare.machine"):
        monkeypatch.setattr(f"{place}.perf_counter", lambda: target.now)
    return target


def settings(**changed: Any) -> Settings:
    """Greedy, 24 tokens."""
    made: dict[str, Any] = {"generation": {"max_new_tokens": 24, "temperature": 0.0}, "repeats": 1, "adaptive": False}
    made |= {"model": "tiny", "dtype": "float64", "device": "cpu", "sampled": False, "seed": 1}
    return Settings(**(made | changed))


def tuned(
    target: Target,
    words: Sequence[Any],
    changed: Any = None,
    rules: Sequence[str] = ("match",),
    prompts: Sequence[NamedPrompt] = PROMPTS,
    **more: Any,
) -> Tuned:
    """Tune drafters, with time enough."""
    spaces = [Space.of(word) for word in words]
    return Tuning(target, spaces, rules, prompts, settings(**(changed or {})), 600.0, **more).run()
