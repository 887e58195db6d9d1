"""The heads that come with the built-in drafters: found by the target alone, alive, described and small."""

import json
from typing import Any

import pytest

import outrider
from outrider_drafters.shipped import ROOT

NAMES = sorted(path.name for path in (ROOT / "smollm2").iterdir())
QUESTIONS = (
    "What causes the seasons on Earth? Explain it to a child.",
    "A box holds 12 eggs. How many eggs do 7 boxes hold?",
    "Write a short letter to a neighbour about a lost cat.",
)
MOST_BYTES = 60_000_000


def figures(name: str) -> list[dict[str, Any]]:
    """Return what was measured, row by row."""
    written = (ROOT / "smollm2" / name / "figures.json").read_text(encoding="utf-8")
    return [row for line in written.splitlines() for row in json.loads(line)["figures"]]


def test_every_kind_is_there() -> None:
    assert NAMES == ["draft-model", "eagle3", "medusa"]


@pytest.mark.parametrize("name", NAMES)
def test_they_are_found_by_the_target_and_draft(smollm2: outrider.Target, name: str) -> None:
    """At least half of what the card says that they bring is seen on other questions."""
    tokens = steps = 0
    for question in QUESTIONS:
        plain = outrider.generate(smollm2, question, "none", max_new_tokens=40)
        drafted = outrider.generate(smollm2, question, name, max_new_tokens=40, adaptive=False)
        assert drafted.token_ids == plain.token_ids
        tokens, steps = tokens + drafted.stats.num_tokens, steps + drafted.stats.num_steps
    promised = figures(name)[0]["mean_acceptance_length"]["value"]
    assert tokens / steps > 1 + (promised - 1) / 2


@pytest.mark.parametrize("name", NAMES)
def test_each_has_a_card_with_the_figures_that_it_shows(name: str) -> None:
    card = (ROOT / "smollm2" / name / "README.md").read_text(encoding="utf-8")
    rows = figures(name)
    assert rows
    for row in rows:
        assert f"| `{row['row']}` | **{row['mean_acceptance_length']['value']:.2f}** |" in card


def test_together_they_are_small() -> None:
    assert sum(path.stat().st_size for path in ROOT.rglob("*") if path.is_file()) <= MOST_BYTES
