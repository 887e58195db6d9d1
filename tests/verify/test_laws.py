"""The rules' laws, exactly: every decision of the real drafting and verifying code is enumerated."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from outrider import DraftTree, DraftView
from outrider.draft.laws import POINT, DraftLaws
from outrider.verify import block as block_module
from outrider.verify import rejection as rejection_module
from outrider.verify import sampling as sampling_module
from outrider.verify.decisions import Keyed
from outrider.verify.laws import Laws, Proposal, Residual, residual
from outrider.verify.match import Verdict
from outrider.verify.sampling import NodeScores
from toy import Law, Liar, Prefix, Toy, ToyDrafter, completed_law, distance, sequence_law, several_steps, step, step_law

SEEDS = range(6)
RATIO = ("rejection", "block")
CASES: list[tuple[int, tuple[int, ...], str]] = [
    (5, (1,), "sampled"),
    (5, (1, 1), "sampled"),
    (5, (1, 1, 1), "sampled"),
    (5, (2,), "sampled"),
    (5, (2,), "iid"),
    (5, (2, 1), "sampled"),
    (4, (2, 1), "iid"),
    (3, (2, 2), "sampled"),
    (5, (2, 1), "chosen"),
    (5, (3, 1, 1), "chosen"),
    (5, (2, 1), "mixed"),
    (4, (3, 1), "mixed"),
]


@pytest.mark.parametrize("rule", ["match", *RATIO])
@pytest.mark.parametrize(("vocab", "shape", "kind"), CASES)
def test_every_rule_keeps_the_target_s_law(vocab: int, shape: tuple[int, ...], kind: str, rule: str) -> None:
    large = rule == "match" and kind in ("sampled", "iid") and shape[0] > 1
    for seed in SEEDS[:1] if large else SEEDS:  # `match` never asks how a draft came about
        toy = Toy(vocab, seed)
        found = completed_law(toy, ToyDrafter(toy, shape, kind), rule, 3)
        assert sum(found.values()) == pytest.approx(1.0, abs=1e-12)
        assert distance(found, toy.law(3)) < 1e-12


@pytest.mark.parametrize("rule", RATIO)
@pytest.mark.parametrize(("shape", "kind"), [((1, 1), "sampled"), ((2,), "iid")])
def test_the_law_holds_at_every_prefix(shape: tuple[int, ...], kind: str, rule: str) -> None:
    for seed in SEEDS:
        toy = Toy(3, seed)
        assert distance(sequence_law(toy, ToyDrafter(toy, shape, kind), rule, 3), toy.law(3)) < 1e-12


@pytest.mark.parametrize("rule", ["match", *RATIO])
@pytest.mark.parametrize(("shape", "kind"), [((1,), "sampled"), ((2,), "sampled"), ((2,), "mixed"), ((2, 1), "chosen")])
def test_the_law_holds_over_several_steps_run_as_a_whole(shape: tuple[int, ...], kind: str, rule: str) -> None:
    toy = Toy(3, 11)
    assert distance(several_steps(toy, ToyDrafter(toy, shape, kind), rule, 3), toy.law(3)) < 1e-12


def _lengths(law: Law) -> dict[int, float]:
    found: dict[int, float] = {}
    for emitted, probability in law.items():
        found[len(emitted)] = found.get(len(emitted), 0.0) + probability
    return found


def _mean(law: Law) -> float:
    return sum(len(emitted) * probability for emitted, probability in law.items())


def _chains(
    toy: Toy, depth: int, prefix: Prefix = ()
) -> list[tuple[float, list[torch.Tensor], list[torch.Tensor], Prefix]]:
    """All chains that q can draw, with their probability and the laws along them."""
    if depth == 0:
        return [(1.0, [], [], prefix)]
    found = []
    for token, chance in enumerate(toy.q(prefix).tolist()):
        for rest, p, q, path in _chains(toy, depth - 1, (*prefix, token)):
            found.append((chance * rest, [toy.p(prefix), *p], [toy.q(prefix), *q], path))
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_accepted_lengths_follow_their_formulas(seed: int) -> None:
    """Leviathan et al. for `rejection`: 1 + sum of products of sum min(p, q); Sun et al. for `block`: 1 + sum of E[w_i]."""
    toy, depth = Toy(4, seed), 2
    drafter = ToyDrafter(toy, (1,) * depth, "sampled")
    token_wise = joint = 1.0
    for chance, p, q, path in _chains(toy, depth):
        weight, product = 1.0, 1.0
        for level, token in enumerate(path):
            ratio = float(p[level][token] / q[level][token])
            weight = min(weight * ratio, 1.0)
            product *= min(ratio, 1.0)
            joint += chance * weight
            token_wise += chance * product
    assert _mean(step_law(toy, drafter, "rejection", ())) == pytest.approx(token_wise, abs=1e-12)
    assert _mean(step_law(toy, drafter, "block", ())) == pytest.approx(joint, abs=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_law_of_accepted_lengths_of_a_chain(seed: int) -> None:
    """`rejection` emits one token exactly where the first draft is rejected: with the total variation of p and q."""
    toy = Toy(5, seed)
    lengths = _lengths(step_law(toy, ToyDrafter(toy, (1, 1), "sampled"), "rejection", ()))
    assert lengths[1] == pytest.approx(float((toy.p(()) - toy.q(())).clamp(min=0).sum()), abs=1e-12)


@pytest.mark.parametrize("rule", ["match", *RATIO])
@pytest.mark.parametrize("seed", SEEDS)
def test_deterministic_trees_reach_the_most_that_is_possible(rule: str, seed: int) -> None:
    """No lossless rule accepts a node more often than the target's text begins with its path; here all reach it."""
    toy = Toy(5, seed)
    drafter = ToyDrafter(toy, (2, 2), "chosen")
    tree = drafter.propose_row(DraftView(0, [], 9, 64))  # type: ignore[arg-type]
    expected = 1.0
    for node in range(len(tree)):
        tokens = [tree.tokens[step] for step in tree.path(node)]
        expected += math.prod(float(toy.p(tuple(tokens[:place]))[token]) for place, token in enumerate(tokens))
    assert _mean(step_law(toy, drafter, rule, ())) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("shape", "kind"), [((1, 1, 1), "sampled"), ((2, 1), "sampled"), ((2, 1), "iid"), ((2, 1), "mixed")]
)
def test_block_accepts_at_least_what_rejection_accepts_and_that_more_than_match(
    shape: tuple[int, ...], kind: str
) -> None:
    for seed in SEEDS:
        toy = Toy(3, seed)
        drafter = ToyDrafter(toy, shape, kind)
        means = {rule: _mean(step_law(toy, drafter, rule, ())) for rule in ("match", *RATIO)}
        assert means["block"] >= means["rejection"] - 1e-12
        assert means["rejection"] >= means["match"] - 1e-12


@pytest.mark.parametrize("rule", RATIO)
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 1)])
def test_a_draft_from_the_target_s_own_law_is_accepted_whole(rule: str, shape: tuple[int, ...]) -> None:
    toy = Toy(4, 1, same=True)
    law = step_law(toy, ToyDrafter(toy, shape, "sampled"), rule, ())
    assert _mean(law) == pytest.approx(len(shape) + 1, abs=1e-12)


@pytest.mark.parametrize("rule", RATIO)
def test_disjoint_laws_are_always_rejected(rule: str) -> None:
    class Disjoint(Toy):
        def logits(self, prefix: Prefix) -> torch.Tensor:
            return torch.tensor([0.3, 0.7, 0.0, 0.0]).log()

        def q(self, prefix: Prefix) -> torch.Tensor:
            return torch.tensor([0.0, 0.0, 0.5, 0.5]).double()

    toy = Disjoint(4, 0)
    found = step_law(toy, ToyDrafter(toy, (1, 1), "sampled"), rule, ())
    assert found == {(0,): pytest.approx(0.3), (1,): pytest.approx(0.7)}


@pytest.mark.parametrize(("alpha", "size"), [(a, g) for a in (0.5, 0.7, 0.9) for g in (1, 4, 8)])
def test_a_constant_acceptance_gives_the_paper_s_formula(alpha: float, size: int) -> None:
    """(1 - alpha^(g + 1)) / (1 - alpha), on laws of two tokens with sum min(p, q) = alpha; 2.77 tokens at 0.7 and 4."""

    class Constant(Toy):
        def logits(self, prefix: Prefix) -> torch.Tensor:
            return torch.tensor([alpha, 1 - alpha]).double().log()

        def q(self, prefix: Prefix) -> torch.Tensor:
            return torch.tensor([1.0, 0.0]).double()

    toy = Constant(2, 0)
    mean = _mean(step_law(toy, ToyDrafter(toy, (1,) * size, "sampled"), "rejection", ()))
    assert mean == pytest.approx((1 - alpha ** (size + 1)) / (1 - alpha), abs=1e-6)
    if (alpha, size) == (0.7, 4):
        assert mean == pytest.approx(2.77, abs=0.005)


# Mutations: known faults of published decoders, patched into the real code. Each must be caught.


def _patched(name: str, replacement: Any, *modules: Any) -> Callable[[pytest.MonkeyPatch], None]:
    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        for module in modules:
            monkeypatch.setattr(module, name, replacement)

    return patch


def _residual_is_p(owed: torch.Tensor, proposal: Proposal, weight: float = 1.0) -> Residual:
    return Residual(owed, residual(owed, proposal, weight).mass)


def _residual_is_p_without_the_token(owed: torch.Tensor, proposal: Proposal, weight: float = 1.0) -> Residual:
    found = residual(owed, proposal, weight)
    gone = owed.clone()
    gone[found.law == 0] = 0.0
    return Residual(gone / gone.sum(), found.mass) if gone.sum() > 0 else found


def _residual_is_absolute(owed: torch.Tensor, proposal: Proposal, weight: float = 1.0) -> Residual:
    left = (owed * weight - (proposal.law if proposal.law is not None else 0.0)).abs()
    return Residual(left / left.sum(), float(left.sum()))


def _residual_forgets_the_weight(owed: torch.Tensor, proposal: Proposal, weight: float = 1.0) -> Residual:
    return Residual(residual(owed, proposal).law, residual(owed, proposal, weight).mass)


class _AcceptsTooMuch(Proposal):
    __slots__ = ()

    def ratio(self, owed: torch.Tensor, token: int, weight: float = 1.0) -> float:
        return min(1.2 * Proposal.ratio(self, owed, token, weight), 1.0)


def _changed_proposal(change: Callable[[Laws, int, Proposal], Proposal]) -> Callable[[pytest.MonkeyPatch], None]:
    original = Laws.proposal

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Laws, "proposal", lambda self, child: change(self, child, original(self, child)))

    return patch


def _not_masked(laws: Laws, child: int, proposal: Proposal) -> Proposal:
    tree = laws._tree
    return Proposal(-1, tree.laws.row(tree.q_rows[child], 5)) if tree.laws and tree.q_rows[child] != POINT else proposal


def _not_renormalised(laws: Laws, child: int, proposal: Proposal) -> Proposal:
    if proposal.law is None:
        return proposal
    raw = _not_masked(laws, child, proposal).law
    assert raw is not None
    return Proposal(-1, torch.where(proposal.law > 0, raw, 0.0))


def _hotter(laws: Laws, child: int, proposal: Proposal) -> Proposal:
    if proposal.law is None:
        return proposal
    law = proposal.law**1.3
    return Proposal(-1, law / law.sum())


def _accepts_too_much(laws: Laws, child: int, proposal: Proposal) -> Proposal:
    return _AcceptsTooMuch(proposal.token, proposal.law)


def _stops_at_the_first_rejection(tree: DraftTree, laws: Laws, decisions: Any) -> Verdict:
    """Block verification's weights, walked from the root and broken off at the first failure."""
    weight, path = 1.0, list[int]()
    owed = laws.target(-1)
    for node in range(len(tree)):
        proposal = laws.proposal(node)
        left = residual(owed, proposal, weight)
        weight = min(proposal.ratio(owed, tree.tokens[node], weight), 1.0)
        if not decisions.accept(weight, node):
            return Verdict(tuple(path), decisions.choose(left.law, 0))
        path.append(node)
        owed = laws.target(node)
    return Verdict(tuple(path), decisions.choose(owed, 0))


def _changed_laws_of_second_siblings(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is owed after the first sibling is taken for p again when the second is tried."""

    def forgetful(owed: torch.Tensor, proposal: Proposal, weight: float = 1.0) -> Residual:
        found = residual(owed, proposal, weight)
        first = proposal.law is not None and bool((proposal.law > 0).all())
        return Residual(owed, found.mass) if first else found

    monkeypatch.setattr(rejection_module, "residual", forgetful)


def _bonus_from_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Laws.target
    monkeypatch.setattr(Laws, "target", lambda self, node: original(self, node if self._tree.children(node) else -1))


MUTATIONS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], Sequence[str], tuple[int, ...], str]] = {
    "residual is p": (_patched("residual", _residual_is_p, rejection_module, block_module), RATIO, (1, 1), "sampled"),
    "residual is p without the token": (
        _patched("residual", _residual_is_p_without_the_token, rejection_module),
        ("rejection",),
        (1, 1),
        "sampled",
    ),
    "residual is |p - q|": (
        _patched("residual", _residual_is_absolute, rejection_module, block_module),
        RATIO,
        (1, 1),
        "sampled",
    ),
    "residual of a block without its weight": (
        _patched("residual", _residual_forgets_the_weight, block_module),
        ("block",),
        (1, 1),
        "sampled",
    ),
    "accepts too much": (
        _changed_proposal(_accepts_too_much),
        RATIO,
        (1, 1),
        "sampled",
    ),
    "q at another temperature": (_changed_proposal(_hotter), RATIO, (1, 1), "sampled"),
    "q not masked by earlier siblings": (_changed_proposal(_not_masked), RATIO, (2,), "sampled"),
    "q masked but not renormalised": (_changed_proposal(_not_renormalised), RATIO, (2,), "sampled"),
    "block stops at the first rejection": (
        lambda monkeypatch: monkeypatch.setitem(
            __import__("outrider.verify.sampling", fromlist=["RATIO_RULES"]).RATIO_RULES,
            "block",
            lambda tree, scores, decisions: _stops_at_the_first_rejection(tree, Laws(tree, scores), decisions),
        ),
        ("block",),
        (1, 1),
        "sampled",
    ),
    "residual of a sibling not updated": (_changed_laws_of_second_siblings, ("rejection",), (2,), "sampled"),
    "bonus from a stale position": (_bonus_from_the_root, RATIO, (1, 1), "sampled"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutated_rule_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patch, rules, shape, kind = MUTATIONS[name]
    patch(monkeypatch)
    for rule in rules:
        worst = max(_distance(Toy(5, seed), shape, kind, rule) for seed in SEEDS)
        assert worst > 1e-5, rule


def _distance(toy: Toy, shape: tuple[int, ...], kind: str, rule: str, drafter: ToyDrafter | None = None) -> float:
    return distance(completed_law(toy, drafter or ToyDrafter(toy, shape, kind), rule, 3), toy.law(3))


def _draws_anew_for_every_child(tree: DraftTree, draw: Any) -> Verdict:
    """As decoders do that sample the target for every path and keep the longest that agrees."""
    node, path = -1, list[int]()
    while True:
        child = next((one for one in tree.children(node) if draw(node) == tree.tokens[one]), None)
        if child is None:
            return Verdict(tuple(path), draw(node))
        path.append(child)
        node = child


def _another_temperature_at_a_leaf(self: NodeScores, node: int) -> torch.Tensor:
    scores = self.logits[node + 1].float()
    return scores if self.tree.children(node) else scores / 0.5


@pytest.mark.parametrize(
    ("owner", "name", "mutant"),
    [
        (sampling_module, "match", _draws_anew_for_every_child),
        (NodeScores, "__call__", _another_temperature_at_a_leaf),
    ],
)
def test_a_mutated_match_is_caught(owner: Any, name: str, mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, name, mutant)
    assert max(_distance(Toy(4, seed), (2, 1), "chosen", "match") for seed in SEEDS) > 1e-2


class Pruner(ToyDrafter):
    """Drops a drawn token for its own low chance."""

    def propose_row(self, view: DraftView) -> DraftTree:
        tree = super().propose_row(view)
        assert tree.laws is not None
        if tree.laws.chance(tree.q_rows[0], tree.tokens[0]) < 0.3:
            return DraftTree()
        return tree


class Filtering(ToyDrafter):
    """Draws from the two likeliest tokens and declares the law before that filter."""

    def propose_row(self, view: DraftView) -> DraftTree:
        q = self.toy.q(tuple(view.ids))
        filtered = torch.where(q >= q.topk(2).values[-1], q, 0.0)
        (token,) = view.draw(filtered / filtered.sum())
        return DraftTree((token,), (-1,), (0,), DraftLaws(q[None]))


class Reranking(ToyDrafter):
    """Draws two siblings and keeps the likelier."""

    def propose_row(self, view: DraftView) -> DraftTree:
        q = self.toy.q(tuple(view.ids))
        token = max(view.draw(q, 2), key=lambda one: float(q[one]))
        return DraftTree((token,), (-1,), (0,), DraftLaws(q[None]))


LIARS = [(Liar, "sampled"), (Liar, "chosen"), (Pruner, "sampled"), (Filtering, "sampled"), (Reranking, "sampled")]


@pytest.mark.parametrize(("liar", "kind"), LIARS)
def test_a_lie_bends_the_ratio_rules_and_never_match(liar: type[ToyDrafter], kind: str) -> None:
    """Why `match` is the default: it asks for no trust."""
    for rule in RATIO:
        assert max(_distance(Toy(5, s), (1,), kind, rule, liar(Toy(5, s), (1,), kind)) for s in SEEDS) > 1e-3
    for seed in SEEDS:
        toy = Toy(5, seed)
        assert _distance(toy, (1,), kind, "match", liar(toy, (1,), kind)) < 1e-12


@pytest.mark.parametrize(
    ("owed", "q"),
    [
        ([0.5, 0.5, 0.0], [0.5, 0.5, 0.0]),
        ([0.5, 0.5, 0.0], [0.5, 0.5 * (1 + 1e-16), 0.0]),
        ([1.0, 0.0, 0.0], [1.0, 0.0, 0.0]),
        ([0.0, 1.0, 0.0], [1.0, 0.0, 0.0]),
    ],
)
def test_what_is_left_is_a_law_even_where_only_rounding_leaves_it(owed: list[float], q: list[float]) -> None:
    """Case 9."""
    for proposal in (Proposal(-1, torch.tensor(q).double()), Proposal(0)):
        left = residual(torch.tensor(owed).double(), proposal)
        assert torch.isfinite(left.law).all()
        assert float(left.law.sum()) == pytest.approx(1.0)
        assert bool((left.law[torch.tensor(owed) == 0] == 0).all())


def test_impossible_tokens_are_never_accepted() -> None:
    """p(x) = 0 rejects, q(x) = 0 divides nothing, whatever the coin."""
    law = torch.tensor([0.0, 1.0]).double()
    assert Proposal(-1, torch.tensor([0.5, 0.5]).double()).ratio(law, 0) == 0.0
    assert Proposal(-1, torch.tensor([0.0, 1.0]).double()).ratio(law, 0) == 0.0
    assert Proposal(-1, torch.tensor([0.0, 1.0]).double()).ratio(torch.tensor([1.0, 0.0]).double(), 0) == 0.0
    assert not any(Keyed(seed).accept(0.0, index) for seed in range(50) for index in range(50))
    assert all(Keyed(seed).accept(1.0, index) for seed in range(50) for index in range(50))


def test_steps_streams_and_decisions_share_no_noise() -> None:
    from outrider.verify.decisions import Stream

    law = torch.full((1000,), 1e-3).double()
    drawn = [
        Keyed(seed).at(length).choose(law, stream, index)
        for seed in range(3)
        for length in range(3)
        for stream in (Stream.RESIDUAL, Stream.BONUS, Stream.DRAFT)
        for index in range(3)
    ]
    assert len(set(drawn)) > 70  # 81 draws from 1000 tokens
    coins = {Keyed(5).at(length).accept(0.5, index) for length in range(20) for index in range(20)}
    assert coins == {True, False}


def test_a_step_can_be_replayed() -> None:
    toy = Toy(5, 3)
    drafter = ToyDrafter(toy, (2, 1), "sampled")
    steps = [step(toy, drafter, "block", (1, 2), Keyed(9).at(2)) for _ in range(3)]
    assert len(set(steps)) == 1
