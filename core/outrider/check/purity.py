"""A drafter leaves the process, the target and what it is shown as they were."""

import random
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from outrider.check.check import Case, Check, CheckFailedError, Make, hold
from outrider.check.leading import Lead, nothing
from outrider.check.settings import settings, settings_kept
from outrider.check.targets import prompt, tiny_target
from outrider.draft.contract import OutcomeBatch
from outrider.draft.features import Features
from outrider.draft.guard import Guard
from outrider.target.model import Target

_WAYS = ((None, "match"), (3, "match"), (3, "rejection"))


def checks() -> Iterator[Check]:
    """Yield the checks."""
    yield Check(
        "global-generators", "basic", "no global generator of torch, numpy or Python is touched (C7)", _generators
    )
    yield Check(
        "purity",
        "basic",
        "the target's weights, the ids and features that are shown, and torch's settings stay as they are (C16)",
        _pure,
    )


def _use(target: Target, make: Make, case: Case, guard: type[Guard] = Guard) -> Lead:
    """Use a drafter in every way, on one row."""
    drafter = make(target.info)
    with Lead(target, drafter, [case.ids], guard=guard(drafter)) as lead:
        lead.start([case.ids[0]])
        for seed, rule in _WAYS:
            lead.propose(seed=seed, rule=rule)
        lead.step([nothing], [case.ids[-1]])
        lead.step([lambda tree: len(tree) - 1 if len(tree) and not tree.scouts else -1], [3])
        lead.propose()
    return lead


def _generators(make: Make) -> None:
    target = tiny_target()

    def run(case: Case) -> None:
        make(target.info)  # what is loaded once may draw once
        before = _drawn_from()
        _use(target, make, case)
        touched = [name for name, state in _drawn_from().items() if state != before[name]]
        if touched:
            raise CheckFailedError(f"the drafter drew from {touched[0]}'s global generator; use DraftView.draw")

    hold(Case(tuple([4, 5, 6] * 5)), run)


def _drawn_from() -> dict[str, Any]:
    state: Any = np.random.get_state(legacy=False)
    return {
        "torch": torch.get_rng_state().tolist(),
        "numpy": (state["state"]["key"].tolist(), state["state"]["pos"]),
        "Python": random.getstate(),
    }


class _FeaturesStay(Guard):
    """Sees whether a drafter changes the features that it hears."""

    def observe(self, batch: OutcomeBatch) -> None:
        """See `Guard`."""
        heard = [one.features for one in batch.rows if one.features is not None]
        before = [[part.clone() for part in _parts(one)] for one in heard]
        super().observe(batch)
        after = [_parts(one) for one in heard]
        for one, other in zip(before, after, strict=True):
            if not all(torch.equal(a, b) for a, b in zip(one, other, strict=True)):
                raise CheckFailedError("the drafter wrote into the features that it was shown")


def _parts(features: Features) -> Sequence[torch.Tensor]:
    logits = [] if features.logits is None else [features.logits]
    return [*features.states.values(), *logits, *(part for both in features.keys_values.values() for part in both)]


def _pure(make: Make) -> None:
    target = tiny_target(3)
    model: Any = target.model

    def run(threads: int, case: Case) -> None:
        weights = {name: one.clone() for name, one in model.state_dict().items()}
        try:
            with settings_kept():
                torch.set_num_threads(threads)
                before = settings()
                lead = _use(target, make, case, _FeaturesStay)
                changed = next((name for name, value in settings().items() if value != before[name]), None)
        finally:
            other = [name for name, one in model.state_dict().items() if not torch.equal(one, weights[name])]
            model.load_state_dict(weights)
        if changed:
            raise CheckFailedError(f"the drafter changed torch's {changed}")
        if other:
            raise CheckFailedError(f"the drafter changed the target's weights: {other[0]}")
        row = lead.rows[0]
        if list(row.view) != row.ids:
            raise CheckFailedError("the drafter changed the ids that it was shown")

    # With two numbers of threads, of which none that a drafter sets can be both.
    for threads, ids in ((1, [4, 5, 6] * 5), (2, prompt(20, 3))):
        hold(Case(tuple(ids), setting=f"torch's threads {threads}"), partial(run, threads))
