from dataclasses import replace
from typing import Any

import pytest

import outrider
from compare.example import measured
from outrider.compare.merge import merge
from outrider.compare.result import Comparison, Figures
from outrider.prompt_file import NamedPrompt
from support import tiny_target

PROMPTS = [NamedPrompt(str(at), "ab" * (at + 2) + "c" * at, "odd" if at % 2 else "even") for at in range(5)]
COUNTS: tuple[str, ...] = (
    "runs",
    "tokens",
    "step_tokens",
    "steps",
    "drafted_steps",
    "paused_steps",
    "drafted",
    "accepted",
    "wasted",
)
COUNTS += ("acceptance_by_depth", "conditional_acceptance_by_depth", "acceptance_rate", "verdict", "mean_rows")


def part(shard: str | None, **changed: Any) -> Comparison:
    return measured(tiny_target(spread=0.1), ["ngram"], {"shard": shard, "repeats": 1} | changed, PROMPTS)


def counts(one: Figures) -> list[Any]:
    lengths = [(each.category, each.prompts, each.tokens, each.steps) for each in one.by_category]
    return [*(getattr(one, name) for name in COUNTS), one.mean_acceptance_length, lengths]


@pytest.mark.parametrize("sizes", [(1,), (1, 2)])
def test_shards_together_are_the_whole(sizes: tuple[int, ...]) -> None:
    whole = part(None, batch_sizes=sizes)
    found = merge([part("2/2", batch_sizes=sizes), part("1/2", batch_sizes=sizes)], ["b", "a"])
    assert [counts(one) for one in found.figures] == [counts(one) for one in whole.figures]
    assert found.prompts == whole.prompts
    assert [(one.row, one.prompt, one.token_ids, one.seed) for one in found.runs] == [
        (one.row, one.prompt, one.token_ids, one.seed) for one in whole.runs
    ]
    assert found.complete
    assert found.settings.shard is None
    assert [one.shard for one in found.parts] == ["2/2", "1/2"]
    assert {found.parts[run.part].shard for run in found.runs if run.prompt == 0} == {"1/2"}


def test_a_shard_that_is_missing_is_told() -> None:
    found = merge([part("1/3"), part("3/3")], ["a", "c"])
    assert not found.complete
    assert found.settings.shard == "1/3,3/3"


def test_what_does_not_belong_together_is_refused() -> None:
    first = part("1/2")
    with pytest.raises(outrider.InputError, match="a and b both have prompt 0"):
        merge([first, first], ["a", "b"])
    with pytest.raises(outrider.InputError, match="differ in seed"):
        merge([first, part("2/2", seed=2)], ["a", "b"])
    other = part("2/2")
    rows = (other.rows[0], replace(other.rows[1], name="ngram[max_n=3]"))
    with pytest.raises(outrider.InputError, match="differ in rows"):
        merge([first, replace(other, rows=rows)], ["a", "b"])
