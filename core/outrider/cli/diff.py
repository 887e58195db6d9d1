"""`outrider diff`: what changed from one saved comparison to another."""

from pathlib import Path
from typing import Annotated

import typer

from outrider.cli.comparison import show_grid
from outrider.compare.diff import as_json, below, difference, grid, read_bound
from outrider.compare.files import read


def command(
    before: Annotated[Path, typer.Argument(help="A comparison that outrider compare --save wrote.")],
    after: Annotated[Path, typer.Argument(help="Another.")],
    fail_below: Annotated[
        list[str] | None, typer.Option(help="Status 1 where a figure falls below a share, such as speedup:0.95.")
    ] = None,
    how: Annotated[str, typer.Option("-f", "--format", help="table, md or json.")] = "table",
) -> int:
    """Say what changed, with intervals that hold together at 99 %, and what else differs."""
    bounds = [read_bound(word) for word in fail_below or []]
    if how not in ("table", "md", "json"):
        raise typer.BadParameter(f"'{how}' is none of table, md and json", param_hint="-f")
    found = difference(read(before), read(after))
    if how == "json":
        typer.echo(as_json(found))
    elif how == "md":
        typer.echo(grid(found).markdown())
    else:
        show_grid(grid(found))
    for note in found.notes if how != "json" else ():
        typer.echo(f"- {note}")
    fallen = below(found, bounds)
    for line in fallen:
        typer.echo(line, err=True)
    return 1 if fallen else 0
