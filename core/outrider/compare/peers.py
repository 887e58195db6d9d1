"""Prompt lookup of other packages, where they are installed: contestants for the benchmark, never needed by outrider."""

from copy import deepcopy
from importlib import import_module
from time import perf_counter
from typing import Any

import torch

from outrider.compare.runner import Contestant, Outcome
from outrider.prompt import encode
from outrider.prompt_file import NamedPrompt
from outrider.target.model import Target


def with_economize(target: Target, draft_tokens: int, max_new_tokens: int) -> Contestant:
    """Return economize's lookup on a copy of the model, greedy.

    Raises:
        ImportError: it is not installed.
    """
    economize, lookup = import_module("economize"), import_module("economize.techniques.lookup")
    model: Any = economize.apply(deepcopy(target.model), lookup.LookupConfig())
    decoding = economize.DecodeConfig(cycle_length=draft_tokens + 1)

    def contestant(prompt: NamedPrompt) -> Outcome:
        start = perf_counter()
        ids = torch.tensor(encode(target, prompt.text), device=target.info.device)
        result = model.decode(ids, max_new_tokens, decoding=decoding)
        return _outcome(result.tokens.tolist(), start)

    return contestant


def with_flashspec(target: Target, draft_tokens: int, max_new_tokens: int) -> Contestant:
    """Return flashspec's n-gram drafter alone on a copy of the model, greedy.

    Raises:
        ImportError: it is not installed.
    """
    flashspec, parts = import_module("flashspec"), import_module("flashspec.engine")
    where, dtype = target.info.device, target.info.dtype
    # A bandit of one arm is that drafter alone.
    config = flashspec.FlashSpecConfig(
        device=where.type,
        compile=False,
        drafter_strategy="bandit",
        bandit=flashspec.BanditConfig(n_arms=1),
        sampling=flashspec.SamplingConfig(gamma=draft_tokens, temperature=0.0, seed=0),
    )
    model = parts.TargetModel("target", where, dtype, model=deepcopy(target.model))
    engine = flashspec.SpeculativeEngine(config, [parts.NgramDrafter()], model)

    def contestant(prompt: NamedPrompt) -> Outcome:
        start = perf_counter()
        ids = torch.tensor([encode(target, prompt.text)], device=where)
        result = engine.generate(ids, max_new_tokens=max_new_tokens)
        return _outcome(result.output_ids[0, : result.n_tokens_generated].tolist(), start)

    return contestant


def _outcome(new: list[int], start: float) -> Outcome:
    return new, perf_counter() - start, {"num_tokens": len(new)}
