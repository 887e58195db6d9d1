"""Every line that depends on the transformers version: names of arguments, and what `generate` makes of its options."""

import copy
import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import (
    EncoderNoRepeatNGramLogitsProcessor,
    EncoderRepetitionPenaltyLogitsProcessor,
    GenerationConfig,
    LogitsProcessorList,
    PrefixConstrainedLogitsProcessor,
    PreTrainedModel,
    RepetitionPenaltyLogitsProcessor,
    StoppingCriteriaList,
    StopStringCriteria,
)
from transformers.cache_utils import (
    Cache,
    DynamicCache,
    DynamicLayer,
    EncoderDecoderCache,
    StaticLayer,
    StaticSlidingWindowLayer,
    get_layer_types_and_kwargs,
)
from transformers.masking_utils import create_masks_for_generate
from transformers.utils.generic import ModelOutput

from outrider.errors import ModelError
from outrider.ranks import Ranks

CACHE_NAMES = ("cache", "past_key_values", "cache_params")


@dataclass(frozen=True, slots=True)
class ForwardNames:
    """How this model's `forward` spells what the verifier passes.

    Args:
        ids: the name of the argument that takes the text's ids.
        cache: the name of the cache argument, or None where there is none.
        positions: whether `position_ids` is taken.
        logits_to_keep: whether logits can be limited to the last rows.
    """

    ids: str
    cache: str | None
    positions: bool
    logits_to_keep: bool

    @classmethod
    def of(cls, model: PreTrainedModel) -> "ForwardNames":
        """Read the names off the signature of `model.forward`."""
        known = inspect.signature(model.forward).parameters
        return cls(
            ids="decoder_input_ids" if model.config.is_encoder_decoder else "input_ids",
            cache=next((name for name in CACHE_NAMES if name in known), None),
            positions="position_ids" in known,
            logits_to_keep="logits_to_keep" in known,
        )


# Read off transformers' own builder, since a model's may take anything by **kwargs.
_MASK_ARGUMENTS = frozenset(inspect.signature(create_masks_for_generate).parameters)


def create_masks(model: PreTrainedModel, config: Any, like: torch.Tensor, cache: Cache, positions: torch.Tensor) -> Any:
    """Let transformers, or the model itself, build the attention masks of a forward.

    Args:
        model: whose.
        config: in place of the model's own.
        like: `[rows, queries, 1]` of the forward's dtype and device.
        cache: before the forward.
        positions: `[rows, queries]`.
    """
    build: Any = getattr(model, "create_masks_for_generate", create_masks_for_generate)
    named = {name: cache for name in CACHE_NAMES if name in _MASK_ARGUMENTS}
    return build(config=config, inputs_embeds=like, attention_mask=None, position_ids=positions, **named)


def hidden_states(output: Any) -> tuple[torch.Tensor, ...]:
    """Return the (decoder's) hidden states of a forward, the embeddings first."""
    states: tuple[torch.Tensor, ...] = getattr(output, "decoder_hidden_states", None) or output.hidden_states
    return states


def native_cache(model: PreTrainedModel) -> Cache:
    """Make the cache that `generate` makes for a model."""
    config: Any = model.config.get_text_config(decoder=True)
    own = DynamicCache(config=config)
    return EncoderDecoderCache(own, DynamicCache(config=config)) if model.config.is_encoder_decoder else own


def plain_cache(model: PreTrainedModel) -> Cache:
    """Make a cache that keeps every column of every layer, so that it can always be cut."""
    own = DynamicCache()
    return EncoderDecoderCache(own, DynamicCache()) if model.config.is_encoder_decoder else own


def windows(model: PreTrainedModel) -> list[int | None]:
    """Return how far back each layer looks, as the cache that `generate` makes has it; None for everything."""
    config: Any = model.config.get_text_config(decoder=True)
    try:
        _, settings = get_layer_types_and_kwargs(config)
    except (AttributeError, KeyError, TypeError, ValueError):
        return []  # transformers doesn't know the layers: nothing is dropped
    return [one.get("sliding_window") for one in settings]


def fork(cache: Cache, rows: int) -> Cache:
    """Copy a cache of one row, states and all, into one of several equal rows."""
    copied = copy.deepcopy(cache)
    if rows > 1:
        select_rows(copied, [0] * rows)
    return copied


def select_rows(cache: Cache, rows: list[int]) -> None:
    """Keep these rows of a cache, in this order."""
    index: Any = torch.tensor(rows)
    cache.reorder_cache(index)


def crop(cache: Cache, count: int) -> None:
    """Take the last columns off a cache."""
    cache.crop(-count)


_CUT_LAYERS = (DynamicLayer, StaticLayer)


def length_of(cache: Any) -> int:
    """Return how many tokens a cache holds.

    Raises:
        ModelError: it holds some, but has no layer that knows how many.
    """
    try:
        return int(cache.get_seq_length())
    except ValueError as error:  # recurrent layers only
        if any(any(layer.has_previous_state.values()) for layer in cache.layers):
            raise ModelError("a filled cache without attention layers doesn't say what it holds; pass none") from error
        return 0


def decoder_layers(model: PreTrainedModel) -> int:
    """Return how many layers the (decoder's) hidden states come from."""
    config: Any = model.config.get_text_config(decoder=True)
    names = ("num_decoder_layers", "decoder_layers") if model.config.is_encoder_decoder else ()
    return int(
        next((getattr(config, name) for name in (*names, "num_hidden_layers") if getattr(config, name, None)), 0)
    )


def is_given(cache: Any) -> bool:
    """Say whether a cache that `generate` hands on is its caller's, not one that it made itself."""
    return bool(getattr(cache, "_is_user_defined", False))


def room_of(cache: Any) -> int | None:
    """Return the most tokens that a cache can hold; None for any number."""
    full = [layer for layer in cache.layers if isinstance(layer, StaticLayer) and not layer.is_sliding]
    return min((layer.max_cache_len for layer in full), default=None)


def mask_length(config: GenerationConfig, ids: torch.Tensor) -> int:
    """Return the length of the attention mask that `generate` has dropped because it masks nothing."""
    return int(getattr(config, "_mask_length", ids.shape[1]))


def held(cache: Cache, *, native: bool = False) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return what every layer of a caller's cache of one row holds `[1, heads, tokens, width]`.

    What a sliding layer has dropped is filled with zeros, which no later token looks at.

    Args:
        cache: the caller's.
        native: the layers are only looked at, since the cache is copied whole.

    Raises:
        ModelError: a layer keeps its tokens in a form that can't be taken over, or the cache holds several rows.
    """
    if isinstance(cache, EncoderDecoderCache):
        if length_of(cache):
            raise ModelError("a filled cache of an encoder-decoder can't be taken over; pass none")
        return []
    if cache.offloading:
        raise ModelError("an offloaded cache can't be rolled back row by row; pass a plain one, or none")
    length, found = length_of(cache), []
    for layer in cache.layers:
        kind = type(layer).__name__
        if any("Quantized" in base.__name__ for base in type(layer).__mro__):
            raise ModelError(f"a quantised cache ({kind}) can't be rolled back row by row; pass a plain one, or none")
        keys = getattr(layer, "keys", None)
        if length and keys is not None and keys.ndim and len(keys) != 1:
            raise ModelError(f"the cache holds {len(keys)} rows; a cache that is passed in must hold one")
        if native or kind == "DummyLayer":  # the layer reads the keys and values of another
            continue
        if not isinstance(layer, _CUT_LAYERS):
            raise ModelError(f"a cache with a layer of kind {kind} can't be taken over; pass a DynamicCache, or none")
        if layer.keys is None or layer.values is None or not length:
            continue
        columns = layer.keys.shape[-2]
        if isinstance(layer, StaticSlidingWindowLayer) and length > columns:
            raise ModelError("a static cache past its sliding window can't be taken over; pass a DynamicCache, or none")
        kept = min(length, columns)
        start = 0 if isinstance(layer, StaticLayer) else columns - kept
        found.append(tuple(_filled(part[..., start : start + kept, :], length) for part in (layer.keys, layer.values)))
    return found  # type: ignore[return-value]


def _filled(states: torch.Tensor, length: int) -> torch.Tensor:
    return torch.nn.functional.pad(states, (0, 0, length - states.shape[-2], 0))


def context_of(inputs: Mapping[str, Any], row: int) -> dict[str, Any]:
    """Return a row's part of what `generate` passes to an encoder-decoder's forward."""
    found = {name: inputs[name] for name in ("encoder_outputs", "attention_mask") if inputs.get(name) is not None}
    return {name: _row_of(value, row) for name, value in found.items()}


def _row_of(value: Any, row: int) -> Any:
    if isinstance(value, torch.Tensor):
        return value[row : row + 1]
    if isinstance(value, ModelOutput):
        return type(value)(**{name: _row_of(part, row) for name, part in value.items()})
    if isinstance(value, tuple | list):
        return type(value)(_row_of(part, row) for part in value)
    return value


def pad_id(config: GenerationConfig) -> int:
    """Return what `generate` pads shorter texts with."""
    tensor = getattr(config, "_pad_token_tensor", None)
    return int(tensor) if tensor is not None else int(config.pad_token_id or 0)


def with_cache(kind: Any, cache: Any, **parts: Any) -> Any:
    """Make one of `generate`'s outputs, whose field for the cache has had two names."""
    known = {one.name for one in dataclasses.fields(kind)}
    return kind(**parts, **{next(name for name in CACHE_NAMES if name in known): cache})


def widen(value: Any, rows: int) -> Any:
    """Repeat a forward's further argument of one row for several."""
    if isinstance(value, torch.Tensor):
        return value.expand(rows, *value.shape[1:])
    if isinstance(value, ModelOutput):
        return type(value)(**{name: widen(part, rows) for name, part in value.items()})
    if isinstance(value, tuple | list):
        return type(value)(widen(part, rows) for part in value)
    return value


@torch.no_grad()
def encode(model: PreTrainedModel, ids: list[int]) -> dict[str, Any]:
    """Return an encoder-decoder's encoded source as the forward's further arguments; nothing for other models."""
    if not model.config.is_encoder_decoder:
        return {}
    source = torch.tensor([ids], device=model.device)
    encoder: Any = model.get_encoder()
    mask = torch.ones_like(source)
    return {"encoder_outputs": encoder(input_ids=source, attention_mask=mask, return_dict=True), "attention_mask": mask}


def start_ids(model: PreTrainedModel) -> list[int]:
    """Return the ids that an encoder-decoder's text begins with; none for other models."""
    config = model.generation_config
    first = getattr(config, "decoder_start_token_id", None)
    if first is None:
        first = getattr(config, "bos_token_id", None)
    return [] if not model.config.is_encoder_decoder or first is None else [int(first)]


def greedy(model: PreTrainedModel, ids: list[int], count: int) -> tuple[list[int], torch.Tensor]:
    """Let the model's own `generate` decode greedily; returns the new ids and their logits `[count, vocab]`."""
    prompt = torch.tensor([ids], device=model.device)
    generate: Any = model.generate
    options: dict[str, Any] = {
        "do_sample": False,
        "num_beams": 1,
        "max_new_tokens": count,
        "min_new_tokens": count,
        "pad_token_id": 0,
    }
    options |= {"num_return_sequences": 1, "stop_strings": None}
    output = generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        return_dict_in_generate=True,
        output_logits=True,
        **options,
    )
    return output.sequences[0, -count:].tolist(), torch.cat(output.logits)


@dataclass(frozen=True, slots=True)
class Prepared:
    """What `generate` itself makes of a prompt and its options.

    Args:
        ids: that the text begins with; an encoder-decoder's own start, else the prompt.
        config: with every default filled in.
        processors: in their order.
        criteria: all of them.
        context: further arguments of an encoder-decoder's forward.
    """

    ids: tuple[int, ...]
    config: GenerationConfig
    processors: LogitsProcessorList
    criteria: StoppingCriteriaList
    context: Mapping[str, Any]


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
        input_ids: torch.Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        **rest: Any,
    ) -> Prepared:
        encoded = "encoder_outputs" in rest
        context = {name: rest[name] for name in ("encoder_outputs", "attention_mask") if encoded}
        ids = tuple(input_ids[0].tolist())
        return Prepared(ids, generation_config, logits_processor, stopping_criteria, context)

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


def for_row(processor: Any, row: int, rows: int) -> Any:
    """Return a processor of a batch for one of its rows, called with that row alone."""
    if isinstance(processor, PrefixConstrainedLogitsProcessor):
        allowed = processor._prefix_allowed_tokens_fn
        return PrefixConstrainedLogitsProcessor(lambda _, ids: allowed(row, ids), 1)
    if isinstance(processor, RepetitionPenaltyLogitsProcessor) and isinstance(
        processor.prompt_ignore_length, torch.Tensor
    ):
        processor = copy.copy(processor)
        processor.prompt_ignore_length = processor.prompt_ignore_length[row : row + 1]
    if isinstance(processor, EncoderRepetitionPenaltyLogitsProcessor):
        processor = copy.copy(processor)
        prompt = row * len(processor.encoder_input_ids) // rows
        processor.encoder_input_ids = processor.encoder_input_ids[prompt : prompt + 1]
    if isinstance(processor, EncoderNoRepeatNGramLogitsProcessor):
        processor = copy.copy(processor)
        prompt = row * processor.batch_size // rows
        processor.generated_ngrams = processor.generated_ngrams[prompt : prompt + 1]
        processor.batch_size = 1
    return processor


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


def tensor_parallel() -> dict[str, Any]:
    """Return the arguments of `from_pretrained` that spread a model's weights over the processes of torchrun."""
    try:
        from transformers.distributed.configuration_utils import DistributedConfig
    except ImportError:
        return {"tp_plan": "auto"}
    if "tp_plan" not in inspect.signature(DistributedConfig).parameters:
        return {"tp_plan": "auto"}
    return {"distributed_config": DistributedConfig(tp_plan="auto")}


def ranks_of(model: PreTrainedModel) -> Ranks:
    """Return the processes that hold a model together; a model that lies in one process has that alone."""
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return Ranks()
    spread = any(type(one).__name__ == "DTensor" for one in model.parameters())
    # Objects are sent between CPUs, whatever carries the tensors.
    return Ranks(dist.new_group(backend="gloo")) if spread else Ranks()
