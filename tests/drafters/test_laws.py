"""Every drafter's law, exactly: whole runs of the real loop on a tiny model, under every random decision there is."""

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
    "medusa": [{"depth": 2, "branching": 1}, {"depth": 2, "nodes": 3}, {"tree": "dynamic", "nodes": 2}],
    "self": [{"draft_tokens": 2}, {"draft_tokens": 2, "branching": 2}],
}
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


@pytest.mark.parametrize("rule", ["match", "rejection", "block"])
@pytest.mark.parametrize(("name", "shape"), CASES)
def test_whole_runs_keep_the_target_s_law(name: str, shape: dict[str, Any], rule: str) -> None:
    target = _target()
    word = registered(target)[name]
    options = dict(word["options"]) if isinstance(word, dict) else {}
    if name == "draft-model":
        options["model"] = tiny_model(4, vocab_size=VOCAB, dtype=torch.float32)
    length = 3 if name in SHAPES else 4  # a drawn draft has many more runs
    guard = Guard(outrider.make_drafter(name, options | shape, target.info))
    asked: dict[str, Any] = {
        "adaptive": False,
        "max_new_tokens": length,
        "temperature": 1.0,
        "top_k": KEPT,
        "seed": 0,
        "rule": rule,
    }
    request = read_request(target, PROMPT, asked)
    accepted = [0]

    def run(decisions: Decisions) -> tuple[int, ...]:
        sampler = Sampler(request.sampler.processors, decisions, rule)
        row = Row(replace(request, sampler=sampler), Stats())
        for _ in decode(target, guard, [row]):
            pass
        accepted[0] += row.stats.num_accepted_draft_tokens
        return tuple(row.ids[len(PROMPT) :])

    found: Law = {}
    for text, probability in enumerate_runs(run):
        found[text] = found.get(text, 0.0) + probability
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-9)
    assert distance(found, _expected(target.model, length)) < 1e-5  # float32 forwards of other shapes
    assert (accepted[0] > 0) == (name != "none")
