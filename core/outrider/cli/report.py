"""`outrider report`: the report of a saved comparison."""

from pathlib import Path
from typing import Annotated

import typer

from outrider.cli.arguments import writable
from outrider.compare.files import read
from outrider.compare.report.page import write_report
from outrider.errors import InputError


def command(
    run: Annotated[Path, typer.Argument(help="A comparison that outrider compare --save wrote.")],
    html: Annotated[Path, typer.Option("--html", help="Where the report goes (required).")],
) -> None:
    """Write the report of a saved comparison: one HTML file that needs nothing else."""
    if html.expanduser().resolve() == run.expanduser().resolve():
        raise InputError(f"the report would replace {run}: give --html another name")
    write_report(read(run), writable(html))
    typer.echo(html)
