from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import outrider
from outrider.compare.diff import as_json, below, difference, grid, read_bound
from outrider.compare.files import read
from outrider.compare.pooled import with_figures
from outrider.compare.result import Comparison, Run, Steps

EXAMPLE = read(Path(__file__).parent / "data" / "run.json")


def made(seed: int, slower: float = 1.0, conversations: int = 10, repeats: int = 3) -> Comparison:
    """Two rows whose seconds are drawn; the second's are `slower` times what they are elsewhere."""
    random = np.random.default_rng(seed)
    first = EXAMPLE.prompts[0]
    prompts = tuple(
        replace(first, index=at, name=str(at), conversation=str(at), digest=str(at)) for at in range(conversations)
    )
    runs = []
    for at in range(conversations):
        for repeat in range(repeats):
            for row, pace in (("none", 1.0), ("ngram", 0.6 * slower)):
                seconds = float(0.05 * pace * (1 + at / 10) * np.exp(random.normal(0, 0.03)))
                steps = Steps(emitted=(1,) * 20, seconds=(seconds,) * 20)
                runs.append(
                    Run(
                        row=row,
                        prompt=at,
                        repeat=repeat,
                        group=at,
                        seed=1,
                        token_ids=(1,) * 21,
                        prefill_tokens=1,
                        prefill_seconds=0.1,
                        seconds=0.1 + 20 * seconds,
                        steps=steps,
                    )
                )
    return with_figures(replace(EXAMPLE, rows=EXAMPLE.rows[:2], prompts=prompts, runs=tuple(runs)))


def test_two_runs_of_the_same_differ_in_nothing() -> None:
    """At family-wise 99 %: of 12 pairs with five intervals each hardly one is told to have changed."""
    told = [difference(made(2 * seed), made(2 * seed + 1)) for seed in range(12)]
    assert sum(any(one.differs for one in found.changes) for found in told) <= 1
    assert {(one.row, one.measure) for one in told[0].changes} == {
        ("ngram", "speedup"),
        *((row, measure) for row in ("none", "ngram") for measure in ("rate", "length")),
    }


def test_a_change_is_found_and_fails_where_it_is_asked_for() -> None:
    found = difference(made(1), made(2, slower=1.25))
    changed = {(one.row, one.measure) for one in found.changes if one.differs}
    assert changed == {("ngram", "speedup"), ("ngram", "rate")}
    one = next(one for one in found.changes if one.measure == "speedup")
    assert one.ratio.low < 0.8 < one.ratio.high
    assert one.ratio.value == pytest.approx(one.after / one.before)
    assert below(found, [("speedup", 0.95)]) == [f"ngram: speedup is {one.ratio.value:.3f} of what it was, below 0.95"]
    assert below(found, [("speedup", 0.7), ("length", 0.99)]) == []
    with pytest.raises(outrider.InputError, match="--fail-below rate: no row"):
        below(replace(found, changes=tuple(one for one in found.changes if one.measure != "rate")), [("rate", 0.5)])
    assert "changed" in grid(found).markdown()


def test_a_row_that_failed_in_the_second_does_not_pass() -> None:
    after = made(2)
    failed = replace(after, runs=tuple(one for one in after.runs if one.row != "ngram"))
    found = difference(made(1), failed)
    assert found.lost == (("ngram", "speedup"), ("ngram", "rate"), ("ngram", "length"))
    assert below(found, [("rate", 0.5)]) == ["ngram: rate was measured on these prompts in the first alone"]


def test_a_difference_is_told_as_json() -> None:
    found = difference(made(1), made(2, slower=1.25))
    assert '"differs": true' in as_json(found)


def test_only_what_both_have_is_set_side_by_side() -> None:
    before, after = made(1), made(2)
    prompts = (replace(after.prompts[0], digest="other"), *after.prompts[1:])
    found = difference(before, replace(after, prompts=prompts))
    assert found.prompts == 9
    assert sum("left out" in note for note in found.notes) == 2
    settings = replace(after.settings, dtype="bfloat16")
    rows = (after.rows[0], replace(after.rows[1], name="other"))
    found = difference(before, replace(after, settings=settings, rows=rows))
    assert "setting dtype: float64 -> bfloat16" in found.notes
    assert "only the first has: ngram" in found.notes
    assert {one.row for one in found.changes} == {"none"}
    with pytest.raises(outrider.InputError, match="no prompt in common"):
        difference(before, replace(after, prompts=tuple(replace(one, digest="x") for one in after.prompts)))
    with pytest.raises(outrider.InputError, match="no row in common"):
        difference(before, replace(after, rows=(replace(after.rows[0], name="x"), rows[1])))


def test_a_comparison_with_itself() -> None:
    """Its own repeats are drawn apart, so that its interval is that of a second run."""
    found = difference(EXAMPLE, EXAMPLE)
    assert found.changes
    assert all(one.ratio.value == 1 and not one.differs for one in found.changes)
    assert all(one.ratio.low == one.ratio.high == 1 for one in found.changes if one.measure == "length")


@pytest.mark.parametrize(
    "word", ["speedup", "speedup:", "speedup:x", "speed:0.9", "speedup:-1", "speedup:0", ":1", "rate:nan"]
)
def test_bounds_that_are_none(word: str) -> None:
    with pytest.raises(outrider.InputError, match=r"write WHAT:RATIO, such as speedup:0\.95"):
        read_bound(word)
