"""The benchmark of lookups: `ngram` against the prompt lookup of transformers and of other packages, as ratios to plain."""

import sys
from collections.abc import Callable, Sequence
from statistics import median
from typing import Final

from rich.console import Console
from rich.table import Table

from outrider.compare import contestants, peers
from outrider.compare.figures import median_interval, ratios
from outrider.compare.prompts import BUILTIN, WARM_UP
from outrider.compare.runner import Contestant, Run, print_run, run
from outrider.prompt_file import NamedPrompt
from outrider.target.model import Target

DRAFT_TOKENS: Final = 10
_PEERS: Final[dict[str, Callable[[Target, int, int], Contestant]]] = {
    "economize": peers.with_economize,
    "flashspec": peers.with_flashspec,
}


def lookups(
    target: Target, prompts: Sequence[NamedPrompt] = BUILTIN[:2], *, rounds: int = 12, max_new_tokens: int = 128
) -> None:
    """Measure greedily, interleaved, and print a table; packages that are not installed are named and left out.

    Args:
        target: the model.
        prompts: a block of the table each.
        rounds: repetitions; figures are medians over them.
        max_new_tokens: length of every text.
    """
    options = {"max_new_tokens": max_new_tokens, "do_sample": False}
    chosen: dict[str, Contestant] = {
        "plain": contestants.with_drafter(target, "none", options),
        "ngram": contestants.with_drafter(target, "ngram", options),
        "transformers": contestants.with_transformers(target, options | {"prompt_lookup_num_tokens": DRAFT_TOKENS}),
    }
    for name, make in _PEERS.items():
        try:
            chosen[name] = make(target, DRAFT_TOKENS, max_new_tokens)
        except ImportError:
            print(f"{name} is not installed and left out", file=sys.stderr)  # noqa: T201
    for one in chosen.values():
        one(WARM_UP)
    runs = run(chosen, prompts, rounds, {"options": options, "draft_tokens": DRAFT_TOKENS}, report=print_run)
    dtype = str(target.info.dtype).removeprefix("torch.")
    table = Table(
        title=f"lookups with drafts of {DRAFT_TOKENS} beside ngram, greedy, {dtype} on {target.info.device}, "
        f"median of {rounds} rounds"
    )
    for heading in ("prompt", "contestant", "tokens", "tokens/s", "ratio to plain", "ngram's ratio to it", "same text"):
        table.add_column(heading, justify="left" if heading in ("prompt", "contestant") else "right")
    for prompt in prompts:
        for name in chosen:
            table.add_row(prompt.name, name, *_figures(runs, prompt.name, name))
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def _figures(runs: Sequence[Run], prompt: str, name: str) -> tuple[str, ...]:
    """Return the figures of a contestant; whether its text is plain decoding's counts every round."""
    mine = [one for one in runs if (one.prompt, one.contestant) == (prompt, name)]
    plain = {one.round: one.token_ids for one in runs if (one.prompt, one.contestant) == (prompt, "plain")}
    same = all(one.token_ids == plain[one.round] for one in mine)
    return (
        str(len(mine[0].token_ids)),
        f"{median(one.rate for one in mine):.1f}",
        str(median_interval(ratios(runs, name, "plain", prompt))),
        str(median_interval(ratios(runs, "ngram", name, prompt))),
        "yes" if same else "no",
    )
