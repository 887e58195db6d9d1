"""`outrider plugin`: making plugins."""

from pathlib import Path
from typing import Annotated

import typer

from outrider.cli import quiet
from outrider.plugins.package import new_plugin

app = typer.Typer(help="Make plugins.", rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """Make plugins."""


@app.command("new")
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the package: outrider- and the drafter's name.")],
    out: Annotated[Path | None, typer.Option(help="A new folder, or an empty one; by default ./NAME.")] = None,
) -> None:
    """Make a package with a small drafter that works, its tests and what is needed to publish it."""
    with quiet():
        folder = new_plugin(name, out)
    typer.echo(f"{folder}: install it with `pip install -e {folder}`, and test it with `python -m pytest {folder}`")
