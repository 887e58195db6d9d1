"""Adaptive decoding against plain decoding and against fixed lengths, in interleaved pairs."""

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import torch
from transformers import AutoModelForCausalLM

from outrider.compare import contestants
from outrider.compare.figures import Interval, median_interval
from outrider.compare.prompts import BUILTIN, WARM_UP
from outrider.compare.runner import Contestant, Run, print_run, run
from outrider.plugins.words import make_drafter
from outrider.prompt_file import NamedPrompt
from outrider.target.model import Target

_STORY, _CODE_EDIT, _QUOTE = BUILTIN
HALF_REPEATING: Final = (
    _STORY,
    _CODE_EDIT,
    NamedPrompt("letter", "Write a letter to a friend about your first week in a new city."),
    _QUOTE,
)
_FIXED: Final = (2, 4, 8, 16, 31)
_LAYERS: Final = 2
_SEED: Final = 0


def adaptive(
    target: Target, *, rounds: int = 15, max_new_tokens: int = 512, record: Path | None = None
) -> tuple[list[str], bool]:
    """Measure; returns a line a figure, and whether all of them are within their bounds.

    Args:
        target: the model.
        rounds: interleaved pairs of each comparison.
        max_new_tokens: length of every text; none ends before.
        record: folder for the runs, so that an interrupted benchmark goes on where it stopped.
    """
    options = {"max_new_tokens": max_new_tokens, "min_new_tokens": max_new_tokens, "do_sample": False}
    plain = contestants.with_drafter(target, "none", options)
    hopeless = make_drafter("draft-model", {"model": random_model(target)}, target.info)
    settings = {"dtype": str(target.info.dtype), "options": options}

    def measure(name: str, chosen: Mapping[str, Contestant], prompts: Sequence[NamedPrompt]) -> list[Run]:
        for one in chosen.values():
            one(WARM_UP)
        file = record / f"adaptive-{name}.jsonl" if record else None
        return run(chosen, prompts, rounds, settings, file, print_run)

    lines, good = list[str](), True
    for name, drafter, prompts in (
        ("a draft model of random weights", hopeless, (_STORY,)),
        ("ngram, half of the prompts repeat themselves", "ngram", HALF_REPEATING),
    ):
        chosen = {"plain": plain, "adaptive": contestants.with_drafter(target, drafter, options)}
        runs = measure(name.partition(" ")[0].strip(","), chosen, prompts)
        clock, accounted = over_plain(runs), accounted_over_plain(runs)
        good = good and clock.median <= 1.05 and accounted.median <= 1.03
        lines.append(
            f"{name}: time over plain by the clock {clock}, by the accounts {accounted}; at most 1.05 and 1.03"
        )
    fixed = {
        f"fixed {length}": contestants.with_drafter(
            target, {"name": "ngram", "options": {"draft_tokens": length}}, options | {"adaptive": False}
        )
        for length in _FIXED
    }
    runs = measure("lengths", fixed | {"adaptive": contestants.with_drafter(target, "ngram", options)}, (_CODE_EDIT,))
    best = min(fixed, key=lambda name: median(_by_round(runs, name, _seconds)))
    ratio = _against(runs, best)
    lines.append(f"ngram on a code edit: time over that of the best fixed length ({best}) {ratio}; at most 1.05")
    return lines, good and ratio.median <= 1.05


def random_model(target: Target) -> Any:
    """Return a model of the target's kind with random weights and few layers: it knows nothing."""
    config = copy.deepcopy(target.model.config)
    config.num_hidden_layers = _LAYERS
    with torch.random.fork_rng():
        torch.manual_seed(_SEED)
        model: Any = AutoModelForCausalLM.from_config(config)
    return model.to(target.info.device, target.info.dtype).eval()


def over_plain(runs: Sequence[Run]) -> Interval:
    """Return the time of all prompts together over plain decoding's, round by round."""
    return _against(runs, "plain")


def accounted_over_plain(runs: Sequence[Run]) -> Interval:
    """Return the same by the accounts of adaptive decoding, over the steps: what plain decoding takes is a step a token."""
    tokens = _by_round(runs, "adaptive", lambda one: one.stats["num_tokens"] - 1)
    won = _by_round(runs, "adaptive", lambda one: one.stats["plain_steps_won"])
    return median_interval([1 - gain / count for gain, count in zip(won, tokens, strict=True)])


def _against(runs: Sequence[Run], baseline: str) -> Interval:
    mine, others = (_by_round(runs, name, _seconds) for name in ("adaptive", baseline))
    return median_interval([one / other for one, other in zip(mine, others, strict=True)])


def _by_round(runs: Sequence[Run], contestant: str, value: Callable[[Run], float]) -> list[float]:
    """Sum a value over the prompts of every round."""
    found: dict[int, float] = {}
    for one in runs:
        if one.contestant == contestant:
            found[one.round] = found.get(one.round, 0.0) + value(one)
    return [found[number] for number in sorted(found)]


def _seconds(one: Run) -> float:
    return one.seconds
