"""A toy world: laws from tables, so that the real drafting, verifying and decoding can be run under every decision."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import ClassVar

import numpy as np
import torch

from outrider import DrafterOptions, DraftTree, DraftView, RowDrafter, TargetInfo, TokenView
from outrider.draft.contract import API
from outrider.draft.laws import POINT, DraftLaws
from outrider.verify.decisions import Decisions, enumerate_runs
from outrider.verify.processors import Processors
from outrider.verify.sampling import Sampler

Law = dict[tuple[int, ...], float]
Prefix = tuple[int, ...]


@dataclass(frozen=True)
class Toy:
    """A target and a draft law at every prefix, at random."""

    vocab: int
    seed: int
    same: bool = False
    """Whether q is p."""

    def logits(self, prefix: Prefix) -> torch.Tensor:
        """Float32, as scores are whatever the model's dtype, so that no law is rounded on its way."""
        return _law(self.vocab, self.seed, 0, prefix).log().float()

    def p(self, prefix: Prefix) -> torch.Tensor:
        return self.logits(prefix).double().softmax(-1)

    def q(self, prefix: Prefix) -> torch.Tensor:
        return self.p(prefix) if self.same else _law(self.vocab, self.seed, 1, prefix)

    @property
    def info(self) -> TargetInfo:
        return TargetInfo(self.vocab, 1, 1, None, frozenset(), torch.float64, torch.device("cpu"), None)

    def law(self, length: int) -> Law:
        """The exact law of sequences."""
        found: Law = {}
        for sequence in product(range(self.vocab), repeat=length):
            found[sequence] = float(np.prod([float(self.p(sequence[:n])[sequence[n]]) for n in range(length)]))
        return found


@lru_cache(maxsize=100_000)
def _law(vocab: int, seed: int, kind: int, prefix: Prefix) -> torch.Tensor:
    return torch.tensor(np.random.default_rng([seed, kind, *prefix, len(prefix)]).dirichlet([0.7] * vocab))


class ToyDrafter(RowDrafter[DrafterOptions]):
    """Draws a tree of a fixed shape from q, or chooses it.

    Args:
        shape: children at each depth.
        kind: `sampled` without replacement, `iid` with, `chosen` (the likeliest), `mixed` (the likeliest, then drawn ones).
    """

    name: ClassVar[str] = "toy"
    requires_api: ClassVar[tuple[int, int]] = API

    def __init__(self, toy: Toy, shape: Sequence[int], kind: str) -> None:
        super().__init__(toy.info, DrafterOptions())
        self.toy, self.shape, self.kind = toy, tuple(shape), kind

    def propose_row(self, view: DraftView) -> DraftTree:
        tokens: list[int] = []
        parents: list[int] = []
        q_rows: list[int] = []
        q: list[torch.Tensor] = []
        level: list[tuple[int, Prefix]] = [(-1, tuple(view.ids))]
        for depth, count in enumerate(self.shape[: view.max_depth]):
            following: list[tuple[int, Prefix]] = []
            for node, prefix in level:
                law = self.toy.q(prefix)
                q.append(law)
                for token, drawn in self.children(view, law, count, 100 * depth + node + 1):
                    following.append((len(tokens), (*prefix, token)))
                    tokens.append(token)
                    parents.append(node)
                    q_rows.append(len(q) - 1 if drawn else POINT)
            level = following
        if self.kind == "chosen" or not tokens:
            return DraftTree(tuple(tokens), tuple(parents))
        laws = DraftLaws(torch.stack(q), replacement=self.kind == "iid")
        return DraftTree(tuple(tokens), tuple(parents), tuple(q_rows), laws)

    def children(self, view: DraftView, law: torch.Tensor, count: int, index: int) -> list[tuple[int, bool]]:
        best = law.topk(count).indices.tolist()
        if self.kind == "chosen":
            return [(token, False) for token in best]
        if self.kind == "iid":
            return [(view.draw(law, 1, 50 * index + copy)[0], True) for copy in range(count)]
        if self.kind == "mixed":
            left = law.clone()
            left[best[0]] = 0.0
            rest = view.draw(left / left.sum(), count - 1, index) if count > 1 else []
            return [(best[0], False), *[(token, True) for token in rest]]
        return [(token, True) for token in view.draw(law, count, index)]


class Liar(ToyDrafter):
    """A drafter whose q is not what it drew from."""

    def propose_row(self, view: DraftView) -> DraftTree:
        honest = super().propose_row(view)
        if self.kind == "sampled":
            return self.lie(honest)
        laws = DraftLaws(torch.stack([self.toy.q(tuple(view.ids))]))  # chosen, declared as drawn
        return DraftTree(honest.tokens, honest.parents, (0,) * len(honest), laws)

    def lie(self, honest: DraftTree) -> DraftTree:
        assert honest.laws is not None
        q = honest.laws.q**2
        return DraftTree(honest.tokens, honest.parents, honest.q_rows, DraftLaws(q / q.sum(-1, keepdim=True)))


def step(toy: Toy, drafter: ToyDrafter, rule: str, prefix: Prefix, decisions: Decisions) -> tuple[int, ...]:
    """One step of the real code: draft and verify; returns what it emits."""
    view = DraftView(0, TokenView(list(prefix)), 9, 64, rule, decisions)
    tree = drafter.propose_row(view)
    paths = [prefix, *[(*prefix, *[tree.tokens[n] for n in tree.path(node)]) for node in range(len(tree))]]
    logits = torch.stack([toy.logits(path) for path in paths])
    sampler = Sampler(Processors((), True), decisions, rule)
    verdict = sampler.verify(sampler.scores(logits, tree, prefix), len(prefix))
    return (*[tree.tokens[node] for node in verdict.path], verdict.bonus)


def step_law(toy: Toy, drafter: ToyDrafter, rule: str, prefix: Prefix) -> Law:
    found: Law = {}
    for emitted, probability in enumerate_runs(lambda decisions: step(toy, drafter, rule, prefix, decisions)):
        found[emitted] = found.get(emitted, 0.0) + probability
    return found


def completed_law(toy: Toy, drafter: ToyDrafter, rule: str, length: int) -> Law:
    """The law of `length` tokens of which a first step makes some and the target's own law the rest.

    If it is the target's for every prefix, so is that of any number of steps, since each begins afresh.
    """
    found: Law = {}
    for emitted, probability in step_law(toy, drafter, rule, ()).items():
        for rest in product(range(toy.vocab), repeat=max(length - len(emitted), 0)):
            sequence = (*emitted, *rest)[:length]
            chance = probability
            for place in range(len(emitted), length):
                chance *= float(toy.p(sequence[:place])[sequence[place]])
            found[sequence] = found.get(sequence, 0.0) + chance
    return found


def sequence_law(toy: Toy, drafter: ToyDrafter, rule: str, length: int, prefix: Prefix = ()) -> Law:
    """The law of the first `length` tokens, every step's law worked out once for each prefix."""
    if len(prefix) >= length:
        return {(): 1.0}
    found: Law = {}
    for emitted, probability in step_law(toy, drafter, rule, prefix).items():
        emitted = emitted[: length - len(prefix)]
        for rest, chance in sequence_law(toy, drafter, rule, length, (*prefix, *emitted)).items():
            sequence = (*emitted, *rest)
            found[sequence] = found.get(sequence, 0.0) + probability * chance
    return found


def several_steps(toy: Toy, drafter: ToyDrafter, rule: str, length: int) -> Law:
    """The law of the first `length` tokens, every run from the start, so that nothing between steps is taken for granted."""

    def run(decisions: Decisions) -> tuple[int, ...]:
        ids: tuple[int, ...] = ()
        while len(ids) < length:
            ids = (*ids, *step(toy, drafter, rule, ids, decisions))
        return ids[:length]

    found: Law = {}
    for sequence, probability in enumerate_runs(run):
        found[sequence] = found.get(sequence, 0.0) + probability
    return found


def distance(one: Law, other: Law) -> float:
    """Total variation."""
    return sum(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in {*one, *other}) / 2
