"""Adaptive decoding through the whole loop: the text never changes, whatever is measured."""

import random
from itertools import product
from typing import Any

import pytest
import torch

import outrider
from outrider import Costs, DraftTree, DraftView
from outrider.draft.timings import Timings
from outrider.verify.decisions import Decisions, enumerate_runs
from support import FULL, NAMES, Scripted, every_drafter, plain_loop, prompt_of, right_chain, tiny_target, wrong_chain
from toy import Toy, ToyDrafter, distance, step

FREE = Costs({1: 1.0, 64: 1.01})
STEEP = Costs({1: 1.0, 2: 2.0, 64: 64.0}, {1: 1.0})


@pytest.fixture
def wild(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cost is another at random whenever it is asked for, over five orders of magnitude."""
    generator = random.Random(1)
    monkeypatch.setattr(Timings, "at", lambda self, size: 10.0 ** generator.uniform(-3, 2))


@pytest.mark.parametrize("name", NAMES)
def test_no_cost_changes_a_text(name: str, wild: None) -> None:
    depths = set[int]()
    drawn = [{}, {"temperature": 1.0}, {"temperature": 0.7, "top_k": 9}]
    whole = FULL or name.startswith("right")
    for seed, options in product(range(3), drawn) if whole else enumerate(drawn):
        target, prompt = tiny_target(seed, 0.1), prompt_of(9, seed)
        settings: dict[str, Any] = {"max_new_tokens": 50, "seed": seed, **options}
        plain = outrider.generate(target, prompt, "none", **settings)
        drafter = every_drafter(target, [*prompt, *plain.token_ids])[name]
        with outrider.stream(target, prompt, drafter, **settings) as steps:
            depths |= {len(one.tokens) for one in steps}
        assert steps.result().token_ids == plain.token_ids
        batch = outrider.generate_batch(target, [prompt, prompt[:4]], drafter, adaptive=True, **settings)
        for one, ids in zip(batch, (prompt, prompt[:4]), strict=True):
            alone = outrider.generate(target, ids, "none", **(settings | {"seed": one.seed}))
            assert one.token_ids == alone.token_ids
    if name.startswith("right"):
        assert len(depths) > 3  # drafts of several lengths


@pytest.mark.parametrize(("costs", "pauses"), [(FREE, False), (STEEP, True)])
def test_given_costs_decide(costs: Costs, *, pauses: bool) -> None:
    target, prompt = tiny_target(), prompt_of(7)
    text = prompt + plain_loop(target.model, prompt, 60)
    found = [
        outrider.generate(target, prompt, Scripted(target, right_chain(text)), max_new_tokens=60, adaptive=costs)
        for _ in range(2)
    ]
    stats = found[0].stats
    assert (stats.num_paused_steps > 30) == pauses
    assert stats.plain_steps_won is not None
    assert (stats.plain_steps_won > 40) != pauses
    assert stats.num_steps - stats.num_spec_steps >= stats.num_paused_steps
    counted = [(one.stats.num_steps, one.stats.acceptance_histogram, one.stats.plain_steps_won) for one in found]
    assert counted[0] == counted[1]


def test_a_hopeless_drafter_pauses_and_a_perfect_one_does_not() -> None:
    """By given costs, so that the machine has no say: a forward of five rows costs half as much again."""
    target, prompt, costs = tiny_target(), prompt_of(7), Costs({1: 1.0, 2: 1.3, 8: 1.5, 64: 3.0}, {1: 0.1})
    text = prompt + plain_loop(target.model, prompt, 200)
    for script, least, most in ((right_chain, 0, 0), (wrong_chain, 180, 198)):
        drafter = Scripted(target, script(text))
        stats = outrider.generate(target, prompt, drafter, max_new_tokens=200, adaptive=costs).stats
        assert least <= stats.num_paused_steps <= most
        assert (stats.plain_steps_won or 0.0) > (100 if script is right_chain else -0.05 * 200)


def test_without_adapting_nothing_is_paused_or_counted() -> None:
    target, prompt = tiny_target(), prompt_of(7)
    text = prompt + plain_loop(target.model, prompt, 60)
    drafter = Scripted(target, wrong_chain(text))
    stats = outrider.generate(target, prompt, drafter, max_new_tokens=60, adaptive=False).stats
    assert (stats.num_paused_steps, stats.plain_steps_won) == (0, None)
    assert stats.num_spec_steps == 58


def test_what_is_measured_is_the_target_s_and_not_the_model_s() -> None:
    target, prompt = outrider.load(tiny_target(4).model), prompt_of(7)
    before = {*vars(target.model)}
    assert not target.costs
    outrider.generate(target, prompt, "ngram", max_new_tokens=30)
    assert target.costs.measured(1)
    assert target.costs.at(1) > 0
    assert {*vars(target.model)} == before
    model: Any = target.model
    inputs = torch.tensor([prompt])
    model.generate(inputs, custom_generate=outrider.decoder("none"), max_new_tokens=9, do_sample=False)
    assert {*vars(target.model)} == before


def test_a_drafter_is_asked_for_no_more_than_was_chosen() -> None:
    target, prompt = tiny_target(), prompt_of(7)
    seen: list[tuple[int, float]] = []

    class Looking(Scripted):
        def propose_row(self, view: DraftView) -> DraftTree:
            seen.append((view.max_depth, view.cost(5)))
            return super().propose_row(view)

    drafter = Looking(target, wrong_chain(prompt + plain_loop(target.model, prompt, 60), 9))
    costs = Costs({1: 2.0, 5: 4.0, 17: 16.0})
    outrider.generate(target, prompt, drafter, max_new_tokens=60, adaptive=costs)
    assert seen[0] == (4, 2.0)
    assert {depth for depth, _ in seen[1:]} <= {1, 2, 3, 4}
    assert len(seen) < 20


def test_a_session_keeps_what_it_learned() -> None:
    target, costs = tiny_target(), Costs({1: 1.0, 64: 60.0}, {1: 1.0})
    asked: list[int] = []

    def script(ids: Any) -> DraftTree:
        asked.append(len(ids))
        return DraftTree.chain([63, 63, 63])

    with outrider.session(target, Scripted(target, script), max_new_tokens=40, adaptive=costs) as talk:
        talk.generate(prompt_of(5))
        first = len(asked)
        talk.generate([1, 2])
        assert len(asked) - first < first
        talk.generate([1, 2], adaptive=False)
        assert len(asked) - first > 30


@pytest.mark.parametrize("value", [3, "yes", 1.0, [True]])
def test_a_wrong_value_is_refused(value: Any) -> None:
    target = tiny_target()
    with pytest.raises(outrider.InputError, match=r"adaptive = .*: must be True, False, or outrider\.Costs"):
        outrider.generate(target, [1], "none", adaptive=value)
    with pytest.raises(outrider.InputError, match="adaptive = "):
        outrider.decoder("none", adaptive=value)
    with pytest.raises(outrider.InputError, match="adaptive = "):
        outrider.session(target, "none", adaptive=value)


@pytest.mark.parametrize("rule", ["match", "rejection", "block"])
@pytest.mark.parametrize("shape", [(1, 1), (2, 1)])
def test_the_law_holds_where_depths_follow_what_came_before(rule: str, shape: tuple[int, ...]) -> None:
    """Every decision of three steps enumerated, with the real pace on given costs between them."""
    toy = Toy(2 if shape[0] > 1 else 3, 11)
    costs = Costs({1: 1.0, 2: 1.3, 3: 1.9, 9: 4.0}, {1: 0.2})
    depths = set[int]()

    def run(decisions: Decisions) -> tuple[int, ...]:
        return _paced(toy, ToyDrafter(toy, shape, "sampled"), rule, decisions, costs, depths)

    found: dict[tuple[int, ...], float] = {}
    for emitted, probability in enumerate_runs(run):
        found[emitted] = found.get(emitted, 0.0) + probability
    assert distance(found, toy.law(4)) < 1e-12
    assert len(depths) > 1


def _paced(
    toy: Toy, drafter: ToyDrafter, rule: str, decisions: Decisions, costs: Costs, depths: set[int]
) -> tuple[int, ...]:
    from outrider.draft.adaptive import pace_for
    from outrider.draft.pace import Taken

    pace, ids = pace_for(costs, Timings(float), weighs_nodes=False), tuple[int, ...]()
    while len(ids) < 4:
        plan = pace.plan([DraftView(0, outrider.TokenView(ids), 2, 64)])
        depth = plan.views[0].max_depth
        depths.add(depth)
        cut = ToyDrafter(toy, drafter.shape[:depth], drafter.kind)
        emitted = step(toy, cut, rule, ids, decisions)
        ids = (*ids, *emitted)
        trees = [DraftTree.chain(range(depth))]
        pace.learn(plan, Taken(trees, [len(emitted) - 1], [len(emitted)], 0.0, 0.0))
    return ids[:4]
