"""`outrider tune`: which drafter with which settings pays on one's own model, prompts and machine, or none."""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from outrider.cli import quiet
from outrider.cli.arguments import batch_sizes, writable
from outrider.cli.comparison import clock, settings_of
from outrider.compare.conversations import cut, first_of_each
from outrider.compare.files import write
from outrider.compare.measure import Progress
from outrider.compare.prompts import BUILTIN
from outrider.compare.report.page import environment, write_report
from outrider.decode.request import check_options
from outrider.errors import OutriderError
from outrider.prompt_file import NamedPrompt, read_prompts
from outrider.target.load import load
from outrider.target.model import Target
from outrider.tune.bars import measure_bars
from outrider.tune.config_file import config_of
from outrider.tune.plots import predicted_and_measured
from outrider.tune.result import Tuned
from outrider.tune.settings import Space
from outrider.tune.show import lines
from outrider.tune.tuning import Tuning
from outrider.verify.rules import check_rule

_TOKENS: Final = 64
_REPEATS: Final = 5
_FIXED: Final = 60.0
_EACH: Final = 120.0
_EVERY: Final = 5.0


def command(
    drafter: Annotated[
        list[str], typer.Option("-d", "--drafter", help="NAME, NAME[key=value,...], file.py::Class; several times.")
    ],
    model: Annotated[str, typer.Option("-m", "--model", help="smollm2, a folder, or a Hub id.")],
    prompts: Annotated[
        Path | None, typer.Option(help="JSONL, JSON or text file in place of the three built-in prompts.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where the config file is written; else it is printed.")] = None,
    budget: Annotated[
        float | None,
        typer.Option(help="Seconds to take at most, loading apart (60, and 120 for every drafter).", min=1.0),
    ] = None,
    batch_size: Annotated[str, typer.Option(help="Texts at once; several, such as 1,2,4.")] = "1",
    rule: Annotated[
        list[str] | None, typer.Option(help="match (the default), rejection or block; several times.")
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(help="Most tokens of a text.", min=2)] = _TOKENS,
    runs: Annotated[int, typer.Option(help="Most repeats of the validation.", min=1)] = _REPEATS,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    top_k: Annotated[int | None, typer.Option(help="Sample from the k likeliest tokens; 0 from all.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Sample from the likeliest tokens of this mass.")] = None,
    seed: Annotated[int, typer.Option(help="Every prompt's is derived from it.")] = 0,
    each: Annotated[int | None, typer.Option(help="Prompts of a category; all by default.", min=1)] = None,
    longest: Annotated[int | None, typer.Option(help="Prompts are cut to so many tokens.", min=8)] = None,
    chat: Annotated[bool | None, typer.Option("--chat/--raw", help="Use the chat template, or the bare text.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16, ..., or auto.")] = None,
    device: Annotated[str | None, typer.Option(help="Such as cpu or cuda:0.")] = None,
    grid: Annotated[
        int,
        typer.Option(help="Also measure so many settings of every drafter, and how well the choice holds.", min=0),
    ] = 0,
    html: Annotated[Path | None, typer.Option("--html", help="Write a report that opens in any browser.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> int:
    """Find the fastest drafter and settings, or that speculation does not pay; status 1 where a drafter failed."""
    spaces = [Space.of(one) for one in drafter]
    rules = rule or ["match"]
    for one in rules:
        check_rule(one)
    sizes = batch_sizes(batch_size)
    given = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    generation = {name: value for name, value in given.items() if value is not None}
    check_options(generation | {"max_new_tokens": max_new_tokens, "seed": seed})
    out, html = (path and writable(path) for path in (out, html))
    if html is not None:
        environment()  # what is missing for the report is missed before the measurement
    read = first_of_each(read_prompts(prompts) if prompts else BUILTIN, each)
    with quiet():
        target = load(model, dtype=dtype, device=device)
        options = generation | {"max_new_tokens": max_new_tokens}
        how = {"repeats": runs, "batch_sizes": sizes, "adaptive": False, "longest": longest}
        settings = settings_of(target, model, options, seed=seed, chat=chat, **how)
        if longest is not None:
            read = [cut(target, one, longest, settings.chat) for one in read]
        teller = _Teller()
        seconds = budget or _FIXED + _EACH * len(spaces) * len(rules) * len(sizes)
        tuning = Tuning(target, spaces, rules, read, settings, seconds, teller.tell)
        tuned = tuning.run()
        if grid and tuned.complete:
            tuned = _with_bars(target, tuned, read, grid, teller)
        teller.over()
    said = {"model": model, "dtype": dtype, "device": device, "chat": chat} | generation
    text = config_of(tuned, {name: value for name, value in said.items() if value is not None})
    tuned = replace(tuned, config=text)
    _print(tuned, out, as_json=as_json)
    if html is not None and tuned.validation is not None:
        write_report(tuned.validation, html, predicted_and_measured(tuned))
        typer.echo(f"report: {html}", err=True)
    if not tuned.complete:
        raise KeyboardInterrupt
    failed = any(one.error for one in tuned.candidates) or any(one.error for one in tuned.checked)
    failed = failed or not all(one.kept for one in tuned.bars)
    return 1 if failed else 0


def _print(tuned: Tuned, out: Path | None, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(tuned.as_dict()))
    else:
        typer.echo("\n".join(lines(tuned)))
    if out is not None:
        try:
            write(tuned.config, out)
        except OSError as error:
            if not as_json:  # what was found is not lost
                typer.echo(f"\n{tuned.config}", nl=False)
            raise OutriderError(f"{out} can't be written: {error.strerror or error}") from error
        if not as_json:
            typer.echo(f"Written to {out}; generate and compare take it by --config {out}")
    elif not as_json:
        typer.echo(f"\n{tuned.config}", nl=False)


def _with_bars(target: Target, tuned: Tuned, read: Sequence[NamedPrompt], each: int, teller: "_Teller") -> Tuned:
    """Measure the grid on the prompts that tuning measured; Ctrl-C keeps what was there before."""
    prompts = [replace(one, later=()) for one in read if one.name in tuned.prompts]
    try:
        return measure_bars(target, tuned, prompts, each, teller.hear)
    except KeyboardInterrupt:
        return replace(tuned, complete=False)


class _Teller:
    """Says on stderr what is done, and how long it will go on."""

    def __init__(self) -> None:
        self._last = 0.0
        self._live = sys.stderr is not None and sys.stderr.isatty()

    def hear(self, at: Progress) -> None:
        """Tell of a run of the grid."""
        self.tell(f"the grid: {at.done} of {at.total} runs, {at.last.row}", at.left)

    def tell(self, what: str, left: float | None) -> None:
        """Tell what is done."""
        now = time.monotonic()
        if sys.stderr is None or now - self._last < (0.2 if self._live else _EVERY):
            return
        self._last = now
        text = what if left is None else f"{what}, about {clock(left)} left"
        start, end = ("\r\x1b[2K", "") if self._live else ("", "\n")
        print(f"{start}{text}", end=end, file=sys.stderr, flush=True)  # noqa: T201

    def over(self) -> None:
        """Leave a clean line."""
        if self._live:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)  # noqa: T201
