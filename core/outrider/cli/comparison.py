"""How a comparison is shown: its tables, its exit status, and how far it is."""

import sys
import time
from collections.abc import Mapping
from typing import Any, Final

import typer
from rich.table import Table

from outrider.cli import print_table
from outrider.compare.measure import Progress
from outrider.compare.result import Comparison, Settings
from outrider.compare.table import Grid, grids, notes, render
from outrider.decode.request import read_request
from outrider.target.model import Target

_EVERY: Final = 10.0


def settings_of(
    target: Target, model: str, generation: Mapping[str, Any], *, seed: int, chat: bool | None, **how: Any
) -> Settings:
    """Return what is asked for, with what follows from the target; `how` are further fields of `Settings`.

    Raises:
        InputError: an option of generation is wrong.
    """
    request = read_request(target, [0], {**generation, "seed": seed})
    return Settings(
        model=model,
        dtype=str(target.info.dtype).removeprefix("torch."),
        device=str(target.info.device),
        generation=generation,
        sampled=request.sampler.decisions is not None,
        seed=seed,
        chat=bool(getattr(target.tokenizer, "chat_template", None)) if chat is None else chat,
        command=" ".join(sys.argv[1:]),
        **how,
    )


def status(found: Comparison) -> int:
    """Return 1 where a row failed or a text is wrong."""
    bad = any(row.error for row in found.rows) or any(one.verdict.kind == "fault" for one in found.figures)
    return 1 if bad else 0


def show(found: Comparison, how: str) -> None:
    """Print a comparison."""
    if how != "table":
        typer.echo(render(found, how))
        for line in notes(found) if how == "csv" else ():
            if line.startswith("WARNING"):
                typer.echo(line, err=True)
        return
    for one in grids(found):
        show_grid(one)
    for line in notes(found):
        typer.echo(line)


def show_grid(grid: Grid) -> None:
    """Print a table to the terminal."""
    table = Table(*grid.head, title=grid.title, title_justify="left", box=None, pad_edge=False)
    for at, column in enumerate(table.columns):
        column.justify = "left" if at == 0 else "right"
    for line in grid.lines:
        table.add_row(*[cell.replace("[", "\\[") for cell in line])
    print_table(table)
    typer.echo()


class Teller:
    """Says on stderr how far it is."""

    def __init__(self) -> None:
        self._last = 0.0
        self._live = sys.stderr is not None and sys.stderr.isatty()

    def __call__(self, at: Progress) -> None:
        """Say it, where some time has passed since the last time."""
        now = time.monotonic()
        over = at.done >= at.total
        if sys.stderr is None or (not over and now - self._last < (0.2 if self._live else _EVERY)):
            return
        self._last = now
        left = "" if at.left is None or over else f", {clock(at.left)} left"
        text = f"{at.done} of {at.total} runs{left}: {at.last.row}"
        end = "\n" if over or not self._live else ""
        print(f"\r\x1b[2K{text}" if self._live else text, end=end, file=sys.stderr, flush=True)  # noqa: T201


def clock(seconds: float) -> str:
    """Write seconds as minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
