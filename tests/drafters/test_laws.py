"""Every drafter's law, exactly: whole runs of the real loop on a tiny model, under every random decision there is."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

import outrider
from outrider.decode.loop import decode
from outrider.decode.request import read_request
from outrider.decode.row import Row
from outrider.decode.stats import Stats
from outrider.draft.guard import Guard
from outrider.verify.decisions import Decisions, enumerate_runs
from outrider.verify.sampling import Sampler
from support import registered, tiny_model
from toy import Law, distance

VOCAB, KEPT = 5, 3
PROMPT = [0, 1, 2] * 6
SHAPES: dict[str, list[dict[str, Any]]] = {
    "draft-model": [
        {"draft_tokens": 1},
        {"draft_tokens": 2},
        {"draft_tokens": 2, "branching": 2},
        {"temperature": 0.5},
    ],
    "eagle": [{"depth": 2, "branching": 1}, {"depth": 1, "branching": 2}],
    "eagle3": [{"depth": 2, "branching": 1}],
    "medusa": [{"depth": 2, "branching": 1}, {"depth": 2, "nodes": 3}, {"tree": "dynamic", "nodes": 2}],
    "self": [{"draft_tokens": 2}, {"draft_tokens": 2, "branching": 2}],
}
RANDOM = ("eagle", "eagle3", "medusa")
CASES = [(record.name, shape) for record in outrider.drafters() for shape in SHAPES.get(record.name, [{}])]


def _target() -> outrider.Target:
    return outrider.load(tiny_model(6, vocab_size=VOCAB, dtype=torch.float32))


@torch.no_grad()
def _expected(model: Any, length: int) -> Law:
    """The model's own law of texts, from one forward a prefix."""
    found: Law = {(): 1.0}
    for _ in range(length):
        longer: Law = {}
        for text, probability in found.items():
            scores = model(torch.tensor([[*PROMPT, *text]])).logits[0, -1].double()
            law = scores.masked_fill(scores < scores.topk(KEPT).values[-1], -torch.inf).softmax(-1)
            for token in range(VOCAB):
                longer[*text, token] = probability * float(law[token])
        found = longer
    return found


def _runs(
    name: str, shape: dict[str, Any], rule: str, length: int, kept: int = KEPT
) -> Iterator[tuple[tuple[int, ...], int, float]]:
    """Every run of the real loop: its text, how many drafted tokens its first draft had accepted, its probability."""
    target = _target()
    word = registered(target)[name]
    options = dict(word["options"]) if isinstance(word, dict) else {}
    if name == "draft-model":
        options["model"] = tiny_model(4, vocab_size=VOCAB, dtype=torch.float32)
    guard = Guard(outrider.make_drafter(name, options | shape, target.info))
    asked: dict[str, Any] = {"max_new_tokens": length, "temperature": 1.0, "top_k": kept, "seed": 0, "rule": rule}
    request = read_request(target, PROMPT, asked | {"adaptive": False})

    def run(decisions: Decisions) -> tuple[tuple[int, ...], int]:
        row = Row(replace(request, sampler=Sampler(request.sampler.processors, decisions, rule)), Stats())
        first = 0
        for _ in decode(target, guard, [row]):
            first = row.stats.num_accepted_draft_tokens if row.stats.num_spec_steps <= 1 else first
        return tuple(row.ids[len(PROMPT) :]), first

    for (text, first), probability in enumerate_runs(run):
        yield text, first, probability


@pytest.mark.parametrize("rule", ["match", "rejection", "block"])
@pytest.mark.parametrize(("name", "shape"), CASES)
def test_whole_runs_keep_the_target_s_law(name: str, shape: dict[str, Any], rule: str) -> None:
    length = 3 if name in SHAPES else 4  # a drawn draft has many more runs
    found, accepted = dict[tuple[int, ...], float](), 0
    for text, first, probability in _runs(name, shape, rule, length):
        found[text] = found.get(text, 0.0) + probability
        accepted += first
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-9)
    assert distance(found, _expected(_target().model, length)) < 1e-5  # float32 forwards of other shapes
    if not (name in RANDOM and rule == "match"):  # the likeliest tokens of random heads need not be the target's
        assert (accepted > 0) == (name != "none")


@pytest.mark.parametrize("name", ["draft-model", "self"])
def test_block_accepts_at_least_what_rejection_accepts(name: str) -> None:
    expected = {
        rule: sum(first * probability for _, first, probability in _runs(name, {"draft_tokens": 2}, rule, 4, 2))
        for rule in ("rejection", "block")
    }
    assert expected["block"] >= expected["rejection"] - 1e-9
    assert expected["rejection"] > 0
