"""The demo: plain decoding beside a drafter on three prompts, and whether the text is that of `model.generate`."""

import sys
from collections.abc import Sequence
from statistics import median
from typing import Final

from rich.console import Console
from rich.table import Table

from outrider.compare import contestants
from outrider.compare.figures import pooled_acceptance, ratios
from outrider.compare.prompts import BUILTIN
from outrider.compare.runner import Run, run
from outrider.prompt_file import NamedPrompt
from outrider.target.model import Target

WARM_UP: Final = NamedPrompt("warm-up", "Say hello.")


def demo(
    target: Target,
    drafter: str,
    prompts: Sequence[NamedPrompt] = BUILTIN,
    *,
    rounds: int = 5,
    max_new_tokens: int = 128,
) -> bool:
    """Run the demo and print its table; return whether every text is identical to `model.generate`'s.

    Args:
        target: the model.
        drafter: compared with plain decoding, greedily.
        prompts: a row of the table each.
        rounds: interleaved repetitions; speed-ups are medians over them.
        max_new_tokens: length of every text.
    """
    options = {"max_new_tokens": max_new_tokens, "do_sample": False}
    plain = contestants.with_drafter(target, "none", options)
    drafted = contestants.with_drafter(target, drafter, options)
    generate = contestants.with_transformers(target, options)
    for one in (plain, drafted, generate):
        one(WARM_UP)
    settings = {"drafter": drafter, "options": options}
    reference = run({"generate": generate}, prompts, 1, settings, report=_progress)
    runs = run({"none": plain, drafter: drafted}, prompts, rounds, settings, report=_progress)
    expected = {one.prompt: one.token_ids for one in reference}
    _print_table(target, runs, drafter, expected)
    return all(one.token_ids == expected[one.prompt] for one in runs)


def _progress(one: Run) -> None:
    print(f"  {one.prompt:10} {one.contestant:9} {one.rate:6.1f} tokens/s", file=sys.stderr)  # noqa: T201


def _print_table(target: Target, runs: Sequence[Run], drafter: str, expected: dict[str, tuple[int, ...]]) -> None:
    dtype = str(target.info.dtype).removeprefix("torch.")
    table = Table(title=f"plain decoding and {drafter}, greedy, {dtype} on {target.info.device}")
    for heading in ("prompt", "tokens", "plain tokens/s", f"{drafter} tokens/s", "speed-up", "tokens a step"):
        table.add_column(heading, justify="left" if heading == "prompt" else "right")
    table.add_column("identical to model.generate")
    for prompt, ids in expected.items():
        mine = {
            name: [one for one in runs if (one.prompt, one.contestant) == (prompt, name)] for name in ("none", drafter)
        }
        same = all(one.token_ids == ids for found in mine.values() for one in found)
        speed_up = median(ratios(runs, drafter, "none", prompt))
        table.add_row(
            prompt,
            str(len(ids)),
            *[f"{median(one.rate for one in mine[name]):.1f}" for name in ("none", drafter)],
            f"{speed_up:.2f}x" + (" (slower)" if speed_up < 0.995 else ""),
            f"{pooled_acceptance(mine[drafter]) or 0:.2f}",
            "yes" if same else "NO",
        )
    Console(width=None if sys.stdout.isatty() else 110).print(table)
