"""Every line that depends on the transformers version: names of arguments, and what `generate` makes of its options."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    StoppingCriteriaList,
    StopStringCriteria,
)

CACHE_NAMES = ("cache", "past_key_values")


@dataclass(frozen=True, slots=True)
class ForwardNames:
    """How this model's `forward` spells what the verifier passes.

    Args:
        cache: the name of the cache argument, or None where there is none.
        positions: whether `position_ids` is taken.
        logits_to_keep: whether logits can be limited to the last rows.
    """

    cache: str | None
    positions: bool
    logits_to_keep: bool

    @classmethod
    def of(cls, model: PreTrainedModel) -> "ForwardNames":
        """Read the names off the signature of `model.forward`."""
        known = inspect.signature(model.forward).parameters
        return cls(
            cache=next((name for name in CACHE_NAMES if name in known), None),
            positions="position_ids" in known,
            logits_to_keep="logits_to_keep" in known,
        )


@dataclass(frozen=True, slots=True)
class Prepared:
    """What `generate` itself makes of a prompt and its options."""

    config: GenerationConfig
    processors: LogitsProcessorList
    criteria: StoppingCriteriaList


def prepare(model: PreTrainedModel, ids: torch.Tensor, options: Mapping[str, Any]) -> Prepared:
    """Let the model's own `generate` read the options, and stop it before it decodes.

    The documented seam `custom_generate` hands over the generation config with every default filled in, the logits
    processors and the stopping criteria, so they are those of plain decoding by construction.

    Args:
        model: the target.
        ids: `[1, length]` prompt.
        options: any argument of `generate`.
    """

    def capture(
        model: Any,  # noqa: ARG001  generate passes all of these by name
        input_ids: torch.Tensor,  # noqa: ARG001
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        **rest: Any,  # noqa: ARG001
    ) -> Prepared:
        return Prepared(generation_config, logits_processor, stopping_criteria)

    mask = torch.ones_like(ids)
    options = {"cache_implementation": "dynamic", "use_cache": True} | dict(options)  # the cache is this decoder's own
    generate: Any = model.generate
    prepared: Prepared = generate(ids, attention_mask=mask, custom_generate=capture, **options)
    return prepared


@dataclass(frozen=True, slots=True)
class RopeSwitch:
    """Where a model changes its rotary frequencies because the context has grown.

    Args:
        kind: `dynamic` or `longrope`.
        length: longest context before the change.
    """

    kind: str
    length: int

    @classmethod
    def of(cls, config: Any) -> "RopeSwitch | None":
        """Read it off a model's text config; None where there is none."""
        rope = getattr(config, "rope_parameters", None) or {}
        kinds = [
            rope,
            *[value for value in rope.values() if isinstance(value, dict)],
        ]  # one for all layers, or by layer type
        found = [
            cls(kind["rope_type"], kind.get("original_max_position_embeddings") or config.max_position_embeddings)
            for kind in kinds
            if kind.get("rope_type") in ("dynamic", "longrope")
        ]
        return min(found, key=lambda one: one.length, default=None)


def eos_ids(config: GenerationConfig) -> frozenset[int]:
    """Return the ids that end a text, from an int, a list, a tensor or nothing."""
    ids = config.eos_token_id
    if ids is None:
        return frozenset()
    return frozenset(torch.as_tensor(ids).flatten().tolist())


def with_stop_strings(prepared: Prepared, stop_strings: str | list[str] | None, tokenizer: Any) -> StoppingCriteriaList:
    """Return the criteria with transformers' own test for stop strings, which the seam above can't pass a tokenizer to.

    Raises:
        ValueError: there are stop strings but no tokenizer, or they are not strings.
    """
    if stop_strings is None:
        return prepared.criteria
    strings = [stop_strings] if isinstance(stop_strings, str) else list(stop_strings)
    if not strings or not all(isinstance(string, str) and string for string in strings):
        raise ValueError(f"stop_strings = {stop_strings!r}: must be one or more strings that are not empty")
    if tokenizer is None:
        raise ValueError("stop_strings need a tokenizer, and the model was loaded without one")
    return StoppingCriteriaList([*prepared.criteria, StopStringCriteria(tokenizer, strings)])
