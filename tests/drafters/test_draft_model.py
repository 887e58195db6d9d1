"""The drafter `draft-model`: what it proposes is its model's, and every token is fed once."""

import copy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import outrider
from eagle_layouts import random_eagle
from medusa_layouts import random_heads
from outrider import DraftBatch, Outcome, OutcomeBatch, Target, TreeBatch
from outrider_drafters.draft_model.drafter import DraftModel, DraftModelOptions
from support import (
    VOCAB,
    char_tokenizer,
    lively,
    plain_loop,
    prompt_of,
    right_chain,
    tiny_model,
    tiny_target,
    transformers_generate,
)


def _noisy(model: Any, spread: float = 0.02, seed: int = 0) -> Any:
    """The same model, a little off."""
    other = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in other.parameters():
            weight += spread * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    return other


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 1.0, "seed": 3}, {"temperature": 0.7, "top_p": 0.9, "seed": 4}]
)
@pytest.mark.parametrize("shape", [{}, {"branching": 3}])
@pytest.mark.parametrize("length", [1, 4, 7])
def test_the_target_as_its_own_drafter_is_right_every_time(
    length: int, shape: dict[str, Any], options: dict[str, Any]
) -> None:
    """Greedy, and coupled to the target's noise: mean acceptance length is the draft's length and the bonus."""
    for seed in range(2):
        target, prompt = tiny_target(seed), prompt_of(9, seed)
        settings: dict[str, Any] = {"max_new_tokens": 1 + 5 * (length + 1), **options}
        drafting = {"model": target.model, "draft_tokens": length, **shape}
        result = outrider.generate(target, prompt, "draft-model", drafting, **settings, adaptive=False)
        assert result.token_ids == outrider.generate(target, prompt, "none", **settings).token_ids
        assert result.stats.num_steps == 5
        assert result.stats.mean_acceptance_length == length + 1


@pytest.mark.parametrize("rule", ["rejection", "block"])
@pytest.mark.parametrize("branching", [1, 3])
def test_q_that_is_p_is_accepted_whole(rule: str, branching: int) -> None:
    target, prompt = tiny_target(1), prompt_of(9)
    options: dict[str, Any] = {"model": target.model, "draft_tokens": 4, "branching": branching}
    result = outrider.generate(
        target, prompt, "draft-model", options, max_new_tokens=26, temperature=1.0, rule=rule, seed=5, adaptive=False
    )
    assert result.stats.mean_acceptance_length == 5


@pytest.mark.parametrize("settings", [{}, {"temperature": 1.0}, {"temperature": 0.5, "top_k": 8}])
@pytest.mark.parametrize("shape", [{}, {"branching": 3}, {"branching": 3, "nodes": 16}])
def test_a_model_that_is_a_little_off_is_right_now_and_then(shape: dict[str, Any], settings: dict[str, Any]) -> None:
    accepted = 0
    for seed in range(5):
        target, prompt = tiny_target(seed), prompt_of(9, seed)
        options = {"model": _noisy(target.model), **shape}
        result = outrider.generate(
            target, prompt, "draft-model", options, max_new_tokens=40, seed=seed, **settings, adaptive=False
        )
        assert (
            result.token_ids
            == outrider.generate(target, prompt, "none", max_new_tokens=40, seed=seed, **settings).token_ids
        )
        accepted += result.stats.num_accepted_draft_tokens
    assert accepted > 40


def test_siblings_bring_more() -> None:
    found = []
    for branching in (1, 4):
        target, prompt = tiny_target(2), prompt_of(9, 2)
        options = {"model": _noisy(target.model, 0.05), "branching": branching}
        found.append(
            outrider.generate(
                target, prompt, "draft-model", options, max_new_tokens=100, adaptive=False
            ).stats.num_steps
        )
    assert found[1] < found[0]


def test_expected_acceptance_is_the_overlap_of_the_laws() -> None:
    """With a draft of one token the rule `rejection` accepts with the sum of min(p, q) (verified on recorded pairs)."""
    target, prompt = tiny_target(3), prompt_of(9, 3)
    model = _noisy(target.model, 0.03)
    options = {"model": model, "draft_tokens": 1}
    expected, accepted, steps = 0.0, 0, 0
    for seed in range(12):
        drafted: dict[str, Any] = {
            "drafter": "draft-model",
            "drafter_options": options,
            "seed": seed,
            "adaptive": False,
        }
        drafted |= {"max_new_tokens": 40, "temperature": 1.0, "top_k": 0, "rule": "rejection"}
        result = outrider.generate(target, prompt, **drafted)
        ids = [*prompt, *result.token_ids]
        with torch.no_grad():
            p, q = (one(torch.tensor([ids])).logits[0].softmax(-1) for one in (target.model, model))
        place = len(prompt) + 1
        accepted += result.stats.num_accepted_draft_tokens
        steps += result.stats.num_spec_steps
        lengths = [len(step.tokens) for step in outrider.stream(target, prompt, **drafted)][1:]
        for length in lengths[: result.stats.num_spec_steps]:
            expected += float(torch.minimum(p[place - 1], q[place - 1]).sum())
            place += length
    assert abs(accepted - expected) < 4 * (steps * 0.25) ** 0.5
    assert 0.3 < expected / steps < 0.98


def test_every_token_is_fed_to_the_draft_once() -> None:
    """Case 22: the prompt, then at most the draft and two more a step."""
    target, prompt = tiny_target(4), prompt_of(200, 4)
    model, fed = _noisy(target.model), list[int]()
    handle = model.register_forward_pre_hook(
        lambda module, args, kwargs: fed.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    drafter = DraftModel(target.info, DraftModelOptions(model=model))
    fed.clear()
    result = outrider.generate(target, prompt, drafter, max_new_tokens=100, adaptive=False)
    handle.remove()
    assert fed[0] == 201
    assert sum(fed) <= 201 + result.stats.num_steps * (4 + 2)
    assert max(fed[1:]) <= 2


def test_a_wrong_draft_now_and_then_leaves_nothing_in_the_draft_s_cache() -> None:
    """Case 16: other rounds are right every time."""
    target, prompt = tiny_target(5), prompt_of(9, 5)

    class Spoiling(DraftModel):
        rounds = 0

        def propose(self, batch: DraftBatch) -> TreeBatch:
            trees = super().propose(batch)
            self.rounds += 1
            if self.rounds in (3, 7) and trees.width > 1:
                trees.tokens[0, 1] = (trees.tokens[0, 1] + 1) % VOCAB
            return trees

    outcomes: list[Outcome] = []

    class Watching(Spoiling):
        def observe(self, batch: OutcomeBatch) -> None:
            outcomes.extend(batch.rows)

    outrider.generate(
        target, prompt, Watching(target.info, DraftModelOptions(model=target.model)), max_new_tokens=60, adaptive=False
    )
    accepted = [len(outcome.path) for outcome in outcomes[1:-1]]
    assert [at for at, count in enumerate(accepted, 1) if count < 4] == [3, 7]


@pytest.mark.parametrize(("target_vocab", "draft_vocab"), [(72, 64), (64, 72)])
@pytest.mark.parametrize("settings", [{}, {"temperature": 1.0}, {"temperature": 1.0, "rule": "block"}])
def test_a_padded_vocabulary_is_no_hindrance(target_vocab: int, draft_vocab: int, settings: dict[str, Any]) -> None:
    """Case 17: ids that only one of the models has are never drafted."""
    target = tiny_target(1, vocab_size=target_vocab)
    draft = tiny_model(1, vocab_size=draft_vocab)
    seen: list[int] = []

    class Watching(DraftModel):
        def observe(self, batch: OutcomeBatch) -> None:
            seen.extend(token for row in batch.rows for token in row.tree.tokens)

    drafter = Watching(target.info, DraftModelOptions(model=draft, branching=3))
    result = outrider.generate(target, prompt_of(9), drafter, max_new_tokens=30, seed=2, **settings)
    if "rule" not in settings:
        plain = outrider.generate(target, prompt_of(9), "none", max_new_tokens=30, seed=2, **settings)
        assert result.token_ids == plain.token_ids
    assert seen
    assert max(seen) < 64


def test_another_tokenizer_of_the_same_size_is_told(tmp_path: Path) -> None:
    """Case 18."""
    tiny_model(0).save_pretrained(tmp_path)
    other = copy.deepcopy(char_tokenizer())
    vocab = {word: (token + 1) % VOCAB for word, token in other.get_vocab().items()}
    other.backend_tokenizer.model = type(other.backend_tokenizer.model)(vocab, unk_token=".")
    other.save_pretrained(tmp_path)
    target = tiny_target(0)
    with pytest.raises(outrider.InputError, match=r"tokens are not the target's \(id 0 is 'a' and '.'\)"):
        outrider.generate(target, prompt_of(3), "draft-model", {"model": str(tmp_path)})
    options = {"model": str(tmp_path), "tokenizer": "unchecked"}
    result = outrider.generate(target, prompt_of(3), "draft-model", options, max_new_tokens=10)
    assert list(result.token_ids) == plain_loop(target.model, prompt_of(3), 10)


def test_a_draft_model_of_a_shorter_context_pauses() -> None:
    target, prompt = tiny_target(0), prompt_of(20)
    draft = tiny_model(0, max_position_embeddings=32)
    result = outrider.generate(target, prompt, "draft-model", {"model": draft}, max_new_tokens=40, adaptive=False)
    assert list(result.token_ids) == plain_loop(target.model, prompt, 40)
    assert 0 < result.stats.num_spec_steps < result.stats.num_steps


def test_a_draft_may_stop_where_it_is_not_sure() -> None:
    target, prompt = tiny_target(0), prompt_of(9)
    found = []
    for confidence in (0.0, 0.2, 0.9):
        options = {"model": target.model, "draft_tokens": 8, "confidence": confidence}
        result = outrider.generate(target, prompt, "draft-model", options, max_new_tokens=40, adaptive=False)
        found.append(result.stats.num_draft_tokens)
    assert found[0] > found[1] > found[2]


def test_a_draft_model_may_be_of_another_kind_and_dtype() -> None:
    target = outrider.load(lively("mistral", sliding_window=8))
    draft = lively("bloom").float()
    expected = transformers_generate(target.model, prompt_of(9), max_new_tokens=40)
    result = outrider.generate(target, prompt_of(9), "draft-model", {"model": draft}, max_new_tokens=40)
    assert list(result.token_ids) == expected


def test_the_draft_model_stays_as_it_was() -> None:
    draft = tiny_model(7)
    before = (copy.deepcopy(draft.config.to_dict()), draft.generation_config.to_dict())
    weights = {name: weight.clone() for name, weight in draft.state_dict().items()}
    outrider.generate(tiny_target(0), prompt_of(9), "draft-model", {"model": draft}, max_new_tokens=20)
    assert (draft.config.to_dict(), draft.generation_config.to_dict()) == before
    assert all(torch.equal(weight, weights[name]) for name, weight in draft.state_dict().items())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"needs what was trained for this very model, .*draft-model\[model=FOLDER\]"),
        ({"model": "./nowhere"}, "no such folder"),
        (
            {"model": random_eagle(tiny_target(0).info, "eagle")},
            r"holds heads of eagle, not a model; pick eagle\[heads=",
        ),
        ({"model": random_heads(32, 64)}, r"holds heads of medusa, not a model; pick medusa\[heads="),
        ({"model": 7}, "a int can't be a target"),
        ({"model": "x", "draft_tokens": 0}, "draft_tokens"),
        ({"model": "x", "temperature": 0.0}, "temperature"),
    ],
)
def test_what_can_t_serve_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(outrider.OutriderError, match=message):
        outrider.generate(tiny_target(0), prompt_of(3), "draft-model", options)


def test_an_encoder_decoder_is_no_draft_model() -> None:
    draft = lively("t5", num_decoder_layers=2, pad_token_id=0, decoder_start_token_id=0)
    with pytest.raises(outrider.InputError, match="is an encoder-decoder; choose a decoder"):
        outrider.generate(tiny_target(0), prompt_of(3), "draft-model", {"model": draft})


def test_a_draft_model_with_a_state_is_refused() -> None:
    draft = lively("lfm2", layer_types=["conv", "full_attention"])
    with pytest.raises(outrider.InputError, match="state that can't be taken back"):
        outrider.generate(tiny_target(0), prompt_of(3), "draft-model", {"model": draft})


def test_sessions_and_batches_have_a_cache_a_row() -> None:
    target = tiny_target(0)
    options = {"model": _noisy(target.model)}
    with outrider.session(target, "draft-model", options, max_new_tokens=12, adaptive=False) as turns:
        for length in (9, 4, 6):
            before = [*turns.ids, *prompt_of(length, length)]
            result = turns.generate(prompt_of(length, length))
            assert list(result.token_ids) == plain_loop(target.model, before, 12)
            turns.truncate(len(turns.ids) - 5)
    prompts = [prompt_of(length, length) for length in (3, 12, 7)]
    for prompt, result in zip(
        prompts,
        outrider.generate_batch(target, prompts, "draft-model", options, max_new_tokens=20, adaptive=False),
        strict=True,
    ):
        assert list(result.token_ids) == plain_loop(target.model, prompt, 20)
        assert result.stats.num_accepted_draft_tokens > 0


def test_a_target_may_be_its_own_twin() -> None:
    """A drafter made for one target object serves it, whoever else uses the model."""
    target = Target(tiny_model(0))
    drafter = DraftModel(target.info, DraftModelOptions(model=target.model))
    text = prompt_of(9) + plain_loop(target.model, prompt_of(9), 20)
    assert list(outrider.generate(target, prompt_of(9), drafter, max_new_tokens=20).token_ids) == text[9:]
    assert right_chain(text)(prompt_of(9)).tokens == tuple(text[9:14])


@pytest.mark.parametrize("options", [{"adaptive": False}, {"temperature": 1.0, "seed": 2, "rule": "block"}])
@pytest.mark.parametrize("shape", [{"draft_tokens": 6}, {"draft_tokens": 4, "branching": 3, "nodes": 16}])
def test_rows_near_the_end_of_the_draft_s_positions_pause_alone(shape: dict[str, Any], options: dict[str, Any]) -> None:
    """Learned positions end: a row with little room left is not read as deep as its neighbours."""
    target = outrider.load(tiny_model(0))
    draft = lively("gpt2", n_positions=40)
    prompts = [prompt_of(length, length) for length in (5, 17, 36, 37)]
    results = outrider.generate_batch(
        target, prompts, "draft-model", {"model": draft, **shape}, max_length=60, **options
    )
    assert all(len(prompt) + len(result.token_ids) == 60 for prompt, result in zip(prompts, results, strict=True))
    assert results[0].stats.num_spec_steps > 0
    if "rule" not in options:
        for prompt, result in zip(prompts, results, strict=True):
            assert list(result.token_ids) == plain_loop(target.model, prompt, 60 - len(prompt))


@pytest.mark.parametrize("rule", ["match", "rejection", "block"])
def test_numbers_that_are_none_make_no_draft_and_leave_nothing_behind(rule: str) -> None:
    target, draft = tiny_target(0), outrider.load(tiny_model(0))
    drafter = DraftModel(target.info, DraftModelOptions(model=draft))
    options: dict[str, Any] = {"max_new_tokens": 20, "temperature": 1.0, "seed": 3, "rule": rule, "adaptive": False}
    weight, kept = draft.model.lm_head.weight, draft.model.lm_head.weight.detach().clone()
    with torch.no_grad():
        weight.fill_(float("nan"))
    broken = outrider.generate(target, prompt_of(9), drafter, **options)
    assert broken.stats.num_accepted_draft_tokens == 0
    assert len(broken.token_ids) == 20
    with torch.no_grad():
        weight.copy_(kept)
    healed = outrider.generate(target, prompt_of(9), drafter, **options)
    fresh = DraftModel(target.info, DraftModelOptions(model=draft))
    assert (
        healed.stats.acceptance_histogram
        == outrider.generate(target, prompt_of(9), fresh, **options).stats.acceptance_histogram
    )


def test_one_drafter_object_serves_threads() -> None:
    target = tiny_target(0)
    drafter = DraftModel(target.info, DraftModelOptions(model=_noisy(target.model), branching=2))
    prompts = [prompt_of(5 + at, at) for at in range(6)]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda prompt: outrider.generate(target, prompt, drafter, max_new_tokens=25), prompts))
    for prompt, result in zip(prompts, found, strict=True):
        assert list(result.token_ids) == plain_loop(target.model, prompt, 25)
