"""The ratio rules through the whole loop, on a real tiny model, with a drafter that draws from a declared law."""

from itertools import product
from typing import Any, ClassVar

import pytest
import torch

import outrider
from outrider import DrafterOptions, DraftTree, DraftView, RowDrafter, Target
from outrider.draft.contract import API
from outrider.draft.laws import DraftLaws
from outrider.verify.laws import Residual
from support import SCRIPTS, Scripted, plain_loop, prompt_of, tiny_model, tiny_target

VOCAB, RUNS = 5, 1_500
# Chi-square over 25 pairs of tokens: critical value at 1e-9 with 24 degrees of freedom.
CRITICAL = 91.0
PROMPT = [1, 4, 2]


class Dice(RowDrafter[DrafterOptions]):
    """Draws a chain from a law that has nothing to do with the target's."""

    name: ClassVar[str] = "dice"
    requires_api: ClassVar[tuple[int, int]] = API
    law: ClassVar[torch.Tensor] = torch.tensor([0.4, 0.3, 0.15, 0.1, 0.05])

    def propose_row(self, view: DraftView) -> DraftTree:
        depth = min(2, view.max_depth)
        tokens = [view.draw(self.law.double(), 1, index)[0] for index in range(depth)]
        if not view.wants_q:
            return DraftTree.chain(tokens)
        laws = DraftLaws(self.law.double()[None])
        return DraftTree(tuple(tokens), tuple(range(-1, depth - 1)), (0,) * depth, laws)


def _small_target() -> Target:
    return outrider.load(tiny_model(3, 0.4, vocab_size=VOCAB))


def _law(target: Target) -> dict[tuple[int, ...], float]:
    """The law of the second and third token, the first to come from a step with a draft."""
    model: Any = target.model
    found = dict.fromkeys(product(range(VOCAB), repeat=2), 0.0)
    with torch.no_grad():
        for sequence in product(range(VOCAB), repeat=3):
            law = model(torch.tensor([[*PROMPT, *sequence]])).logits[0, len(PROMPT) - 1 : -1].softmax(-1)
            found[sequence[1:]] += float(law[range(3), list(sequence)].prod())
    return found


def _chi_square(target: Target, rule: str) -> tuple[float, int]:
    law = _law(target)
    counts, accepted = dict.fromkeys(law, 0), 0
    options: dict[str, Any] = {"max_new_tokens": 4, "temperature": 1.0, "top_k": 0, "rule": rule}
    for seed in range(RUNS):
        result = outrider.generate(target, PROMPT, Dice, seed=seed, **options, adaptive=False)
        counts[result.token_ids[1:3]] += 1
        accepted += result.stats.num_accepted_draft_tokens
    return sum((counts[key] - RUNS * p) ** 2 / (RUNS * p) for key, p in law.items()), accepted


@pytest.mark.parametrize("rule", ["match", "rejection", "block"])
def test_sampled_text_follows_the_model_s_law(rule: str) -> None:
    distance, accepted = _chi_square(_small_target(), rule)
    assert distance < CRITICAL
    assert accepted > RUNS / 4


def test_the_test_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outrider.verify.rejection.residual", lambda owed, proposal: Residual(owed, 0.0))
    assert _chi_square(_small_target(), "rejection")[0] > CRITICAL


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_greedy_text_needs_no_coins(rule: str) -> None:
    target, prompt = tiny_target(2), prompt_of(9, 2)
    new = plain_loop(target.model, prompt, 24)
    for name in ("partly right tree", "right chain"):
        drafter = Scripted(target, SCRIPTS[name](prompt + new))
        assert list(outrider.generate(target, prompt, drafter, max_new_tokens=24, rule=rule).token_ids) == new


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_a_seed_gives_its_text_again(rule: str) -> None:
    target = tiny_target(2, 0.1)
    texts = {
        outrider.generate(
            target, [3, 4], "ngram", max_new_tokens=30, temperature=1.0, seed=s, rule=rule, adaptive=False
        ).token_ids
        for s in (5, 5, 5, 6)
    }
    assert len(texts) == 2
