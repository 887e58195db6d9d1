"""The benchmark: this loop against transformers' own, in interleaved pairs, as ratios with intervals."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from outrider.compare import contestants
from outrider.compare.figures import Interval, median_interval, ratios
from outrider.compare.prompts import BUILTIN, WARM_UP
from outrider.compare.runner import Contestant, Outcome, Run, print_run, run
from outrider.prompt_file import NamedPrompt
from outrider.target.model import Target

LOOKUP_TOKENS: Final = 10
_STORY, _CODE_EDIT = BUILTIN[0], BUILTIN[1]


def bench(target: Target, *, pairs: int = 12, max_new_tokens: int = 128, record: Path | None = None) -> list[str]:
    """Measure and return one line a figure.

    Args:
        target: the model.
        pairs: interleaved pairs of each comparison.
        max_new_tokens: length of every text.
        record: folder for the runs, so that an interrupted benchmark goes on where it stopped.
    """
    dtype = str(target.info.dtype).removeprefix("torch.")
    options = {"max_new_tokens": max_new_tokens, "do_sample": False}
    story = {
        "plain": contestants.with_drafter(target, "none", options),
        "generate": contestants.with_transformers(target, options),
    }
    edit = {
        "ngram": _with_model_time(target, contestants.with_drafter(target, "ngram", options)),
        "lookup": contestants.with_transformers(target, options | {"prompt_lookup_num_tokens": LOOKUP_TOKENS}),
        "plain": contestants.with_drafter(target, "none", options),
    }
    settings = {"dtype": dtype, "options": options, "lookup": LOOKUP_TOKENS}
    stories = _measure(story, _STORY, pairs, settings, record, f"story-{dtype}")
    edits = _measure(edit, _CODE_EDIT, pairs, settings, record, f"edit-{dtype}")
    shares = [one.stats["outside_model"] for one in edits if one.contestant == "ngram"]
    length = f"{dtype}, {len(edits[0].token_ids)} tokens, median of {pairs} pairs"
    return [
        f"plain loop / model.generate, story:              {_ratio(stories, 'plain', 'generate')}   [{length}]",
        f"ngram / prompt_lookup_num_tokens={LOOKUP_TOKENS}, code edit:   {_ratio(edits, 'ngram', 'lookup')}   [{length}]",
        f"ngram / plain loop, code edit:                   {_ratio(edits, 'ngram', 'plain')}   [{length}]",
        f"lookup / plain loop, code edit:                  {_ratio(edits, 'lookup', 'plain')}   [{length}]",
        f"share of a step outside the model, ngram:        {median_interval(shares)}   [{length}]",
    ]


def _measure(
    chosen: Mapping[str, Contestant],
    prompt: NamedPrompt,
    pairs: int,
    settings: Mapping[str, Any],
    record: Path | None,
    name: str,
) -> list[Run]:
    for one in chosen.values():
        one(WARM_UP)
    if record is not None:
        record.mkdir(parents=True, exist_ok=True)
    return run(chosen, [prompt], pairs, settings, record / f"{name}.jsonl" if record else None, print_run)


def _ratio(runs: list[Run], contestant: str, baseline: str) -> Interval:
    return median_interval(ratios(runs, contestant, baseline))


def _with_model_time(target: Target, contestant: Contestant) -> Contestant:
    """Add to a contestant's counts the share of the steps' time that was spent outside the model's own forward."""

    def timed(prompt: NamedPrompt) -> Outcome:
        with _model_seconds(target) as calls:
            ids, seconds, stats = contestant(prompt)
        steps = stats["seconds"] - stats["prefill_seconds"]
        return ids, seconds, stats | {"outside_model": 1 - sum(calls[1:]) / steps}

    return timed


@contextmanager
def _model_seconds(target: Target) -> Iterator[list[float]]:
    """Collect the seconds of every forward, the prefill's first, by hooks that are taken off again."""
    starts: list[float] = []
    calls: list[float] = []
    before = target.model.register_forward_pre_hook(lambda *_: starts.append(perf_counter()))
    after = target.model.register_forward_hook(lambda *_: calls.append(perf_counter() - starts.pop()))
    try:
        yield calls
    finally:
        before.remove()
        after.remove()
