"""Every processor of the generation config holds under every draft: greedy as `generate`, sampled as without a drafter."""

from typing import Any

import pytest
import torch
import transformers

import outrider
from support import SCRIPTS, VOCAB, Scripted, prompt_of, tiny_target, transformers_generate

PROMPT = prompt_of(9, 1)
NAMES = ["ngram", "partly right chain", "partly right tree"]


class Counting(transformers.LogitsProcessor):
    """Keeps the prefixes that it is called with."""

    def __init__(self) -> None:
        self.prefixes: list[list[int]] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.prefixes.append(input_ids[0].tolist())
        return scores - 5.0 * (torch.arange(VOCAB) == input_ids[0, -1])


def _even(batch: int, ids: torch.Tensor) -> list[int]:
    return list(range(int(ids[-1]) % 2, VOCAB, 2))


OPTIONS: dict[str, dict[str, Any]] = {
    "top_k": {"top_k": 4},
    "top_p": {"top_p": 0.6, "top_k": 0},
    "min_p": {"min_p": 0.2},
    "typical_p": {"typical_p": 0.7},
    "top_h": {"top_h": 0.5},
    "epsilon_cutoff": {"epsilon_cutoff": 0.02},
    "eta_cutoff": {"eta_cutoff": 0.02},
    "renormalize_logits": {"renormalize_logits": True},
    "repetition_penalty": {"repetition_penalty": 1.7},
    "encoder_repetition_penalty": {"encoder_repetition_penalty": 1.7},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 2},
    "encoder_no_repeat_ngram_size": {"encoder_no_repeat_ngram_size": 2},
    "bad_words_ids": {"bad_words_ids": [[36], [18, 18], [47, 32]]},
    "sequence_bias": {"sequence_bias": [[[18], -4.0], [[32, 47], -9.0]]},
    "min_new_tokens": {"min_new_tokens": 12, "eos_token_id": [18, 32, 47]},
    "forced_eos_token_id": {"forced_eos_token_id": 5},
    "suppress_tokens": {"suppress_tokens": [18, 32, 33]},
    "begin_suppress_tokens": {"begin_suppress_tokens": list(range(40))},
    "exponential_decay_length_penalty": {"exponential_decay_length_penalty": (4, 1.2), "eos_token_id": 9},
    "prefix_allowed_tokens_fn": {"prefix_allowed_tokens_fn": _even},
    "logits_processor": {"logits_processor": transformers.LogitsProcessorList([Counting()])},
}
# Filters that `generate` applies only when it samples, and that never remove the likeliest token.
FILTERS = ("top_k", "top_p", "min_p", "typical_p", "top_h", "epsilon_cutoff", "eta_cutoff")


@pytest.mark.parametrize("option", OPTIONS)
def test_sampled_text_is_that_without_a_drafter(option: str) -> None:
    """21 options, 3 temperatures, 3 seeds, 3 drafts: 567 runs."""
    for temperature in (0.5, 1.0, 2.0):
        for seed in range(3):
            target = tiny_target(seed, 0.1)
            settings: dict[str, Any] = {
                "max_new_tokens": 14,
                "temperature": temperature,
                "seed": seed,
                **OPTIONS[option],
            }
            plain = outrider.generate(target, PROMPT, "none", **settings).token_ids
            for name in NAMES:
                drafter = Scripted(target, SCRIPTS[name]([*PROMPT, *plain])) if name in SCRIPTS else name
                found = outrider.generate(target, PROMPT, drafter, **settings, adaptive=False)
                assert found.token_ids == plain, (temperature, seed, name)
                if name in SCRIPTS and len(plain) == 14:
                    assert found.stats.num_accepted_draft_tokens > 0


@pytest.mark.parametrize("option", [name for name in OPTIONS if name not in FILTERS])
def test_greedy_text_is_that_of_generate(option: str) -> None:
    for seed in range(3):
        target = tiny_target(seed, 0.1)
        settings: dict[str, Any] = {"max_new_tokens": 24, **OPTIONS[option]}
        pad = {"pad_token_id": 0} if "eos_token_id" in settings else {}
        expected = transformers_generate(target.model, PROMPT, **settings, **pad)
        for name in NAMES:
            drafter = Scripted(target, SCRIPTS[name]([*PROMPT, *expected])) if name in SCRIPTS else name
            assert list(outrider.generate(target, PROMPT, drafter, **settings).token_ids) == expected, (seed, name)


def test_a_processor_sees_every_emitted_prefix_once_and_no_other() -> None:
    """Case 7: on a CPU a walk asks for the nodes that it visits alone, so even one that counts what it sees counts right."""
    target = tiny_target(1, 0.1)
    counting = Counting()
    processors = transformers.LogitsProcessorList([counting])
    plain = outrider.generate(target, PROMPT, "none", max_new_tokens=20, logits_processor=processors)
    text = [*PROMPT, *plain.token_ids]
    for name in ("partly right tree", "wrong chain"):
        counting.prefixes.clear()
        drafter = Scripted(target, SCRIPTS[name](text))
        found = outrider.generate(target, PROMPT, drafter, max_new_tokens=20, logits_processor=processors)
        assert found.token_ids == plain.token_ids
        assert counting.prefixes == [text[:length] for length in range(9, 29)]


def test_processors_that_keep_state_of_their_own_are_refused_by_name() -> None:
    config = transformers.SynthIDTextWatermarkingConfig(keys=[1, 2, 3], ngram_len=2)
    with pytest.raises(outrider.InputError, match="SynthIDTextWatermarkLogitsProcessor keeps state"):
        outrider.generate(tiny_target(), PROMPT, "ngram", max_new_tokens=4, temperature=1.0, watermarking_config=config)
