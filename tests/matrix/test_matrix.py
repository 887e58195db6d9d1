"""A part of the matrix that shows every tier and every way to attend."""

import pytest

from matrix.__main__ import known, verdict

TIERS = {
    "llama": "tree",
    "mistral": "tree",
    "gemma2": "tree",
    "gemma3_text": "tree",
    "llama4_text": "paths",  # scales attention by the column's index, whatever position it is told
    "gpt2": "tree",
    "gpt_oss": "tree",
    "mixtral": "tree",
    "deepseek_v3": "tree",
    "roberta": "tree",
    "falcon-new": "tree",
    "llama-eager": "tree",
    "llama-yarn": "tree",
    "phi3-sliding": "tree",
    "bloom": "paths",
    "mpt": "paths",
    "gpt_neo": "paths",
    "falcon-alibi": "paths",
    "t5 (encoder-decoder)": "paths",
    "bart (encoder-decoder)": "paths",
    "lfm2": "replay",
    "mamba2": "replay",
    "deepseek_v32": "replay",
}


@pytest.mark.parametrize("name", TIERS)
def test_the_text_is_that_of_generate(name: str) -> None:
    found = verdict(known()[name])
    assert (found.outcome, found.tier) == ("equal", TIERS[name]), found.note


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("phi3-longrope", "longrope"),
        ("mamba", "its path's alone"),
        ("rwkv", "no key-value cache"),
        ("xlstm", "can't be verified exactly"),
    ],
)
def test_what_is_refused_says_why(name: str, reason: str) -> None:
    found = verdict(known()[name])
    assert found.outcome == "refused"
    assert reason in found.note


def test_a_model_that_is_not_a_function_of_its_text_is_refused() -> None:
    """Its sliding cache and its causal mask part once the text is longer than the window."""
    assert verdict(known()["moshi"]).outcome == "refused"
