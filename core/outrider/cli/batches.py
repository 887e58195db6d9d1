"""`outrider generate --prompts FILE`: many prompts, some of them decoded together."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import typer

from outrider.decode.request import read_seed
from outrider.decode.stats import Stats
from outrider.errors import OutriderError
from outrider.generation import Result, generate_batch
from outrider.plugins.words import DrafterChoice, make_shared
from outrider.prompt_file import NamedPrompt
from outrider.target.model import Target


def run_batches(
    target: Target,
    prompts: Sequence[NamedPrompt],
    size: int,
    choice: DrafterChoice,
    options: dict[str, Any],
    *,
    as_json: bool,
) -> int:
    """Generate for all prompts, `size` at a time, with one drafter, and print what is done as soon as it is."""
    options = options | {"seed": target.ranks.decided(lambda: read_seed(options))}
    drafter = make_shared(choice.name, choice.options, target.info, target.ranks)
    for start in range(0, len(prompts), size):
        group = prompts[start : start + size]
        texts = [prompt.opening for prompt in group]
        try:
            results = generate_batch(target, texts, drafter, first_index=start, **options)
        except OutriderError as error:
            names = ", ".join(prompt.name for prompt in group)
            raise type(error)(f"prompts {names}: {error}") from error
        target.ranks.decided(partial(_print, group, results, as_json=as_json))
    return 0


def _print(group: Sequence[NamedPrompt], results: Sequence[Result], *, as_json: bool) -> None:
    for prompt, result in zip(group, results, strict=True):
        if as_json:
            typer.echo(json.dumps({"name": prompt.name} | as_dict(result)))
        else:
            typer.echo(f"== {prompt.name}\n{result.text}")
            typer.echo(summary(result.stats, result.drafter), err=True)


def summary(stats: Stats, drafter: str) -> str:
    """Put the statistics into a line."""
    rate, length = stats.draft_acceptance_rate, stats.mean_acceptance_length
    parts = [
        f"{stats.num_tokens} tokens in {stats.seconds:.2f} s ({stats.tokens_per_second or 0:.1f} tokens/s)",
        f"drafter {drafter}",
        f"{length:.2f} tokens a step" if length is not None else "no step",
        f"{stats.num_accepted_draft_tokens} of {stats.num_draft_tokens} drafted accepted"
        if rate is not None
        else "no draft",
    ]
    if stats.num_paused_steps:
        steps = "1 step" if stats.num_paused_steps == 1 else f"{stats.num_paused_steps} steps"
        parts.append(f"{steps} without a draft, to save time")
    return " · ".join(parts)


def as_dict(result: Result) -> dict[str, Any]:
    """Put a result into JSON's types."""
    return {
        "text": result.text,
        "token_ids": list(result.token_ids),
        "finish_reason": result.finish_reason,
        "drafter": result.drafter,
        "seed": result.seed,
        "stats": result.stats.as_dict(),
    }
