"""The door into transformers: `model.generate(**inputs, custom_generate=outrider.decoder("ngram"))`.

`generate` prepares inputs, options, processors and stops as for plain decoding and hands them over; what comes back has the
shape of what `generate` returns.
"""

import weakref
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

import torch
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList
from transformers.generation.utils import GenerateDecoderOnlyOutput, GenerateEncoderDecoderOutput

from outrider.decode.evidence import EVIDENCE, Evidence
from outrider.decode.loop import decode
from outrider.decode.request import Request, check_honoured, check_rope, chunk_of, read_seed
from outrider.decode.row import Row, Step
from outrider.decode.stats import Stats
from outrider.decode.stopping import Stopping
from outrider.decode.tap import Tap
from outrider.draft.cost import Costs, check_adaptive
from outrider.draft.guard import Guard
from outrider.draft.timings import Timings
from outrider.errors import InputError
from outrider.generation import prepare
from outrider.plugins.words import DrafterWord
from outrider.target import compat
from outrider.target.load import load
from outrider.target.model import Target
from outrider.target.tier import Tier
from outrider.target.trust import Trust
from outrider.verify.decisions import Keyed
from outrider.verify.noise import derive
from outrider.verify.rules import check_rule
from outrider.verify.sampling import Sampler

_HONOURED: Final = ("return_dict_in_generate", "output_hidden_states", "num_return_sequences")
_KNOWN: Final = {
    "attention_mask",
    "position_ids",
    "logits_to_keep",
    "use_cache",
    "output_hidden_states",
    "encoder_outputs",
    *compat.CACHE_NAMES,
}
# Which tier serves a model; a target itself would keep its model alive.
_Known = tuple[Any, type[Tier[Any]], Trust, Timings]
_PROBED: weakref.WeakKeyDictionary[PreTrainedModel, _Known] = weakref.WeakKeyDictionary()


class Decoder:
    """What `custom_generate` calls; made by `outrider.decoder`.

    After a call `stats` and `seeds` hold every row's counts and the seed that gives its text again.
    """

    def __init__(
        self,
        drafter: DrafterWord,
        drafter_options: Mapping[str, Any] | None,
        *,
        streamer: Any,
        tokenizer: Any,
        stop_strings: str | Sequence[str] | None,
        seed: int | None,
        rule: str,
        adaptive: bool | Costs,
    ) -> None:
        self._drafter, self._drafter_options = drafter, drafter_options
        self._streamer, self._tokenizer = streamer, tokenizer
        self._stop_strings = stop_strings if stop_strings is None or isinstance(stop_strings, str) else [*stop_strings]
        self._seed, self._rule, self._adaptive = seed, rule, adaptive
        self.stats: tuple[Stats, ...] = ()
        self.seeds: tuple[int, ...] = ()

    def __call__(
        self,
        model: PreTrainedModel,
        input_ids: torch.Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        **inputs: Any,
    ) -> Any:
        """Decode what `generate` has prepared; returns ids `[rows, length]`, or what it returns with `return_dict_in_generate`.

        Where rows end at different lengths the shorter ones' scores and hidden states are zeros beyond their end.

        Raises:
            InputError: an input or option that can't be honoured.
            ModelError: the model can't be verified exactly.
            DrafterError: the drafter failed or broke its contract.
        """
        config = generation_config
        if "prepare_inputs_for_generation" in vars(model):
            raise InputError(
                "a PEFT model with a learned prompt is not served; merge it, or use an adapter inside the layers"
            )
        _check_inputs(inputs, config, logits_processor)
        if self._streamer is not None and len(input_ids) > 1:
            raise InputError(f"a streamer takes one row, and there are {len(input_ids)}; leave it out of the decoder")
        target = _target(model)
        guard = prepare(target, self._drafter, self._drafter_options)
        requests = self._requests(target, input_ids, logits_processor, stopping_criteria, config, inputs)
        rows = [Row(request, Stats()) for request in requests]
        self.stats = tuple(row.stats for row in rows)
        self.seeds = tuple(request.seed for request in requests)
        states = bool(config.output_hidden_states and config.return_dict_in_generate)
        given = next((inputs[name] for name in compat.CACHE_NAMES if inputs.get(name) is not None), None)
        known = _check_cache(given, rows, input_ids)
        tap = Tap(guard, frozenset(range(target.info.num_layers + 1)) if states else frozenset(), known)
        found = self._run(target, tap, rows, input_ids, given, config)
        if len(rows) > 1 and not rows[0].request.stopping.eos_ids:
            found = _go_on(target, guard, tap, rows, found)
        sequences = _sequences(input_ids, found, config)
        if not config.return_dict_in_generate:
            return sequences
        return _output(model, sequences, found, tap, config, inputs, given if _is_whole(rows, input_ids) else None)

    def _requests(
        self,
        target: Target,
        input_ids: torch.Tensor,
        processors: LogitsProcessorList,
        criteria: StoppingCriteriaList,
        config: GenerationConfig,
        inputs: Mapping[str, Any],
    ) -> list[Request]:
        prepared = compat.Prepared((), config, processors, criteria, {})
        try:
            criteria = compat.with_stop_strings(prepared, self._stop_strings, self._tokenizer)
        except ValueError as error:
            raise InputError(f"decoder: {error}") from error
        first = read_seed({"seed": self._seed}) if self._seed is not None else int(torch.randint(2**62, (1,)))
        kept = EVIDENCE if config.return_dict_in_generate else ()
        evidence = frozenset(name for name in kept if getattr(config, name, False))
        encoder_decoder = bool(target.model.config.is_encoder_decoder)
        pads = [0] * len(input_ids) if encoder_decoder else _pads(input_ids, inputs, config)
        _check_ids(target, input_ids, pads)
        longest, found = int(config.max_length or 0), []
        for at, (ids, pad) in enumerate(zip(input_ids.tolist(), pads, strict=True)):
            seed = derive(first, at) if len(input_ids) > 1 else first
            own = LogitsProcessorList([compat.for_row(one, at, len(input_ids)) for one in processors])
            check_rope(target, len(ids) - pad, longest - pad)
            request = Request(
                ids=tuple(ids[pad:]),
                sampler=Sampler.of(own, Keyed(seed) if config.do_sample else None, self._rule, ids[:pad]),
                stopping=Stopping.of(criteria, compat.eos_ids(config), longest, target.info.device, ids[:pad]),
                seed=seed,
                evidence=evidence,
                context=compat.context_of(inputs, at) if encoder_decoder else {},
                chunk=chunk_of(target, len(ids) - pad, config),
                adaptive=self._adaptive,
            )
            found.append(request)
        return found

    def _run(
        self, target: Target, tap: Tap, rows: list[Row], input_ids: torch.Tensor, given: Any, config: GenerationConfig
    ) -> list[list[Step]]:
        steps: dict[int, list[Step]] = {row.id: [] for row in rows}
        returned = config.return_dict_in_generate or compat.is_given(given)
        wanted = given if returned and _is_whole(rows, input_ids) else None
        if self._streamer is not None:
            self._streamer.put(input_ids.cpu())
        with closing(decode(target, tap, rows, wanted)) as emissions:
            for emitted in emissions:
                for row, step in emitted:
                    steps[row.id].append(step)
                    if self._streamer is not None:
                        for token in step.tokens:
                            self._streamer.put(torch.tensor([token]))
        if self._streamer is not None:
            self._streamer.end()
        return [steps[row.id] for row in rows]


def decoder(
    drafter: DrafterWord = "ngram",
    drafter_options: Mapping[str, Any] | None = None,
    *,
    streamer: Any = None,
    tokenizer: Any = None,
    stop_strings: str | Sequence[str] | None = None,
    seed: int | None = None,
    rule: str = "match",
    adaptive: bool | Costs = True,
) -> Decoder:
    """Make what `custom_generate` of transformers' `generate` takes.

    `generate` passes neither streamer nor tokenizer on to it, so they are given here, and stop strings with them. All other
    options are those of `generate`.

    Args:
        drafter: as in `outrider.generate`.
        drafter_options: as in `outrider.generate`.
        streamer: gets the prompt, then every token, then its end, as `generate` does it; for a single row.
        tokenizer: for the stop strings.
        stop_strings: end the text.
        seed: of the call; by default one draw from torch's default generator, so that `torch.manual_seed` works.
        rule: how drafts are verified.
        adaptive: as in `outrider.generate`.

    Raises:
        InputError: a wrong seed, rule or `adaptive`, or stop strings without a tokenizer.
    """
    check_rule(rule)
    check_adaptive(adaptive)
    if seed is not None:
        read_seed({"seed": seed})
    if stop_strings is not None and tokenizer is None:
        raise InputError("stop_strings need the tokenizer: decoder(..., stop_strings=..., tokenizer=...)")
    return Decoder(
        drafter,
        drafter_options,
        streamer=streamer,
        tokenizer=tokenizer,
        stop_strings=stop_strings,
        seed=seed,
        rule=rule,
        adaptive=adaptive,
    )


def _go_on(target: Target, guard: Guard, tap: Tap, rows: Sequence[Row], found: list[list[Step]]) -> list[list[Step]]:
    """Let rows that ended early go on to where the last one ends, as `generate` does where no id ends a text.

    What was drawn is keyed by its place, so that a row gives the same tokens again before it goes on.
    """
    counts = [sum(len(step.tokens) for step in steps) for steps in found]
    longest, again = max(counts), dict[int, Row]()
    for at, (row, count) in enumerate(zip(rows, counts, strict=True)):
        if count < longest:
            stops = row.request.stopping
            stops = replace(stops, criteria=(), max_length=len(stops.padding + row.request.ids) + longest)
            again[at] = Row(replace(row.request, stopping=stops), Stats())
    if not again:
        return found
    steps: dict[int, list[Step]] = {row.id: [] for row in again.values()}
    longer = Tap(guard, tap.layers)
    for emitted in decode(target, longer, list(again.values())):
        for row, step in emitted:
            steps[row.id].append(step)
    for at, row in again.items():
        tap.take_over(rows[at].id, longer, row.id)
    return [steps[again[at].id] if at in again else one for at, one in enumerate(found)]


def _target(model: PreTrainedModel) -> Target:
    """Return the model's target; a model is probed once, and again when it has been moved or cast."""
    now = (model.dtype, model.device, model.config.get_text_config()._attn_implementation)
    known = _PROBED.get(model)
    if known is not None and known[0] == now:
        return Target(model, tier=known[1], trust=known[2], costs=known[3])
    target = load(model)
    if target.ranks.several:
        raise InputError("a model that several processes hold is served by outrider.generate, not by model.generate")
    _PROBED[model] = (now, type(target.tier), target.trust, target.costs)
    return target


def _check_inputs(inputs: Mapping[str, Any], config: GenerationConfig, processors: LogitsProcessorList) -> None:
    check_honoured(config, processors, _HONOURED)
    for name, value in inputs.items():
        if value is not None and name not in _KNOWN and not (isinstance(value, Mapping) and not value):
            raise InputError(
                f"generate's input {name} is not served by outrider: prompts are ids, without images, sounds or embeddings"
            )
    if inputs.get("use_cache") is False:
        raise InputError("use_cache=False is not served: a draft is kept by its cache")


def _is_whole(rows: Sequence[Row], ids: torch.Tensor) -> bool:
    """Say whether there is a single row without padding, whose cache can be handed on."""
    return len(rows) == 1 and len(rows[0].request.ids) == ids.shape[1]


def _check_cache(given: Any, rows: Sequence[Row], ids: torch.Tensor) -> int:
    """Return how many of the ids the caller's cache holds."""
    if given is None or not compat.is_given(given):
        return 0
    length = compat.length_of(given)
    if len(rows) > 1:
        raise InputError("a cache that is passed in must hold one row; decode the rows one by one")
    if not _is_whole(rows, ids):
        raise InputError("a cache that is passed in is served without padding only; leave the padding out")
    if length >= len(rows[0].request.ids):
        raise InputError(f"the cache holds {length} tokens, and input_ids {ids.shape[1]}: pass the whole text's ids")
    return length


def _pads(ids: torch.Tensor, inputs: Mapping[str, Any], config: GenerationConfig) -> list[int]:
    """Return how much every row is padded on the left."""
    mask = inputs.get("attention_mask")
    if not ids.shape[1]:
        raise InputError("input_ids is empty: give at least one token")
    if mask is None:
        mask = torch.ones(len(ids), compat.mask_length(config, ids), dtype=torch.long, device=ids.device)
    if mask.shape != ids.shape:
        raise InputError(
            f"attention_mask has shape {list(mask.shape)}, but input_ids {list(ids.shape)}: pass the whole text's ids"
        )
    pads = []
    for index, row in enumerate(mask.tolist()):
        pad = len(row) - sum(map(bool, row))
        if pad == len(row) or any(row[:pad]):
            raise InputError(
                f"row {index}: attention_mask must be 0s, then 1s, at least one: rows are padded on the left"
            )
        pads.append(pad)
    positions, expected = inputs.get("position_ids"), (mask.long().cumsum(-1) - 1).clamp(min=0)
    if positions is not None and not bool((positions * mask == expected * mask).all()):
        raise InputError("position_ids that don't follow from attention_mask are not served; leave them out")
    return pads


def _check_ids(target: Target, ids: torch.Tensor, pads: Sequence[int]) -> None:
    """Refuse ids that are none, and padding that changes the text of a model which takes no positions."""
    vocab = target.info.vocab_size
    if bool(((ids < 0) | (ids >= vocab)).any()):
        raise InputError(f"input_ids holds an id out of range: the model's ids run from 0 to {vocab - 1}")
    padded = next((at for at, pad in enumerate(pads) if pad), None)
    if padded is not None and target.tier.caller.padding_matters(ids[padded], pads[padded]):
        raise InputError(
            "this model's text depends on its padding, since its forward takes no position_ids; decode the rows one by one"
        )


def _sequences(input_ids: torch.Tensor, found: Sequence[Sequence[Step]], config: GenerationConfig) -> torch.Tensor:
    new = [[token for step in steps for token in step.tokens] for steps in found]
    longest = max(map(len, new))
    pad = compat.pad_id(config)
    padded = torch.tensor([[*row, *[pad] * (longest - len(row))] for row in new], device=input_ids.device)
    return torch.cat([input_ids, padded], 1)


def _output(
    model: PreTrainedModel,
    sequences: torch.Tensor,
    found: Sequence[Sequence[Step]],
    tap: Tap,
    config: GenerationConfig,
    inputs: Mapping[str, Any],
    cache: Any,
) -> Any:
    evidence = [Evidence.join([step.evidence for step in steps]) for steps in found]
    scores, logits = (_by_step([getattr(one, name) for one in evidence]) for name in ("scores", "logits"))
    states = tap.by_token() if tap.layers else None
    if model.config.is_encoder_decoder:
        encoded = inputs["encoder_outputs"]
        return compat.with_cache(
            GenerateEncoderDecoderOutput,
            cache,
            sequences=sequences,
            scores=scores,
            logits=logits,
            encoder_hidden_states=encoded.get("hidden_states") if config.output_hidden_states else None,
            decoder_hidden_states=states,
        )
    return compat.with_cache(
        GenerateDecoderOnlyOutput, cache, sequences=sequences, scores=scores, logits=logits, hidden_states=states
    )


def _by_step(rows: Sequence[torch.Tensor | None]) -> Any:
    """Turn every row's `[tokens, vocab]` into a tuple of `[rows, vocab]`, one a token, as `generate` returns them."""
    if rows[0] is None:
        return None
    return tuple(torch.nn.utils.rnn.pad_sequence([row for row in rows if row is not None]).unbind())
