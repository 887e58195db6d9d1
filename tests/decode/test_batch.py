"""Several texts together: each must be that of its prompt alone, whatever the others do."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, ClassVar

import pytest
import torch

import outrider
from outrider import DraftBatch, DrafterOptions, DraftTree, DraftView, Result, RowDrafter, Target, TreeBatch
from outrider.draft.contract import API, RowStart
from outrider.draft.laws import DraftLaws
from outrider.target.cache import RowCache
from support import SCRIPTS, VOCAB, Script, Scripted, char_tokenizer, lively, prompt_of, registered, shallow, tiny_model

MODELS: dict[str, tuple[str, Callable[[], Any]]] = {
    "llama": ("tree", lambda: tiny_model(1)),
    "mistral": ("tree", lambda: lively("mistral", sliding_window=8)),
    "bloom": ("paths", lambda: lively("bloom")),
    "lfm2": ("replay", lambda: lively("lfm2", layer_types=["conv", "full_attention"])),
    "t5": ("paths", lambda: lively("t5", num_decoder_layers=2, pad_token_id=0, decoder_start_token_id=0)),
}
LENGTHS = (1, 20, 7, 13)
PROMPTS = [prompt_of(length, length) for length in LENGTHS]
SAMPLED: dict[str, Any] = {"temperature": 1.3, "top_p": 0.9, "repetition_penalty": 1.2, "seed": 4}


@cache
def _target(name: str) -> Target:
    tier, make = MODELS[name]
    target = outrider.load(make(), tokenizer=char_tokenizer())
    assert target.tier.name == tier
    return target


def _start(target: Target, prompt: Sequence[int]) -> list[int]:
    """What a row's ids begin with."""
    return [0] if target.model.config.is_encoder_decoder else list(prompt)


def _own(target: Target, prompt: Sequence[int], **options: Any) -> tuple[int, ...]:
    """The untouched model's own greedy text."""
    ids, model = torch.tensor([prompt]), target.model
    generate: Any = model.generate
    output = generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, pad_token_id=0, **options)
    return tuple(output[0, len(_start(target, prompt)) :].tolist())


class PerRow(Scripted):
    """A script for each row, in order; keeps count of which rows began."""

    def __init__(self, target: Target, scripts: Sequence[Script]) -> None:
        super().__init__(target, lambda ids: DraftTree())
        self.scripts, self.begun = scripts, list[int]()

    def begin(self, rows: Sequence[RowStart]) -> None:
        self.begun += [start.row for start in rows]

    def propose_row(self, view: DraftView) -> DraftTree:
        return shallow(self.scripts[self.begun.index(view.row)](view.ids), view.max_depth)


class Dice(RowDrafter[DrafterOptions]):
    """Draws a small tree from a law that has nothing to do with the target's."""

    name: ClassVar[str] = "dice"
    requires_api: ClassVar[tuple[int, int]] = API

    def propose_row(self, view: DraftView) -> DraftTree:
        law = torch.arange(1, VOCAB + 1).double().pow(0.5 + len(view.ids) % 3)
        law /= law.sum()
        tokens = view.draw(law, min(3, VOCAB)) if view.max_depth else []
        parents = (-1,) * len(tokens)
        if not view.wants_q or not tokens:
            return DraftTree(tuple(tokens), parents)
        return DraftTree(tuple(tokens), parents, (0,) * len(tokens), DraftLaws(law[None]))


def _drafters(target: Target, texts: Sequence[Sequence[int]]) -> dict[str, Any]:
    """All registered drafters, every script for all rows, and another script for each."""
    kinds = list(SCRIPTS.values())
    mixed = [kinds[row % len(kinds)](text) for row, text in enumerate(texts)]
    scripted = {name: PerRow(target, [script(text) for text in texts]) for name, script in SCRIPTS.items()}
    return registered(target) | scripted | {"mixed": PerRow(target, mixed)}


def _assert_each_is_alone(
    target: Target, prompts: Sequence[Sequence[int]], found: Sequence[Result], **options: Any
) -> None:
    for prompt, result in zip(prompts, found, strict=True):
        alone = outrider.generate(target, prompt, "none", **(options | {"seed": result.seed}))
        assert result.token_ids == alone.token_ids
        assert (result.text, result.finish_reason) == (alone.text, alone.finish_reason)
        assert result.stats.num_prompt_tokens == alone.stats.num_prompt_tokens
        assert result.stats.num_tokens == len(alone.token_ids)
        assert (result.logprobs is None) == (alone.logprobs is None)
        assert result.logprobs == pytest.approx(alone.logprobs, abs=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_greedy_rows_are_those_of_generate(name: str) -> None:
    target = _target(name)
    expected = [_own(target, prompt, max_new_tokens=18) for prompt in PROMPTS]
    assert len({token for text in expected for token in text}) > 5
    texts = [[*_start(target, prompt), *text] for prompt, text in zip(PROMPTS, expected, strict=True)]
    for drafter in _drafters(target, texts).values():
        found = outrider.generate_batch(target, PROMPTS, drafter, max_new_tokens=18)
        assert [result.token_ids for result in found] == expected
        if isinstance(drafter, PerRow):
            assert sorted(drafter.begun) == sorted(drafter.ended)


@pytest.mark.parametrize("name", MODELS)
def test_sampled_rows_are_those_of_their_seeds(name: str) -> None:
    target, options = _target(name), SAMPLED | {"max_new_tokens": 18, "output_logprobs": True}
    plain = outrider.generate_batch(target, PROMPTS, "none", **options)
    _assert_each_is_alone(target, PROMPTS, plain, **options)
    assert len({result.seed for result in plain}) == len(PROMPTS)
    texts = [[*_start(target, one), *result.token_ids] for one, result in zip(PROMPTS, plain, strict=True)]
    drafters = _drafters(target, texts)
    for drafter in ("ngram", drafters["right tree"], drafters["mixed"]):
        found = outrider.generate_batch(target, PROMPTS, drafter, **options)
        assert [result.token_ids for result in found] == [result.token_ids for result in plain]
        for result, other in zip(found, plain, strict=True):
            assert result.logprobs == pytest.approx(other.logprobs, abs=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_rows_stop_each_for_itself(name: str) -> None:
    """At the first token, by EOS and by length; those that stay go on as if alone."""
    target = _target(name)
    texts = [_own(target, prompt, max_new_tokens=24) for prompt in PROMPTS]
    options: dict[str, Any] = {"eos_token_id": sorted({texts[0][0], texts[1][4]}), "max_new_tokens": 24}
    known = [[*_start(target, prompt), *text] for prompt, text in zip(PROMPTS, texts, strict=True)]
    for drafter, chunk in (("none", 1), ("ngram", 3), (_drafters(target, known)["mixed"], 64)):
        found = outrider.generate_batch(target, PROMPTS, drafter, prefill_chunk_size=chunk, **options)
        assert [result.token_ids for result in found] == [_own(target, prompt, **options) for prompt in PROMPTS]
        assert found[0].finish_reason == found[1].finish_reason == "eos"
        assert len(found[0].token_ids) == 1
        assert len({len(result.token_ids) for result in found}) > 1
    _assert_each_is_alone(target, PROMPTS, found, **options)


@pytest.mark.parametrize("name", ["llama", "bloom", "lfm2"])
def test_stop_strings_and_lengths_are_each_row_s_own(name: str) -> None:
    target = _target(name)
    plain = outrider.generate_batch(target, PROMPTS, "none", max_length=30, **SAMPLED)
    options: dict[str, Any] = SAMPLED | {"max_length": 30, "stop_strings": [plain[0].text[5:7], plain[2].text[9:12]]}
    known = [[*prompt, *result.token_ids] for prompt, result in zip(PROMPTS, plain, strict=True)]
    for drafter in ("ngram", _drafters(target, known)["mixed"]):
        found = outrider.generate_batch(target, PROMPTS, drafter, **options)
        assert {result.finish_reason for result in found} == {"stop_string", "length"}
        _assert_each_is_alone(target, PROMPTS, found, **options)


class ByTurns(PerRow):
    """One row's draft is right while the others' are wrong, which makes as many holes as there can be."""

    def __init__(self, target: Target, texts: Sequence[Sequence[int]], width: int = 6) -> None:
        super().__init__(target, [partial(self.turn, row) for row in range(len(texts))])
        self.texts, self.width, self.steps = texts, width, 0

    def propose(self, batch: DraftBatch) -> TreeBatch:
        self.steps += 1
        return super().propose(batch)

    def turn(self, row: int, ids: Sequence[int]) -> DraftTree:
        right = self.steps % len(self.texts) == row
        tokens = [(token + (not right)) % VOCAB for token in self.texts[row][len(ids) : len(ids) + 6]]
        others = [token for token in range(VOCAB) if token not in tokens[:1]][: self.width - len(tokens)]
        return DraftTree((*tokens, *others), (*range(-1, len(tokens) - 1), *[-1] * len(others)))


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_holes_are_taken_out_of_the_cache(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, prompts = _target(name), [prompt_of(length, length) for length in (5, 40, 2)]
    expected = [_own(target, prompt, max_length=150) for prompt in prompts]
    texts = [[*prompt, *text] for prompt, text in zip(prompts, expected, strict=True)]
    holes, compacted, keep, compact = list[int](), list[int](), RowCache.keep, RowCache.compact

    def watched_keep(cache: RowCache, start: int, paths: Sequence[Sequence[int]]) -> None:
        keep(cache, start, paths)
        holes.append(len(cache) - max(cache.lengths))

    def watched_compact(cache: RowCache) -> None:
        compact(cache)
        assert len(cache) == max(cache.lengths)
        compacted.append(len(cache.lengths))

    monkeypatch.setattr(RowCache, "keep", watched_keep)
    monkeypatch.setattr(RowCache, "compact", watched_compact)
    found = outrider.generate_batch(target, prompts, ByTurns(target, texts), max_length=150)
    assert [result.token_ids for result in found] == expected
    assert len(prompts) in compacted  # with all rows there, so because of the holes
    assert min(compacted) < len(prompts)  # and as rows left
    assert 32 < max(holes) <= 64


@pytest.mark.parametrize("width", [6, 64])
def test_a_static_cache_has_room_for_the_holes_of_several_rows(width: int) -> None:
    target, prompts = _target("llama"), PROMPTS[1:3]
    expected = [_own(target, prompt, max_new_tokens=100) for prompt in prompts]
    drafter = ByTurns(target, [[*prompt, *text] for prompt, text in zip(prompts, expected, strict=True)], width)
    options: dict[str, Any] = {"max_new_tokens": 100, "cache_implementation": "static"}
    assert [result.token_ids for result in outrider.generate_batch(target, prompts, drafter, **options)] == expected


@pytest.mark.parametrize("name", ["llama", "lfm2", "t5"])
def test_a_prompt_may_have_several_texts(name: str) -> None:
    target, options = _target(name), SAMPLED | {"max_new_tokens": 12}
    found = outrider.generate_batch(target, PROMPTS[:2], "ngram", num_return_sequences=3, **options)
    assert len({result.seed for result in found}) == 6
    assert len({result.token_ids for result in found}) > 3
    _assert_each_is_alone(target, [prompt for prompt in PROMPTS[:2] for _ in range(3)], found, **options)
    again = outrider.generate_batch(target, PROMPTS[:2], "none", num_return_sequences=3, **options)
    assert [result.token_ids for result in again] == [result.token_ids for result in found]


@pytest.mark.parametrize("name", MODELS)
def test_a_tensor_is_padded_on_the_left(name: str) -> None:
    target, kind = _target(name), {"llama": torch.bool, "bloom": torch.float32}.get(name, torch.int64)
    ids = torch.tensor([[VOCAB - 1] * (20 - len(prompt)) + prompt for prompt in PROMPTS])
    mask = torch.tensor([[0] * (20 - len(prompt)) + [1] * len(prompt) for prompt in PROMPTS]).to(kind)
    found = outrider.generate_batch(target, ids, "ngram", attention_mask=mask, max_new_tokens=10)
    assert [result.token_ids for result in found] == [_own(target, prompt, max_new_tokens=10) for prompt in PROMPTS]
    whole = outrider.generate_batch(target, ids[1:2].to(torch.int32), "ngram", max_new_tokens=10)
    assert whole[0].token_ids == found[1].token_ids


@pytest.mark.parametrize("rule", ["rejection", "block"])
@pytest.mark.parametrize("name", ["llama", "bloom", "lfm2"])
def test_drawn_drafts_are_verified_as_alone(name: str, rule: str) -> None:
    target, drafter = _target(name), Dice(_target(name).info, DrafterOptions())
    options: dict[str, Any] = {"temperature": 2.0, "max_new_tokens": 20, "rule": rule, "output_logprobs": True}
    found = outrider.generate_batch(target, PROMPTS, drafter, seed=3, **options, adaptive=False)
    assert sum(result.stats.num_accepted_draft_tokens for result in found) > 4
    for prompt, result in zip(PROMPTS, found, strict=True):
        alone = outrider.generate(target, prompt, drafter, seed=result.seed, **options, adaptive=False)
        assert (result.token_ids, result.stats.num_steps) == (alone.token_ids, alone.stats.num_steps)
        assert result.logprobs == pytest.approx(alone.logprobs, abs=1e-5)


@pytest.mark.parametrize("broken", ["draft", "model"])
@pytest.mark.parametrize("name", ["llama", "bloom", "lfm2"])
def test_rows_end_once_where_one_step_fails(name: str, broken: str) -> None:
    target = _target(name)
    texts = [outrider.generate(target, prompt, "none", max_new_tokens=9).token_ids for prompt in PROMPTS]
    options: dict[str, Any] = {"max_new_tokens": 9, "eos_token_id": [texts[0][0]]}

    def fail(ids: Any) -> DraftTree:
        if len(ids) > 16:
            raise ArithmeticError("no draft")
        return DraftTree()

    drafter = PerRow(target, [fail] * len(PROMPTS))
    model: Any = target.model
    head = model.get_output_embeddings().register_forward_pre_hook(
        lambda module, inputs: fail([0] * 17) if broken == "model" and drafter.ended else None
    )
    try:
        with pytest.raises((outrider.DrafterError, ArithmeticError), match="no draft"):
            outrider.generate_batch(target, PROMPTS, drafter, **options)
    finally:
        head.remove()
    assert sorted(drafter.ended) == sorted(drafter.begun)
    assert outrider.generate_batch(target, PROMPTS, "ngram", max_new_tokens=9)[3].token_ids == texts[3]


IDS = torch.tensor([[1, 2], [3, 4]])
MASK: dict[str, Any] = {"attention_mask": torch.tensor([[1, 1], [0, 1]])}


@pytest.mark.parametrize(
    ("prompts", "options", "message"),
    [
        ([[1, 2], [], [3]], {}, "prompt 1: the prompt is empty"),
        ([[1], [2], [3, VOCAB]], {}, "prompt 2: the prompt holds token id 64"),
        ([[1], [2, -1]], {"num_return_sequences": 3}, "prompt 1: the prompt holds token id -1"),
        ([[1], [2.0]], {}, "prompt 1: the prompt must be"),
        ([[1], torch.tensor([2.0])], {}, "prompt 1: the prompt must be"),
        ([[1], 2], {}, "prompt 1: the prompt is a int"),
        ([], {}, "there are no prompts"),
        (torch.zeros(2, 0, dtype=torch.long), {}, "prompt 0: the prompt is empty"),
        ("ab", {}, "give a list of prompts"),
        (IDS.double(), {}, "give int64 ids"),
        (IDS, {"attention_mask": torch.ones(2, 3)}, "attention_mask has shape"),
        (IDS, {"attention_mask": [[1, 1], [0, 1]]}, "attention_mask"),
        (IDS, {"attention_mask": torch.tensor([[1, 1], [1, 0]])}, "prompt 1: .*padded on the left"),
        (IDS, {"attention_mask": torch.tensor([[1, 1], [0, 0]])}, "prompt 1: the prompt is empty"),
        ([[1], [2]], MASK, "attention_mask belongs to a tensor"),
        ([[1]], {"num_return_sequences": 0}, "num_return_sequences = 0"),
        ([[1]], {"num_return_sequences": True}, "num_return_sequences = True"),
        ([[1]], {"max_new_token": 3}, "Did you mean 'max_new_tokens'"),
    ],
)
def test_bad_input_is_refused_in_one_line(prompts: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(outrider.InputError, match=message) as caught:
        outrider.generate_batch(_target("llama"), prompts, "none", **({"max_new_tokens": 2} | options))
    assert "\n" not in str(caught.value)
