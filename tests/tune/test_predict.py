"""Predictions against exact enumeration, where acceptance and costs are known."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from outrider.compare.result import ForwardCost
from outrider.draft.choices import Choices
from outrider.tune.acceptance import Acceptance
from outrider.tune.costs import Curve, Linear, StepCost
from outrider.tune.predict import Predictor
from outrider.tune.probe import Beat, Drafted, Probe
from outrider.tune.settings import Setting
from outrider.tune.walk import walk

CURVE = Curve(tuple(ForwardCost(batch_size=1, rows=n, context=8, seconds=0.1 + 0.01 * n) for n in (1, 2, 4, 8, 16)))
# Depth by rank; in 64ths, so that 64 * 64 steps hold every outcome exactly.
CHANCES = ((32, 16, 8), (32, 8, 8))
FULL = tuple((len(path), max(path)) for size in (1, 2) for path in product(range(3), repeat=size))


def probe(setting: Setting, beats: Sequence[Beat]) -> Probe:
    made = Probe(None, setting, {"max_new_tokens": 8})  # type: ignore[arg-type]
    made.beats = list(beats)
    return made


def beat(outline: Any, ranks: Any = (), draft: float = 0.0, rest: float = 0.0) -> Beat:
    target = CURVE.at(1 + len(outline))
    return Beat((Drafted(tuple(outline), 0, tuple(ranks), len(ranks) + 1),), target + draft + rest, draft, target)


def outcomes() -> list[tuple[tuple[int, ...], float]]:
    """Every way in which two levels can go, with its chance."""
    levels = [[(rank, count / 64) for rank, count in enumerate(level)] for level in CHANCES]
    missed = [1 - sum(chance for _, chance in level) for level in levels]
    found: list[tuple[tuple[int, ...], float]] = [((), missed[0])]
    for rank, chance in levels[0]:
        found.append(((rank,), chance * missed[1]))
        found += [((rank, other), chance * more) for other, more in levels[1]]
    return found


@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 8, 12])
@pytest.mark.parametrize(("depth", "branching"), [(1, 3), (2, 1), (2, 2), (2, 3)])
def test_tokens_are_those_of_an_exact_enumeration(nodes: int, depth: int, branching: int) -> None:
    beats = [beat(FULL, path) for path, chance in outcomes() for _ in range(round(chance * 4096))]
    assert len(beats) == 4096
    whole = Setting("toy", {}, 2, 64, 3)
    predictor = Predictor(CURVE, [beat(())], [probe(whole, beats)])
    setting = Setting("toy", {"nodes": nodes}, depth, nodes, branching)
    kept = [[count / 64 for count in level[:branching]] for level in CHANCES[:depth]]
    tree = set(Choices.derived(kept, nodes).paths)
    expected = 1.0
    for path, chance in outcomes():
        expected += chance * sum(path[: size + 1] in tree for size in range(len(path)))
    assert predictor.predict(setting).tokens == pytest.approx(expected, abs=1e-12)


def test_a_probe_predicts_itself() -> None:
    beats = [beat(FULL, path) for path, chance in outcomes() for _ in range(round(chance * 64))]
    small = [beat(FULL[:1], path) for path in ((0,), (0,), ())]
    probes = [probe(Setting("toy", {}, 2, 64, 3), beats), probe(Setting("toy", {}, 1, 1, 1), small)]
    predictor = Predictor(CURVE, [beat(())], probes)
    for one in probes:
        assert predictor.predict(one.setting).tokens == pytest.approx(one.length, rel=1e-6)
        assert predictor.predict(one.setting).seconds == pytest.approx(one.step_seconds, rel=1e-6)


def test_costs_are_found_again() -> None:
    def took(levels: int, nodes: int) -> Beat:
        outline = [(min(at + 1, levels), 0) for at in range(nodes)]
        return beat(outline, (), draft=0.02 + 0.003 * levels + 0.0005 * nodes, rest=0.004 + 0.0002 * nodes)

    beats = [took(*size) for size in ((1, 1), (4, 4), (4, 12), (2, 8), (3, 15))] + [beat((), (), 0.001, 0.004)]
    cost = StepCost.of(CURVE, 1, beats)
    assert cost.draft.constant == pytest.approx(0.02)
    assert cost.draft.factors == pytest.approx((0.003, 0.0005))
    assert cost.rest.constant == pytest.approx(0.004)
    assert cost.drafting(5, 10) == pytest.approx(0.02 + 0.015 + 0.005)
    assert cost.drafting(0, 0) == pytest.approx(0.001)
    assert cost.target(6, 1) == pytest.approx(0.17)


def test_no_cost_is_below_nothing() -> None:
    fit = Linear.fit([((1.0, 1.0), 5.0), ((2.0, 4.0), 4.0), ((3.0, 2.0), 3.0), ((3.0, 2.0), 3.1)])
    assert fit.constant > 0
    assert fit.factors == (0.0, 0.0)


def test_real_forwards_correct_the_curve() -> None:
    slow = [Beat(one.texts, one.seconds * 2, 0.0, one.target * 2) for one in [beat(FULL[:3])] * 3]
    cost = StepCost.of(CURVE, 1, [*slow, *[beat(FULL)] * 3])
    assert cost.target(3, 1) == pytest.approx(2 * CURVE.at(4))
    assert cost.target(12, 1) == pytest.approx(CURVE.at(13))


def test_the_curve_goes_on_as_it_rose() -> None:
    assert CURVE.at(3) == pytest.approx(0.13)
    assert CURVE.at(32) == pytest.approx(0.42)


def test_acceptance_counts_steps_without_a_draft() -> None:
    found = Acceptance.of([beat(FULL, (1, 0)), beat(FULL, (0,)), beat(()), beat(FULL)])
    assert found.chances == ((0.25, 0.25), (0.5,))
    assert found.by_depth == (0.5, 0.25)
    # A text's end is no miss.
    ended = Beat((Drafted(FULL[:3], 0, (0,), 2, 1),), 1.0, 0.0, 1.0)
    assert Acceptance.of([beat(FULL, (0, 0)), ended]).chances == ((1.0,), (1.0,))


def test_speed_up_is_tokens_by_cost() -> None:
    probes = [probe(Setting("toy", {}, 1, 1, 1), [beat(FULL[:1], (0,), draft=0.03, rest=0.01)] * 4)]
    plain = [beat((), rest=0.01)] * 3
    found = Predictor(CURVE, plain, probes).predict(Setting("toy", {}, 1, 1, 1))
    assert found.speed_up == pytest.approx(2 * (0.11 + 0.01) / (0.12 + 0.03 + 0.01))


def test_a_text_has_an_end() -> None:
    # Always right, 4 deep, 11 tokens: 5, 5, and one for which no draft has room.
    sure = walk([1.0] * 4, 4, 11)
    assert sure.tokens == pytest.approx(11 / 3)
    assert sure.shares == pytest.approx((1 / 3, 0, 0, 0, 2 / 3))
    # One deep, right every other time, 3 tokens: two drafts at least have room, the step at the last token has none.
    half = walk([0.5], 1, 3)
    ways = {(2, 1): 0.5, (1, 2): 0.25, (1, 1, 1): 0.25}
    steps = sum(chance * len(way) for way, chance in ways.items())
    assert half.tokens == pytest.approx(3 / steps)
    assert walk([0.5, 0.25], 2, None).tokens == pytest.approx(1.75)
    assert walk([0.5, 0.25], 2, 10_000).tokens == pytest.approx(1.75, rel=1e-3)
    assert walk([], 0, 5).tokens == 1.0
