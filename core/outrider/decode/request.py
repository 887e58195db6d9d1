"""What one call asks for: a prompt as ids, how to draw and where to stop, read from the options of `generate`."""

import copy
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    SynthIDTextWatermarkLogitsProcessor,
    UnbatchedClassifierFreeGuidanceLogitsProcessor,
)

from outrider.decode.evidence import EVIDENCE
from outrider.decode.stopping import Stopping
from outrider.draft.cost import Costs, check_adaptive
from outrider.errors import InputError, first_line, suggestion
from outrider.target import compat
from outrider.target.model import PREFILL_CHUNK, Target
from outrider.verify.decisions import Keyed
from outrider.verify.rules import check_rule
from outrider.verify.sampling import Sampler

DEFAULT_NEW_TOKENS: Final = 256
_OBJECTS: Final = ("generation_config", "logits_processor", "stopping_criteria", "prefix_allowed_tokens_fn")
_FILTERS: Final = ("top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff")

# Options of `generate` that this decoder can't honour, with the values that ask for nothing.
_REFUSED: Final[dict[str, tuple[Any, ...]]] = {
    "num_beams": (None, 1),
    "num_return_sequences": (None, 1),
    "prompt_lookup_num_tokens": (None,),
    "assistant_early_exit": (None,),
    "use_mtp": (None, False),
    "assistant_ensemble_weight": (None,),
    "penalty_alpha": (None,),
    "dola_layers": (None,),
    "constraints": (None,),
    "force_words_ids": (None,),
    "token_healing": (None, False),
    "return_dict_in_generate": (None, False),
    "output_attentions": (None, False),
    "output_hidden_states": (None, False),
}
_STATEFUL: Final = (UnbatchedClassifierFreeGuidanceLogitsProcessor, SynthIDTextWatermarkLogitsProcessor)


@dataclass(frozen=True, slots=True)
class Request:
    """One row to decode.

    Args:
        ids: the prompt.
        sampler: how the target draws.
        stopping: where the text ends.
        seed: of the row; drawn where none was given.
        evidence: which of `EVIDENCE` to keep for every token.
        source: what an encoder-decoder's encoder reads; `ids` are then those that its text begins with.
        context: further arguments of the model's forward, such as an encoder's output.
        chunk: most ids of the prompt in one forward.
        static: the cache's addresses and shapes stay.
        adaptive: whether drafts follow what they cost and bring; by given costs, or by measured ones.
    """

    ids: tuple[int, ...]
    sampler: Sampler
    stopping: Stopping
    seed: int
    evidence: frozenset[str] = frozenset()
    source: tuple[int, ...] = ()
    context: Mapping[str, Any] = field(default_factory=dict)
    chunk: int = PREFILL_CHUNK
    static: bool = False
    adaptive: bool | Costs = True


def read_request(target: Target, ids: Sequence[int], options: Mapping[str, Any]) -> Request:
    """Read the options as `generate` of the untouched model does.

    `temperature=0` means greedy, and a temperature or a filter without `do_sample` means sampling. Without a length there
    are at most `DEFAULT_NEW_TOKENS` new tokens.

    Raises:
        InputError: an unknown option, a bad value, or one that can't be honoured.
    """
    check_options(options)
    _check_ids(target, ids)
    chosen = dict(options)
    seed = target.ranks.decided(lambda: read_seed(chosen))
    chosen.pop("seed", None)
    rule = chosen.pop("rule", None) or "match"
    adaptive = chosen.pop("adaptive", None)
    _settle_length(target, chosen)
    evidence = frozenset(name for name in EVIDENCE if chosen.pop(name, False))
    _settle_temperature(chosen)
    static = chosen.pop("cache_implementation", None) == "static"
    prompt = torch.tensor([[*ids]], device=target.info.device)
    stop_strings = _take_stop_strings(target, chosen)
    if target.model.generation_config is not None and target.model.generation_config.pad_token_id is None:
        chosen.setdefault("pad_token_id", next(iter(target.info.eos_ids), None))
    try:
        prepared = compat.prepare(target.model, prompt, chosen)
        criteria = compat.with_stop_strings(prepared, stop_strings, target.tokenizer)
    except Exception as error:  # transformers raises many kinds for wrong values
        raise InputError(f"generation options: {first_line(error)}") from error
    config = prepared.config
    check_honoured(config, prepared.processors)
    check_rope(target, len(prepared.ids), int(config.max_length or 0))
    return Request(
        ids=prepared.ids,
        sampler=Sampler.of(prepared.processors, Keyed(seed) if config.do_sample else None, rule),
        stopping=Stopping.of(criteria, compat.eos_ids(config), int(config.max_length or 0), target.info.device),
        seed=seed,
        evidence=evidence,
        source=tuple(ids) if target.model.config.is_encoder_decoder else (),
        context=prepared.context,
        chunk=chunk_of(target, len(prepared.ids), config),
        static=static,
        adaptive=True if adaptive is None else adaptive,
    )


def read_seed(options: Mapping[str, Any]) -> int:
    """Return the seed that the options name, or draw one.

    Raises:
        InputError: it is none.
    """
    seed = options.get("seed")
    if seed is None:
        return secrets.randbelow(2**32)
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise InputError(f"seed = {seed!r}: must be a whole number from 0 to 2**63 - 1")
    return seed


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse what is wrong whatever the model.

    Raises:
        InputError: an unknown option or a bad value.
    """
    _check_names(options)
    new = options.get("max_new_tokens")
    if options.get("seed") is not None:
        read_seed(options)
    if new is not None and (isinstance(new, bool) or not isinstance(new, int) or new < 1):
        raise InputError(f"max_new_tokens = {new!r}: must be a whole number, 1 or more")
    if options.get("rule") is not None:
        check_rule(options["rule"])
    if options.get("adaptive") is not None:
        check_adaptive(options["adaptive"])
    _check_kinds(options)
    _check_filters(options)


def _check_ids(target: Target, ids: Sequence[int]) -> None:
    if not ids:
        raise InputError("the prompt is empty: give at least one token")
    vocab = target.info.vocab_size
    wrong = next((token for token in ids if not 0 <= token < vocab), None)
    if wrong is not None:
        raise InputError(f"the prompt holds token id {wrong}, but the model's ids run from 0 to {vocab - 1}")


def _check_names(options: Mapping[str, Any]) -> None:
    known = [
        *(name for name in vars(GenerationConfig()) if not name.startswith("_")),
        *_OBJECTS,
        *EVIDENCE,
        "seed",
        "rule",
        "adaptive",
    ]
    for name in options:
        if name not in known:
            raise InputError(
                f"unknown generation option '{name}'.{suggestion(name, known)} "
                f"Options are those of transformers' GenerationConfig, seed, rule and adaptive."
            )


def _settle_length(target: Target, options: dict[str, Any]) -> None:
    new = options.get("max_new_tokens")
    configs = [target.model.generation_config, options.get("generation_config")]
    lengths = [getattr(config, name, None) for config in configs for name in ("max_new_tokens", "max_length")]
    if new is None and options.get("max_length") is None and not any(lengths):
        options["max_new_tokens"] = DEFAULT_NEW_TOKENS


def _check_kinds(options: Mapping[str, Any]) -> None:
    """Refuse what `generate` would take for something else, and a cache of the caller's choice, which would be ignored."""
    do_sample = options.get("do_sample")
    if do_sample is not None and not isinstance(do_sample, bool):
        raise InputError(f"do_sample = {do_sample!r}: must be True or False")
    for name in ("cache_implementation", "cache_config", "use_cache"):
        served = ("dynamic", "static") if name == "cache_implementation" else (True,)
        if options.get(name) not in (None, *served):
            raise InputError(f"generation option {name} = {options[name]!r} is not served; leave it out")


def _check_filters(options: Mapping[str, Any]) -> None:
    """Refuse values outside a filter's range, which `generate` reads as no filter at all."""
    heat = options.get("temperature")
    if heat is not None and (
        isinstance(heat, bool) or not isinstance(heat, int | float) or not 0 <= heat < float("inf")
    ):
        raise InputError(f"temperature = {heat!r}: must be 0 (greedy) or a positive number")
    top_k = options.get("top_k")
    if top_k is not None and (isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 0):
        raise InputError(f"top_k = {top_k!r}: must be a whole number, 0 for no limit")
    for name in ("top_p", "min_p", "typical_p"):
        share = options.get(name)
        if share is not None and (isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1):
            raise InputError(f"{name} = {share!r}: must be a number from 0 to 1")


def _settle_temperature(options: dict[str, Any]) -> None:
    """Read temperature 0 as greedy, and a temperature or a filter without `do_sample` as sampling."""
    temperature = options.get("temperature")
    if temperature is not None:
        if temperature == 0:
            del options["temperature"]
            options["do_sample"] = False
            for name in _FILTERS:  # they never remove the likeliest token, so greedy decoding needs none
                options.pop(name, None)
            return
        options["temperature"] = float(temperature)
    if any(options.get(name) is not None for name in ("temperature", *_FILTERS)):
        options.setdefault("do_sample", True)


def _take_stop_strings(target: Target, options: dict[str, Any]) -> Any:
    """Take stop strings out of the options and out of a passed generation config, which stays as it is."""
    given = options.pop("stop_strings", None)
    passed: Any = options.get("generation_config")
    if getattr(passed, "stop_strings", None) is not None:
        given = passed.stop_strings if given is None else given
        options["generation_config"] = copy.copy(passed)
        options["generation_config"].stop_strings = None
    if getattr(target.model.generation_config, "stop_strings", None) is not None:
        raise InputError("the model's generation config has stop_strings; take them out there and pass stop_strings=")
    return given


def chunk_of(target: Target, length: int, config: GenerationConfig) -> int:
    """Return the longest chunk of a prompt; where frequencies depend on its length it is read at once."""
    switch = compat.RopeSwitch.of(target.model.config.get_text_config(decoder=True))
    if switch and length > switch.length:
        return length
    return config.prefill_chunk_size or PREFILL_CHUNK


def check_rope(target: Target, prompt: int, longest: int) -> None:
    """Refuse a text that grows past the point where `generate` reads it again with other rotary frequencies."""
    switch = compat.RopeSwitch.of(target.model.config.get_text_config())
    if switch and switch.kind == "dynamic" and prompt >= switch.length:
        raise InputError(
            f"the prompt has {prompt} tokens, and beyond {switch.length} the model's frequencies depend on the texts that it "
            f"read before (dynamic rope), so that no text can be promised; shorten the prompt"
        )
    if switch and prompt <= switch.length < longest:
        why = "reads a text again" if switch.kind == "longrope" else "changes its frequencies for all texts"
        raise InputError(
            f"the model {why} when one grows past {switch.length} tokens ({switch.kind} frequencies), which is not served; "
            f"ask for at most {switch.length - prompt} new tokens"
        )


def check_honoured(config: GenerationConfig, processors: LogitsProcessorList, allowed: Sequence[str] = ()) -> None:
    """Refuse options that would not be honoured, but for those that the caller does.

    Raises:
        InputError: there is one.
    """
    for name, neutral in _REFUSED.items():
        value = getattr(config, name, None)
        if value not in neutral and name not in allowed:
            raise InputError(f"generation option {name} = {value!r} is not served; leave it out")
    for processor in processors:
        if isinstance(processor, _STATEFUL):
            raise InputError(f"{type(processor).__name__} keeps state between tokens and is not served; leave it out")
