"""Nodes that are declared as drawn from a law were drawn from it: every draw that the drafter could make is enumerated."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final

import torch
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper

from outrider.check.check import Case, Check, CheckFailedError, Make, hold
from outrider.check.leading import Lead
from outrider.check.targets import FEW, VARIED, prompt, tiny_target
from outrider.draft.laws import POINT
from outrider.draft.tree import DraftTree
from outrider.verify.decisions import enumerate_runs
from outrider.verify.processors import Processors

_MOST_RUNS: Final = 1200
_NEAR: Final = 1e-5
"""Laws are float32."""
Warp = Callable[[torch.Tensor], torch.Tensor]


def _warp(temperature: float, top_k: int = FEW) -> Warp:
    return Processors.of(LogitsProcessorList([TemperatureLogitsWarper(temperature), TopKLogitsWarper(top_k)])).warp


_WARPS: Final[dict[str, Warp]] = {
    "temperature 1": _warp(1.0),
    "temperature 0.5": _warp(0.5),
    "temperature 2, top_k 3": _warp(2.0, 3),
}


def checks() -> Iterator[Check]:
    """Yield the checks."""
    yield Check(
        "declared-law",
        "sampling",
        "a single drawn token has the law q that its tree declares, at several temperatures and filters (C3, C4)",
        lambda make: _drawn(make, _WARPS, 1, first=True),
        trait="samples",
    )
    yield Check(
        "sibling-law",
        "sampling",
        "later siblings have the law that the earlier ones leave, in the order in which they were drawn (C5)",
        lambda make: _drawn(make, {"top_k 3": _warp(1.0, 3)}, 1),
        trait="samples",
    )
    yield Check(
        "kept-draws",
        "sampling",
        "no drawn token is dropped, moved or replaced for its own score, at any depth (C6)",
        lambda make: _drawn(make, {"top_k 2": _warp(1.0, 2)}, 4),
        trait="samples",
    )


def _drawn(make: Make, warps: dict[str, Warp], depth: int, *, first: bool = False) -> None:
    for name, warp in warps.items():
        for seed, spread in ((0, VARIED), (1, 2 * VARIED)):
            run = partial(_draw_all, make, (seed, spread), warp, depth, first)
            case = Case(tuple(prompt(7, 3 + seed, FEW)), setting=f"vocabulary {FEW}, {name}, max_depth {depth}")
            hold(case, run)


def _draw_all(make: Make, made: tuple[int, float], warp: Warp, depth: int, first: bool, case: Case) -> None:
    target = tiny_target(*made, FEW)
    with Lead(target, make(target.info), [case.ids]) as lead:
        lead.start([case.ids[0]])
        for reach in range(depth, 0, -1):
            runs = enumerate_runs(
                lambda decisions: lead.propose(depth=reach, rule="rejection", decisions=decisions, warp=warp)  # noqa: B023
            )
            every = list(islice(runs, _MOST_RUNS))
            if len(every) < _MOST_RUNS:  # else a shallower tree has to do
                _check_draws(every, first)
                return


Key = tuple[tuple[int, ...], tuple[int, ...]]
"""The tokens that lead to a node's parent, and the siblings before it."""


def _check_draws(runs: list[tuple[DraftTree, float]], first: bool) -> None:
    """Compare, for every node there may be, the law of its token where there is one with the law that the rules take for it."""
    found: dict[Key, torch.Tensor] = {}
    declared: dict[Key, torch.Tensor] = {}
    for tree, chance in runs:
        for node, row in enumerate(tree.q_rows):
            if row == POINT or tree.laws is None:
                continue
            key = _key(tree, node)
            if first and key[1]:
                continue
            law = tree.laws.row(row, FEW)
            if not tree.laws.replacement:
                law[list(key[1])] = 0.0
            law = law / law.sum()
            if key in declared and not torch.allclose(declared[key], law, atol=_NEAR):
                raise CheckFailedError(f"after {_named(key)} the declared law hangs on what was drawn later")
            declared[key] = law
            found.setdefault(key, torch.zeros(FEW, dtype=torch.float64))[tree.tokens[node]] += chance
    for key, masses in found.items():
        law = masses / masses.sum()
        far = float((law - declared[key]).abs().sum() / 2)
        if far > _NEAR:
            shown = [[round(one, 3) for one in each.tolist()] for each in (law, declared[key])]
            raise CheckFailedError(
                f"{_named(key)} has the law {shown[0]}, and q is {shown[1]} (total variation {far:.3f})"
            )


def _key(tree: DraftTree, node: int) -> Key:
    parent = tree.parents[node]
    above = () if parent < 0 else tuple(tree.tokens[one] for one in tree.path(parent))
    return above, tuple(tree.tokens[one] for one in tree.children(parent) if one < node)


def _named(key: Key) -> str:
    return f"the node below {list(key[0])} beside {list(key[1])}"
