"""A trace: a JSON line for every step of every run, from which all counts can be counted again."""

import json
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from outrider.compare.result import Prompt, Run, Steps


def lines(run: Run, prompt: Prompt) -> Iterator[str]:
    """Yield the lines of a run: its prefill as step 0, then its steps.

    Every line has `row`, `prompt` (its name), `index`, `repeat`, `step`, `tokens` (the new ids) and `seconds`; those of steps
    also what is known of `Steps`, and `accepted`.
    """
    head: dict[str, Any] = {"row": run.row, "prompt": prompt.name, "index": run.prompt, "repeat": run.repeat}
    first = run.token_ids[: run.prefill_tokens]
    yield json.dumps(head | {"step": 0, "tokens": first, "seconds": run.prefill_seconds})
    columns = {one.name: getattr(run.steps, one.name) for one in fields(Steps)}
    at = run.prefill_tokens
    for number, emitted in enumerate(run.steps.emitted):
        told = {name: values[number] for name, values in columns.items() if values and name != "emitted"}
        if "path" in told:
            told["accepted"] = len(told["path"])
        yield json.dumps(head | {"step": number + 1, "tokens": run.token_ids[at : at + emitted]} | told)
        at += emitted
