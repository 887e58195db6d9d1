"""Texts follow the target's law under a ratio rule: two steps of the real loop, run under every decision there is."""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Any, Final

import torch
from transformers import LogitsProcessorList, TopKLogitsWarper

from outrider.check.check import Case, Check, CheckFailedError, Make, hold
from outrider.check.leading import Lead
from outrider.check.targets import FEW, VARIED, prompt, tiny_target
from outrider.decode.loop import take_step
from outrider.draft.contract import Drafter
from outrider.target.model import Target
from outrider.verify.decisions import Decisions, enumerate_runs
from outrider.verify.processors import Processors
from outrider.verify.sampling import Sampler

# Of five ids two are left, so that two steps have no more than some hundred outcomes.
_PROCESSORS: Final = Processors.of(LogitsProcessorList([TopKLogitsWarper(2)]))
_LENGTH: Final = 3
_NEAR: Final = 1e-5
Ids = tuple[int, ...]


def checks() -> Iterator[Check]:
    """Yield the checks."""
    yield Check(
        "sequence-law",
        "sampling",
        "two steps under the rule rejection give texts of exactly the target's law (C10)",
        _law,
        trait="samples",
    )


def _law(make: Make) -> None:
    for seed in range(4):
        target = tiny_target(seed, VARIED, FEW)

        def run(case: Case, target: Target = target) -> None:
            first = case.ids[0]
            expected = _expected(target, (*case.ids, first))
            found = _found(target, make(target.info), case.ids, first)
            far = sum(abs(found.get(ids, 0.0) - chance) for ids, chance in expected.items()) / 2
            if far > _NEAR:
                raise CheckFailedError(
                    f"texts of {_LENGTH} tokens are off the target's law by a total variation of {far:.3f}"
                )

        hold(Case(tuple(prompt(6, seed, FEW)), setting=f"vocabulary {FEW}, top_k 2"), run)


def _found(target: Target, drafter: Drafter[Any], prompt_ids: Ids, first: int) -> dict[Ids, float]:
    """Return the law of texts of which two steps make some tokens, and the target's own law the rest."""
    found: dict[Ids, float] = {}
    before = (*prompt_ids, first)

    def run(decisions: Decisions) -> Ids:
        with Lead(target, drafter, [prompt_ids]) as lead:
            lead.start([first])
            row = lead.rows[0]
            row.request = replace(row.request, sampler=Sampler(_PROCESSORS, decisions, "rejection"))
            lead.asking.depth = 1
            for _ in range(2):
                take_step(target, lead.guard, lead.rows, lead.cache, lead.needs, lead.asking)
            return tuple(row.ids[len(before) :])

    for text, chance in enumerate_runs(run):
        for rest in product(range(FEW), repeat=max(_LENGTH - len(text), 0)):
            whole = (*text, *rest)[:_LENGTH]
            share = chance
            for place in range(len(text), _LENGTH):
                share *= _p(target, (*before, *whole[:place]))[whole[place]]
            found[whole] = found.get(whole, 0.0) + share
    return found


def _expected(target: Target, before: Ids) -> dict[Ids, float]:
    law: dict[Ids, float] = {(): 1.0}
    for _ in range(_LENGTH):
        law = {
            (*ids, token): chance * share
            for ids, chance in law.items()
            for token, share in enumerate(_p(target, (*before, *ids)))
        }
    return law


@lru_cache(maxsize=4096)
def _p(target: Target, ids: Ids) -> list[float]:
    model: Any = target.model
    with torch.no_grad():
        scores = _PROCESSORS.warp(model(torch.tensor([ids])).logits[:, -1])
        law: list[float] = scores[0].double().softmax(-1).tolist()
    return law
