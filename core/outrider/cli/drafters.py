"""`outrider drafters`: what can be picked by name."""

import json
from typing import Annotated

import typer
from rich.table import Table

from outrider.cli import print_table, quiet
from outrider.plugins.registry import DrafterRecord, registry


def command(as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False) -> None:
    """List the drafters, with where each comes from."""
    with quiet():
        records = registry().drafters()
    if as_json:
        typer.echo(json.dumps([_as_dict(record) for record in records], indent=2))
        return
    table = Table("drafter", "from", "options", "what it does", box=None, pad_edge=False)
    for record in records:
        origin = f"{record.distribution} {record.version}".strip()
        table.add_row(record.name, origin, " ".join(record.options), record.summary)
    print_table(table)


def _as_dict(record: DrafterRecord) -> dict[str, object]:
    return {
        "name": record.name,
        "plugin": record.plugin or None,
        "distribution": record.distribution,
        "version": record.version or None,
        "location": record.location,
        "options": list(record.options),
        "summary": record.summary,
    }
