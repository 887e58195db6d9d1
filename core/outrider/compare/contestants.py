"""What can be compared: outrider with a drafter, and transformers' own `generate`."""

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import torch

from outrider.compare.runner import Contestant, Outcome
from outrider.generation import generate
from outrider.plugins.words import DrafterWord
from outrider.prompt import encode
from outrider.prompt_file import NamedPrompt
from outrider.target.model import Target


def with_drafter(target: Target, drafter: DrafterWord, options: Mapping[str, Any]) -> Contestant:
    """Return outrider with a drafter."""

    def contestant(prompt: NamedPrompt) -> Outcome:
        start = perf_counter()
        result = generate(target, encode(target, prompt.text), drafter, **options)
        return result.token_ids, perf_counter() - start, result.stats.as_dict()

    return contestant


def with_transformers(target: Target, options: Mapping[str, Any]) -> Contestant:
    """Return `model.generate` of the untouched model."""

    def contestant(prompt: NamedPrompt) -> Outcome:
        start = perf_counter()
        ids = torch.tensor([encode(target, prompt.text)], device=target.info.device)
        model: Any = target.model
        output = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
        new: list[int] = output[0, ids.shape[1] :].tolist()
        return new, perf_counter() - start, {"num_tokens": len(new)}

    return contestant
