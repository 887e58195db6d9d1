"""`outrider plugins`: what is installed, and what became of it."""

import dataclasses
import json
import warnings
from typing import Annotated

import typer
from rich.table import Table

from outrider.cli import print_table, quiet
from outrider.plugins.registry import registry


def command(as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False) -> None:
    """List the installed plugins; one that failed says why."""
    with quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the table says it all
        records = registry().plugins
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(record) for record in records], indent=2))
        return
    table = Table("plugin", "from", "module", "status", "drafters", "detail", box=None, pad_edge=False)
    for record in records:
        table.add_row(
            record.name, record.origin, record.module, record.status, " ".join(record.drafters), record.detail
        )
    print_table(table)
