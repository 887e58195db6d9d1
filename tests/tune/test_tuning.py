"""Tuning on tiny models and machines whose forwards take what the test says."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import outrider
from outrider import DraftTree
from outrider.errors import InputError
from outrider.prompt_file import NamedPrompt
from outrider.tune.bars import measure_bars, spread
from outrider.tune.probe import Drafted, Probe
from outrider.tune.settings import Setting, Space
from outrider.tune.tuning import Tuning
from support import OPTIONS, REFUSES, tiny_target
from tune.clocked import PROMPTS, Clocked, clocked, flat, linear, rising, settings, tuned

NAMES = [record.name for record in outrider.drafters() if record.name != "none"]
BROKEN = """
import outrider

class Broken(outrider.RowDrafter[outrider.DrafterOptions]):
    name = "broken"
    requires_api = (0, 1)

    def propose_row(self, view):
        if len(view.ids) > {length}:
            raise RuntimeError("the disk is wet")
        return outrider.DraftTree()
"""


def honest(target: Clocked) -> dict[str, Any]:
    """A drafter that is always right and takes no time."""
    return {"name": "draft-model", "options": {"model": target.model}}


def test_where_every_token_costs_as_much_nothing_is_drafted(monkeypatch: pytest.MonkeyPatch) -> None:
    target = clocked(monkeypatch, linear)
    found = tuned(target, ["ngram", honest(target)])
    (choice,) = found.choices
    assert choice.setting is None
    assert choice.reason.startswith("do not speculate")
    assert all(one.predictions for one in found.candidates)
    assert found.checked
    for one in found.checked:
        assert one.predicted is None or one.predicted.speed_up <= 1.02
        assert one.speed_up is not None
        assert one.speed_up.value <= 1.0 + 1e-9


def test_where_a_forward_costs_the_same_an_honest_drafter_goes_deepest(monkeypatch: pytest.MonkeyPatch) -> None:
    target = clocked(monkeypatch, flat)
    found = tuned(target, [honest(target)])
    (choice,) = found.choices
    assert choice.setting is not None
    assert choice.setting.options["draft_tokens"] == 8
    assert choice.speed_up is not None
    assert choice.speed_up.value > 5
    best = next(one for one in found.checked if one.setting == choice.setting)
    assert best.off == pytest.approx(0, abs=1e-6)


def test_a_cost_between_them_gives_a_depth_between(monkeypatch: pytest.MonkeyPatch) -> None:
    target = clocked(monkeypatch, lambda _, rows: 0.02 + 0.0055 * max(0, rows - 4))
    found = tuned(target, [honest(target)])
    setting = found.choices[0].setting
    assert setting is not None
    # What 23 tokens take in steps of so many, the last with what is left.
    took = {}
    for depth in (1, 2, 3, 4, 5, 6, 8):
        steps = [depth + 1] * (23 // (depth + 1)) + [23 % (depth + 1)] * (23 % (depth + 1) > 0)
        took[depth] = sum(0.02 + 0.0055 * max(0, rows - 4) for rows in steps)
    assert setting.options["draft_tokens"] == min(took, key=lambda depth: took[depth])
    assert 3 <= setting.options["draft_tokens"] <= 6
    for one in found.candidates[0].predictions:
        if one.setting.branching == 1 and one.setting.depth:
            assert one.speed_up == pytest.approx(23 * 0.02 / took[one.setting.depth], rel=0.01)


@pytest.mark.parametrize("name", NAMES)
def test_every_drafter_is_tuned(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target = clocked(monkeypatch, rising)
    if name in REFUSES and REFUSES[name](target):
        pytest.skip("refuses the target")
    word: Any = {"name": name, "options": OPTIONS[name](target)} if name in OPTIONS else name
    found = tuned(target, [word])
    (candidate,) = found.candidates
    assert candidate.error is None
    assert candidate.predictions
    assert all(one.error is None and one.speed_up for one in found.checked)
    assert sum(one.steps for one in candidate.probes) > 0
    assert any(one.nodes for one in candidate.probes) or name == "ngram"
    # What was probed is predicted as it was, and the validation finds it again: nothing here depends on time.
    probed = {one.setting.label: one for one in candidate.probes}
    for one in found.checked:
        known = probed.get(one.setting.label)
        if known is not None and one.predicted is not None:
            assert one.predicted.tokens == pytest.approx(known.tokens, rel=1e-6)
            assert one.tokens == pytest.approx(known.tokens, rel=1e-6)
    assert found.validation is not None
    assert all(one.verdict.kind == "identical" for one in found.validation.figures)
    assert not set(candidate.tunable) - {"draft_tokens", "depth", "nodes", "branching"}


def test_a_drafter_without_such_options_is_measured_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    found = tuned(clocked(monkeypatch, rising), ["lookahead"])
    (candidate,) = found.candidates
    assert candidate.tunable == ()
    assert len(candidate.probes) == len(candidate.predictions) == 1
    fixed = next(one for one in found.checked if one.predicted)
    assert fixed.setting.options == {}
    assert fixed.off == pytest.approx(0, abs=0.02)


def test_options_that_were_given_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    found = tuned(clocked(monkeypatch, rising), ["ngram[draft_tokens=3,nodes=3,branching=1,min_n=1]"])
    (candidate,) = found.candidates
    assert candidate.tunable == ()
    assert all(one.setting.options["draft_tokens"] == 3 for one in candidate.predictions)
    half = Space.of("self[draft_tokens=2]")
    assert half.tunable == ("nodes", "branching")
    assert all(one.options["draft_tokens"] == 2 for one in [*half.anchors(), *half.grid([[0.5, 0.2]] * 2, 2)])


@pytest.mark.parametrize("length", [0, 24])
def test_a_drafter_that_raises_is_told_of_and_the_others_go_on(
    length: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "broken.py"
    file.write_text(BROKEN.format(length=length))
    found = tuned(clocked(monkeypatch, flat), [f"{file}::Broken", "ngram[min_n=1]"])
    broken, ngram = found.candidates
    assert "the disk is wet" in (broken.error or "")
    assert ngram.error is None
    assert {one.setting.drafter for one in found.checked} == {"ngram"}
    assert found.choices[0].setting is not None
    alone = tuned(clocked(monkeypatch, flat), [f"{file}::Broken"])
    assert alone.choices[0].setting is None
    assert "the disk is wet" in alone.choices[0].reason


def test_the_same_again_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (tuned(clocked(monkeypatch, rising), ["ngram[min_n=1]", "self"]) for _ in range(2))
    assert first.choices == second.choices
    assert first.candidates == second.candidates


def test_batches_have_their_own_costs_and_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    # A forward of up to 16 tokens of all texts together costs the same, and one of more twice by their number.
    target = clocked(monkeypatch, lambda texts, rows: 0.01 * max(16, 2 * texts * rows - 16))
    made = tuned(target, [honest(target)], {"batch_sizes": (1, 8)}, prompts=_eight())
    alone, eight = made.choices
    assert alone.setting is not None
    assert alone.setting.options["draft_tokens"] == 8
    assert eight.setting is not None
    assert eight.setting.depth == 1
    assert {one.batch_size for one in made.costs} == {1, 8}
    assert set(made.plain_seconds) == {1, 8}
    for one in made.checked:
        assert one.off is None or abs(one.off) < 0.05, one


def _eight() -> Any:
    return tuple(NamedPrompt(f"p{at}", "abc " * (3 + at % 3)) for at in range(8))


def test_rules_take_part_where_a_drafter_declares_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    target = clocked(monkeypatch, rising)
    sampled = {"generation": {"max_new_tokens": 16, "temperature": 1.0}, "sampled": True}
    found = tuned(target, ["ngram", "self"], sampled, rules=("match", "block"))
    labels = [one.label for one in found.candidates]
    assert labels == ["ngram", "self", "self block"]
    assert all(one.error is None for one in found.candidates)
    assert {one.setting.rule for one in found.checked} == {"match", "block"}


def test_ctrl_c_keeps_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    target = clocked(monkeypatch, flat)

    def stop(what: str, _: Any) -> None:
        if "copy" in what:
            raise KeyboardInterrupt

    found = tuned(target, [honest(target)], hear=stop)
    assert not found.complete
    assert found.costs
    assert found.candidates[0].predictions
    assert found.validation is None


def test_ctrl_c_in_the_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    target = clocked(monkeypatch, flat)

    def stop(what: str, _: Any) -> None:
        if what.startswith("validating: 6 "):
            raise KeyboardInterrupt

    found = tuned(target, [honest(target)], hear=stop)
    assert not found.complete
    assert found.validation is not None
    assert len(found.validation.runs) == 6


def test_a_small_budget_is_kept_to_fewer_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    target = clocked(monkeypatch, flat)
    tuning = Tuning(target, [Space.of("ngram")], ("match",), _eight(), settings(), 1.0)
    found = tuning.run()
    assert len(found.prompts) < 8
    assert found.settings.generation["max_new_tokens"] < 24
    assert found.choices


def test_fewer_prompts_than_texts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="there are 2 prompts"):
        tuned(clocked(monkeypatch, flat), ["ngram"], {"batch_sizes": (4,)})


def test_bars_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    target = clocked(monkeypatch, rising)
    found = tuned(target, ["self", "ngram[min_n=1]"])
    barred = measure_bars(target, found, PROMPTS, 6)
    assert [one.name for one in barred.bars] == [
        "predicted / measured, self",
        "predicted / measured, ngram[min_n=1]",
        "chosen / best",
    ]
    assert all(one.kept for one in barred.bars), barred.bars
    fooled = found.candidates[0].predictions
    assert len(spread(fooled, 6)) == 6
    assert spread(fooled, 6)[-1] == fooled[-1]
    worst = found.candidates[0].predictions[-1].setting
    wrong = measure_bars(target, _choosing(found, worst), PROMPTS, 6)
    assert not wrong.bars[-1].kept


def _choosing(found: Any, setting: Setting) -> Any:
    from dataclasses import replace

    return replace(found, choices=(replace(found.choices[0], setting=setting),))


def test_a_step_is_read_from_its_tree() -> None:
    tree = DraftTree((5, 6, 7, 8, 9), (-1, -1, 0, 0, 1), scouts=frozenset({4}))
    work: Any = SimpleNamespace(tree=tree, path=(0, 3))
    found = Drafted.of(work, 3)
    assert found.outline == ((1, 0), (1, 1), (2, 0), (2, 1))
    assert found.ranks == (0, 1)
    assert found.scouts == 1
    assert found.levels == 2


def test_probes_count_as_the_loop_does() -> None:
    target = tiny_target(spread=0.1)
    probe = Probe(target, Setting("self", {"draft_tokens": 3}), {"max_new_tokens": 20, "temperature": 0.0})
    from outrider.compare.strategies import Task

    ids = tuple(range(10))
    probe.run([Task(ids, 1)])
    made = outrider.generate(
        target, list(ids), "self", {"draft_tokens": 3}, max_new_tokens=20, temperature=0.0, seed=1, adaptive=False
    )
    assert probe.length == pytest.approx(made.stats.mean_acceptance_length)
    assert len(probe.beats) == made.stats.num_steps
    assert made.stats.num_accepted_draft_tokens > 0


def test_a_drafter_named_twice_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = tuned(clocked(monkeypatch, rising), ["ngram[min_n=1]", "ngram[min_n=1]"])
    rows = [one.row for one in found.checked]
    assert len(rows) == len(set(rows))
    assert found.validation is not None
    assert sorted(row.name for row in found.validation.rows) == sorted(["none", *rows])
