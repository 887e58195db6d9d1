"""The door into transformers' `generate`: what comes out is what would have come out without it."""

import copy
import gc
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import pytest
import torch
import transformers
from transformers import DynamicCache, LogitsProcessorList, StaticCache, StoppingCriteriaList

import outrider
from outrider import hf_generate
from support import CACHE, SCRIPTS, VOCAB, Scripted, char_tokenizer, prompt_of, tiny_model

Options = dict[str, Any]
Rows = Mapping[str, torch.Tensor]
LENGTH = 14
IDS = torch.tensor([[0, 0, 0, *prompt_of(LENGTH - 3, 3)], prompt_of(LENGTH, 1)])
MASK = torch.ones_like(IDS).index_fill(1, torch.arange(3), 0).index_fill(0, torch.tensor(1), 1)
BATCH = {"input_ids": IDS, "attention_mask": MASK}
PADDED, ONE = ({name: value[row : row + 1] for name, value in BATCH.items()} for row in range(2))
SHORT = {name: value[:, :9] for name, value in ONE.items()}
TAIL = {"input_ids": IDS[1:, 5:], "attention_mask": MASK[1:]}
RIGHT = {"input_ids": IDS, "attention_mask": MASK.flip(1)}
GAP = {"input_ids": IDS, "attention_mask": MASK.scatter(1, torch.tensor([[0], [7]]), 0)}

# By the names of llama's config; others know them too, or ignore them.
SHAPE: Options = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32}
SHAPE |= {"intermediate_size": 64, "d_ff": 64, "decoder_ffn_dim": 64, "vocab_size": VOCAB}
SHAPE |= {f"{name}_token_id": None for name in ("bos", "eos", "pad", "forced_eos")}
START: Options = {"decoder_start_token_id": 0}
MODELS: dict[str, tuple[str, Options]] = {
    "mistral": ("MistralForCausalLM", {"sliding_window": 8}),
    "lfm2": ("Lfm2ForCausalLM", {"layer_types": ["conv", "full_attention"]}),
    "t5": ("T5ForConditionalGeneration", {"d_kv": 8, "num_layers": 2, **START}),
    "shallow t5": ("T5ForConditionalGeneration", {"d_kv": 8, "num_layers": 2, "num_decoder_layers": 1, **START}),
    "bart": ("BartForCausalLM", {"is_encoder_decoder": False, "decoder_layers": 2, "init_std": 0.3}),
    "mamba2": ("Mamba2ForCausalLM", {"num_heads": 4, "head_dim": 16, "state_size": 8, "n_groups": 1, "chunk_size": 8}),
}
FAMILIES = ("llama", "mistral", "lfm2", "t5")
CAUSAL = FAMILIES[:3]


@lru_cache
def model_of(family: str, spread: float = 0.3) -> Any:
    """The lower the spread, the sooner a text repeats itself."""
    if family == "llama":
        return tiny_model(1, spread)
    name, own = MODELS[family]
    kind: Any = getattr(transformers, name)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = kind(kind.config_class(**SHAPE | {"initializer_range": spread} | own)).double().eval()
        for weights in model.parameters() if "t5" in family else ():
            torch.nn.init.normal_(weights, std=spread + 0.1)
    for special in ("bos", "eos", "pad", "forced_eos"):
        setattr(model.generation_config, f"{special}_token_id", None)
    return model


def generate(model: Any, rows: Rows, door: Any = None, **options: Any) -> Any:
    return model.generate(**rows, custom_generate=door, **{"do_sample": False, "max_new_tokens": 16} | options)


def check_same(
    model: Any, rows: Rows, drafter: Any = "ngram", *, adaptive: bool = True, **options: Any
) -> outrider.Decoder:
    door = outrider.decoder(drafter, adaptive=adaptive)
    expected = generate(model, rows, **copy.deepcopy(options))
    assert torch.equal(generate(model, rows, door, **copy.deepcopy(options)), expected)
    return door


def tokens_of(model: Any, rows: Rows) -> list[list[int]]:
    found: list[list[int]] = generate(model, rows)[:, -16:].tolist()
    return found


def drafter_of(model: Any, name: str) -> Any:
    """One that knows what plain decoding makes of `ONE`."""
    if name not in SCRIPTS:
        return name
    return Scripted(outrider.Target(model), SCRIPTS[name](generate(model, ONE, max_new_tokens=24)[0].tolist()))


class NoEcho(transformers.LogitsProcessor):
    def __call__(self, input_ids: torch.LongTensor, scores: torch.Tensor) -> torch.Tensor:
        return scores.scatter(1, input_ids[:, -3:-2], -torch.inf)


def allowed(row: int, ids: torch.Tensor) -> list[int]:
    return list(range(int(ids[-1]) % 3 + row, VOCAB, 2 + row))


CONFIG = transformers.GenerationConfig(repetition_penalty=1.2, max_length=22, typical_p=0.9)
GREEDY: dict[str, Options] = {
    "repetition": {"repetition_penalty": 1.4, "prefill_chunk_size": 4},
    "pairs": {"no_repeat_ngram_size": 2, "renormalize_logits": True},
    "bad words": {"bad_words_ids": [[3], [19, 4], [52]], "suppress_tokens": [36], "begin_suppress_tokens": [52]},
    "biases": {"sequence_bias": [[[5], 2.0], [[36, 4], -9.0]], "max_new_tokens": 1},
    "encoder penalty": {"encoder_repetition_penalty": 1.5},
    "encoder ids": {"encoder_no_repeat_ngram_size": 1},
    "prefixes": {"prefix_allowed_tokens_fn": allowed},
    "own": {"logits_processor": LogitsProcessorList([NoEcho()])},
    "config": {"generation_config": CONFIG, "max_new_tokens": None},
    "no time": {"max_time": 0.0},
}
SAMPLED: dict[str, Options] = {
    "nothing": {},
    "top-p": {"top_p": 0.7, "temperature": 0.6, "repetition_penalty": 1.2},
    "top-k": {"top_k": 4, "prefix_allowed_tokens_fn": allowed},
    "encoder penalty": {"encoder_repetition_penalty": 1.5},
    "encoder ids": {"encoder_no_repeat_ngram_size": 1},
}


@pytest.mark.parametrize(("family", "name"), [*product(FAMILIES, GREEDY)])
def test_greedy_text_is_that_of_generate(family: str, name: str) -> None:
    options = dict(GREEDY[name])
    if family == "t5":
        options.pop("prefill_chunk_size", None)  # with which plain decoding cuts the encoder's mask
    for rows in (ONE, BATCH):
        check_same(model_of(family), rows, **options)


@pytest.mark.parametrize("family", FAMILIES)
def test_eos_ends_rows_at_different_lengths(family: str) -> None:
    model = model_of(family)
    first, second = tokens_of(model, BATCH)
    least: list[Options] = [{}, {"min_new_tokens": 6}, {"pad_token_id": 2}]
    for options in least:
        door = check_same(model, BATCH, eos_token_id=[first[4], second[9]], **options)
        assert min(stats.num_tokens for stats in door.stats) < 16


@pytest.mark.parametrize(("family", "name"), [*product(FAMILIES, SAMPLED)])
def test_sampled_text_is_that_of_no_drafter(family: str, name: str) -> None:
    """Several texts of every row, each of which comes again from its own seed."""
    model, options = model_of(family, 0.1), {"do_sample": True, "max_new_tokens": 12} | SAMPLED[name]
    for rows, count in ((ONE, 1), (BATCH, 2)):
        found = []
        for drafter in ("none", "ngram"):
            torch.manual_seed(7)
            door = outrider.decoder(drafter)
            found.append(generate(model, rows, door, num_return_sequences=count, **options))
        assert torch.equal(*found)
        assert len({tuple(row) for row in found[0].tolist()}) == count * len(rows["input_ids"])
    if name != "top-k":  # where the row matters
        alone = generate(model, ONE, outrider.decoder("ngram", seed=door.seeds[-1]), **options)
        assert torch.equal(alone, found[0][-1:])


@pytest.mark.parametrize("family", FAMILIES)
def test_drafts_are_accepted_where_a_text_repeats_itself(family: str) -> None:
    stats = check_same(model_of(family, 0.1), BATCH, adaptive=False, max_new_tokens=60).stats
    assert sum(one.num_accepted_draft_tokens for one in stats) > 0


@pytest.mark.parametrize(("family", "name"), [*product(FAMILIES, SCRIPTS)])
def test_any_draft_gives_the_same_text(family: str, name: str) -> None:
    drafter = drafter_of(model_of(family), name)
    (stats,) = check_same(model_of(family), ONE, drafter, adaptive=False).stats
    assert stats.num_draft_tokens > 0
    assert (stats.num_accepted_draft_tokens > 0) == (not name.startswith("wrong"))
    check_same(model_of(family), ONE, drafter, repetition_penalty=1.1)


class Recorder(transformers.generation.streamers.BaseStreamer):
    def __init__(self, fails: int = -1) -> None:
        self.heard: list[Any] = []
        self.fails = fails

    def put(self, value: torch.Tensor) -> None:
        self.heard.append((value.dtype, value.tolist()))
        if len(self.heard) == self.fails:
            raise OSError("no room")

    def end(self) -> None:
        self.heard.append("end")


@pytest.mark.parametrize(("family", "name"), [*product(FAMILIES, ["ngram", "right tree", "wrong chain"])])
def test_a_streamer_hears_what_generate_tells_it(family: str, name: str) -> None:
    model, plain, ours = model_of(family, 0.1), Recorder(), Recorder()
    generate(model, ONE, streamer=plain)
    generate(model, ONE, outrider.decoder(drafter_of(model, name), streamer=ours))
    assert ours.heard == plain.heard
    assert len(plain.heard) == 18


def test_a_streamer_that_raises_ends_the_row_at_once() -> None:
    drafter = drafter_of(model_of("llama"), "wrong chain")
    with pytest.raises(OSError, match="no room") as error:
        generate(model_of("llama"), ONE, outrider.decoder(drafter, streamer=Recorder(4)))
    assert error.tb is not None  # which keeps the frames alive
    assert len(drafter.ended) == 1


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("ending", [{"eos_token_id": 63, "pad_token_id": 2}, {}], ids=["eos", "no eos"])
def test_stop_strings_and_criteria_end_rows_as_in_generate(family: str, ending: Options) -> None:
    """Where no EOS is known, plain decoding goes on in the rows that have ended until all have."""
    model, tokenizer = model_of(family), char_tokenizer()
    first, second = tokens_of(model, BATCH)
    text = tokenizer.decode(first)
    for stop in (text[4], text[3:5], [text[6:9], text[11]]):
        for rows in (BATCH, PADDED):
            expected = generate(model, rows, stop_strings=stop, tokenizer=tokenizer, **ending)
            door = outrider.decoder("ngram", stop_strings=stop, tokenizer=tokenizer)
            assert torch.equal(generate(model, rows, door, **ending), expected)
    check_same(model, BATCH, **ends(lambda ids, scores, **_: ids[:, -1] == second[5]), **ending)


def ends(criterion: Any) -> Options:
    return {"stopping_criteria": StoppingCriteriaList([criterion])}


@pytest.mark.parametrize("eos", [None, 5])
def test_a_criterion_is_asked_at_every_token(eos: int | None) -> None:
    """The last one, too."""
    model, asked = model_of("llama"), list[int]()
    token = tokens_of(model, ONE)[0][eos] if eos else None

    def criterion(ids: torch.Tensor, scores: Any, **_: Any) -> bool:
        asked.append(ids.shape[1])
        return False

    generate(model, ONE, outrider.decoder(), eos_token_id=token, **ends(criterion))
    assert asked == list(range(LENGTH + 1, LENGTH + (7 if eos else 17)))


SHOWN = ("output_scores", "output_logits", "output_hidden_states")
ALL: Options = dict.fromkeys(("return_dict_in_generate", *SHOWN), True)


def check_outputs(ours: Any, plain: Any, lengths: Sequence[int], mask: torch.Tensor) -> None:
    """Compare all that a row gave up to its end, but for its padding."""
    assert type(ours) is type(plain)
    assert torch.equal(ours.sequences, plain.sequences)
    names = set(plain) - {"sequences", CACHE, "encoder_hidden_states"}
    assert {"scores", "logits"} < names
    for name in names:
        for step, pair in enumerate(zip(ours[name], plain[name], strict=True)):
            parts = [[part] if isinstance(part, torch.Tensor) else part for part in pair]
            for one, other in zip(*parts, strict=True):
                assert (one.shape, one.dtype) == (other.shape, other.dtype)
                for row in (row for row, length in enumerate(lengths) if step < length):
                    shown = mask[row].bool() if one.shape[1] == mask.shape[1] else slice(None)
                    torch.testing.assert_close(one[row][shown], other[row][shown], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("family", [*FAMILIES, "shallow t5"])
@pytest.mark.parametrize("name", ["ngram", "partly right tree"])
def test_outputs_hold_what_those_of_generate_hold(family: str, name: str) -> None:
    model = model_of(family, 0.1)
    options = ALL | {"repetition_penalty": 1.1, "pad_token_id": 2, "eos_token_id": tokens_of(model, ONE)[0][8]}
    for rows in (ONE, BATCH):
        drafter = drafter_of(model, name)
        door = outrider.decoder(drafter)
        ours, plain = generate(model, rows, door, **options), generate(model, rows, **options)
        check_outputs(ours, plain, [stats.num_tokens for stats in door.stats], rows["attention_mask"])
        assert name == "ngram" or all(outcome.features is None for outcome in drafter.outcomes)  # it asked for none


CACHES: dict[str, Callable[[Any], Any]] = {
    "dynamic": lambda config: DynamicCache(),
    "by config": lambda config: DynamicCache(config=config),
    "static": lambda config: StaticCache(config=config, max_cache_len=48),
}
KINDS = [pair for pair in product(CAUSAL, CACHES) if pair != ("lfm2", "dynamic")]


@torch.no_grad()
def filled(model: Any, kind: str, length: int, rows: Rows = ONE, room: int = 0) -> Any:
    cache = StaticCache(config=model.config, max_cache_len=room) if room else CACHES[kind](model.config)
    if length:
        model(**{name: value[:, :length] for name, value in rows.items()}, **{CACHE: cache})
    return cache


@pytest.mark.parametrize(("family", "kind"), KINDS)
@pytest.mark.parametrize("length", [0, 1, 6, 13])
def test_a_cache_that_is_passed_in_is_used_and_gets_the_rest(family: str, kind: str, length: int) -> None:
    if (family, kind, length) == ("mistral", "static", 13):
        pytest.skip("refused below")
    model = model_of(family, 0.1)
    expected = generate(model, ONE, max_new_tokens=30)
    for drafter in ("ngram", drafter_of(model, "partly right tree")):
        cache = filled(model, kind, length)
        ids = generate(model, ONE, outrider.decoder(drafter), **{CACHE: cache}, max_new_tokens=22)
        assert int(cache.get_seq_length()) == LENGTH + 21
        longer = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        assert torch.equal(generate(model, longer, **{CACHE: cache}, max_new_tokens=8), expected)


@pytest.mark.parametrize("family", CAUSAL)
def test_outputs_begin_where_a_cache_ends(family: str) -> None:
    model = model_of(family, 0.1)
    plain = generate(model, ONE, **{CACHE: filled(model, "by config", 6)}, **ALL)
    ours = generate(model, ONE, outrider.decoder(), **{CACHE: filled(model, "by config", 6)}, **ALL)
    check_outputs(ours, plain, [16], ONE["attention_mask"])


@pytest.mark.parametrize("family", CAUSAL)
@pytest.mark.parametrize("rows", [ONE, PADDED], ids=["one", "padded"])
def test_the_cache_of_the_output_goes_on(family: str, rows: Rows) -> None:
    model = model_of(family)
    output = generate(model, rows, outrider.decoder(), return_dict_in_generate=True)
    mask = torch.nn.functional.pad(rows["attention_mask"], (0, 16), value=1)
    longer = {"input_ids": output.sequences, "attention_mask": mask}
    found = generate(model, longer, **{CACHE: getattr(output, CACHE)}, max_new_tokens=4)
    assert torch.equal(found, generate(model, rows, max_new_tokens=20))


class Sticky:
    """Remembers which rows have ended."""

    done = torch.zeros(2, dtype=torch.bool)

    def __call__(self, ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        self.done = self.done | (ids[:, -1] == 47)
        return self.done


def late(ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
    return torch.tensor([scores is not None and len(scores) >= 4] * len(ids))


ROPE = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}
UNEVEN = {"input_ids": torch.tensor([prompt_of(14, 2), prompt_of(14, 7)]), "attention_mask": torch.ones(2, 14).long()}
ODD: dict[str, tuple[str, Rows, Options]] = {
    "own positions": ("llama", ONE, {"position_ids": torch.arange(LENGTH).flip(0)[None]}),
    "new ids only": ("llama", TAIL, {CACHE: lambda model: filled(model, "dynamic", 5)}),
    "a padded cache": ("llama", PADDED, {CACHE: lambda model: filled(model, "dynamic", 6, PADDED)}),
    "own length": ("llama", ONE, ends(transformers.MaxLengthCriteria(18))),
    "own EOS": ("llama", ONE, {"pad_token_id": 0, **ends(transformers.EosTokenCriteria(47))}),
    "scores": ("llama", ONE, {"return_dict_in_generate": True, "output_scores": True, **ends(late)}),
    "all rows' answers": ("llama", BATCH, {"eos_token_id": 63, "pad_token_id": 0, **ends(Sticky())}),
    "a tuple": ("t5", BATCH, {"encoder_outputs": lambda model: (model.encoder(**BATCH)[0].detach(),)}),
    "columns for positions": ("bart", BATCH, {}),
    "no attention": ("mamba2", ONE, {}),
    "no attention, but a cache": ("mamba2", ONE, {"return_dict_in_generate": True}),
    "rope": ("rope", UNEVEN, {"max_new_tokens": 30}),
    "long": ("long", ONE, {"max_new_tokens": 40}),
    "eager": ("eager", ONE, {}),
    "float32": ("float32", BATCH, {"eos_token_id": -1}),
}
LLAMAS: Options = {
    "rope": {"max_position_embeddings": 24, "rope_parameters": ROPE},
    "long": {"max_position_embeddings": 24},
    "eager": {"attn_implementation": "eager"},
    "float32": {"dtype": torch.float32},
}


@pytest.mark.parametrize("name", ODD)
def test_what_a_caller_may_do_gives_no_other_text(name: str) -> None:
    """What isn't served must be refused in one line: never another text, and no error from deep inside."""
    family, rows, options = ODD[name]
    model = tiny_model(1, 0.1, **LLAMAS[family]) if family in LLAMAS else model_of(family)
    given = {name: value(model) if name in (CACHE, "encoder_outputs") else value for name, value in options.items()}
    expected: Any = generate(model, rows, **copy.deepcopy(given))
    found: Any = None
    try:
        found = generate(model, rows, outrider.decoder(), **given)
    except outrider.OutriderError as error:
        found = str(error)
    refused = isinstance(found, str) and "\n" not in found
    assert refused or torch.equal(getattr(found, "sequences", found), getattr(expected, "sequences", expected))


class Quantised(transformers.cache_utils.QuantizedLayer):
    def _quantize(self, tensor: Any, axis: Any = None) -> Any:
        return tensor

    def _dequantize(self, q_tensor: Any) -> Any:
        return q_tensor


def unusual(model: Any, *, quantised: bool) -> Any:
    cache = filled(model, "dynamic", 6)
    cache.offloading = not quantised
    cache.layers = [Quantised()] if quantised else cache.layers
    return cache


REFUSED: list[tuple[str, str, Rows, Options, Options]] = [
    ("llama", "num_beams = 2", ONE, {}, {"num_beams": 2}),
    ("llama", "output_attentions = True", ONE, {}, {"output_attentions": True}),
    ("llama", "use_cache=False", ONE, {}, {"use_cache": False}),
    ("llama", "prompt_lookup_num_tokens = 3", ONE, {}, {"prompt_lookup_num_tokens": 3}),
    ("llama", "keeps state", ONE, {}, {"guidance_scale": 2.0}),
    ("llama", "inputs_embeds", {}, {}, {"inputs_embeds": torch.zeros(1, 4, 32, dtype=torch.float64)}),
    ("llama", "row 0: attention_mask must be", RIGHT, {}, {}),
    ("llama", "row 1: attention_mask must be", GAP, {}, {}),
    ("llama", "position_ids", BATCH, {}, {"position_ids": torch.arange(LENGTH).expand(2, -1)}),
    ("llama", "a streamer takes one row", BATCH, {"streamer": Recorder()}, {}),
    ("llama", "unknown rule", ONE, {"rule": "lossy"}, {}),
    ("llama", "seed = -1", ONE, {"seed": -1}, {}),
    ("llama", "stop_strings need the tokenizer", ONE, {"stop_strings": "a"}, {}),
    ("llama", "stop_strings = ['']", ONE, {"stop_strings": [""], "tokenizer": char_tokenizer()}, {}),
    ("llama", "no-such", ONE, {"drafter": "no-such"}, {}),
    ("llama", "offloaded", ONE, {}, {CACHE: lambda model: unusual(model, quantised=False)}),
    ("llama", "Quantised", ONE, {}, {CACHE: lambda model: unusual(model, quantised=True), **ALL}),
    ("llama", "one row", BATCH, {}, {CACHE: lambda model: filled(model, "dynamic", 6, BATCH)}),
    ("llama", "2 rows", ONE, {}, {CACHE: lambda model: filled(model, "dynamic", 6, BATCH)}),
    ("lfm2", "2 rows", ONE, {}, {CACHE: lambda model: filled(model, "by config", 6, BATCH)}),
    ("llama", "14", ONE, {}, {CACHE: lambda model: filled(model, "static", LENGTH)}),
    ("llama", "14", SHORT, {}, {CACHE: lambda model: filled(model, "dynamic", LENGTH)}),
    ("lfm2", "14", ONE, {}, {CACHE: lambda model: filled(model, "by config", LENGTH)}),
    ("llama", "20", ONE, {}, {CACHE: lambda model: filled(model, "", 6, room=20)}),
    ("mistral", "past its sliding window", ONE, {}, {CACHE: lambda model: filled(model, "static", 13)}),
]


@pytest.mark.parametrize(("family", "message", "rows", "bound", "options"), REFUSED)
def test_what_is_not_served_is_refused(family: str, message: str, rows: Rows, bound: Options, options: Options) -> None:
    """In one line, and before the caller's cache is touched."""
    model = model_of(family)
    given = {name: value(model) if callable(value) else value for name, value in options.items()}
    before = contents(given.get(CACHE))
    with pytest.raises(outrider.InputError) as error:
        generate(model, rows, outrider.decoder(**bound), **given)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert contents(given.get(CACHE)) == before


def contents(value: Any) -> Any:
    """Everything in a cache, a model or an output, in a form that `==` compares."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.tolist()
    if isinstance(value, Mapping):
        return {name: contents(part) for name, part in value.items() if name != "_is_user_defined"}
    if isinstance(value, list | tuple):
        return [contents(part) for part in value]
    inside = isinstance(value, transformers.Cache | transformers.cache_utils.CacheLayerMixin)
    return contents(vars(value)) if inside else repr(value)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_the_caller_gave_is_unchanged(family: str) -> None:
    model, config = model_of(family), copy.deepcopy(CONFIG)
    options: Options = {"bad_words_ids": [[3], [4, 5]], "eos_token_id": [63], "pad_token_id": 2, "max_length": None}
    options |= {"generation_config": config, "logits_processor": LogitsProcessorList([NoEcho()])}
    rows = {name: value.clone() for name, value in BATCH.items()}

    def everything() -> Any:
        configs = [one.to_dict() for one in (model.config, model.generation_config, config)]
        parts = [[sorted(vars(one)), one.training, dict(one._forward_hooks)] for one in model.modules()]
        return contents([model.state_dict(), configs, parts, rows, options])

    generate(model, rows, **ALL | options)  # transformers puts hooks on a model whose hidden states are asked for
    before = everything()
    for drafter in ("ngram", "none"):
        generate(model, rows, outrider.decoder(drafter), **ALL | options)
        assert everything() == before


@pytest.mark.parametrize(("family", "kind"), KINDS)
@pytest.mark.parametrize("fails", ["drafter", "criterion", "streamer"])
def test_a_call_that_fails_leaves_the_cache_as_it_was(family: str, kind: str, fails: str) -> None:
    model, calls = model_of(family), list[int]()

    def third(*_: Any, **__: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise OSError("no room")
        return outrider.DraftTree.chain([1, 2]) if fails == "drafter" else False

    drafter: Any = Scripted(outrider.Target(model), third) if fails == "drafter" else "ngram"
    cache = filled(model, kind, 6)
    before = contents(cache)
    door = outrider.decoder(drafter, adaptive=False, streamer=Recorder(4) if fails == "streamer" else None)
    with pytest.raises((outrider.OutriderError, OSError), match="no room"):
        generate(model, ONE, door, **{CACHE: cache}, **ends(third) if fails == "criterion" else {})
    assert contents(cache) == before


def test_one_draw_of_torch_s_generator_seeds_a_call() -> None:
    model = model_of("llama")
    torch.manual_seed(5)
    states = [torch.get_rng_state()]
    torch.randint(2**62, (1,))
    states.append(torch.get_rng_state())
    for seed, expected in ((3, states[0]), (None, states[1])):
        torch.set_rng_state(states[0])
        generate(model, BATCH, outrider.decoder(seed=seed), do_sample=True)
        assert torch.equal(torch.get_rng_state(), expected)
    texts = [generate(model, BATCH, outrider.decoder(seed=seed), do_sample=True).tolist() for seed in (3, 3, 4)]
    assert texts[0] == texts[1] != texts[2]


def test_gradients_are_off() -> None:
    model, seen = tiny_model(1), list[bool]()

    def script(ids: Sequence[int]) -> outrider.DraftTree:
        seen.append(torch.is_grad_enabled())
        return outrider.DraftTree.chain([1])

    model.register_forward_hook(lambda *_: seen.append(torch.is_grad_enabled()))
    with torch.enable_grad():
        output = generate(model, ONE, outrider.decoder(Scripted(outrider.Target(model), script)), **ALL)
    assert not any([*seen, output.scores[0].requires_grad, output.hidden_states[1][0].requires_grad])
    assert len(seen) > 20


def test_two_threads_may_use_one_decoder_on_one_model() -> None:
    model, door, found = tiny_model(1, 0.1), outrider.decoder("ngram"), dict[int, Any]()
    rows = (ONE, PADDED)

    def run(at: int) -> None:
        found[at] = [generate(model, rows[at], door, max_new_tokens=30).tolist() for _ in range(3)]

    threads = [threading.Thread(target=run, args=(at,)) for at in range(2)]
    for act in (threading.Thread.start, threading.Thread.join):
        for thread in threads:
            act(thread)
    assert found == {at: [generate(model, rows[at], max_new_tokens=30).tolist()] * 3 for at in range(2)}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_is_probed_once_and_can_be_forgotten(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    probed, load = list[Any](), outrider.load

    def watched(model: Any) -> Any:
        probed.append(model.dtype)
        return load(model)

    monkeypatch.setattr(hf_generate, "load", watched)
    model, door = copy.deepcopy(model_of(family)), outrider.decoder("ngram")
    for rows in (ONE, BATCH, ONE):
        generate(model, rows, door, return_dict_in_generate=True)
    model.float()
    for _ in range(2):
        generate(model, ONE, door)
    assert probed == [torch.float64, torch.float32]
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("setting", [{"num_return_sequences": 2}, {"stop_strings": ["a"]}])
def test_what_the_model_s_config_asks_for_does_not_trouble_the_probe(setting: Options) -> None:
    model = tiny_model(1)
    model.generation_config.update(do_sample=True, **setting)
    outrider.load(model)


@pytest.mark.parametrize("text", ["abcabc", ["abc", "d e"], [{"role": "user", "content": "ab ab"}]])
def test_a_pipeline_takes_it(text: Any) -> None:
    tokenizer = copy.deepcopy(char_tokenizer())
    tokenizer.pad_token, tokenizer.chat_template = "a", "{% for one in messages %}{{ one.content }}{% endfor %}"
    pipeline: Any = transformers.pipeline("text-generation", model=model_of("llama", 0.1), tokenizer=tokenizer)
    options: Options = {"max_new_tokens": 12, "do_sample": False, "batch_size": 2}
    assert pipeline(text, custom_generate=outrider.decoder("ngram"), **options) == pipeline(text, **options)
