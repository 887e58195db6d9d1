"""`outrider plugins`: what is installed, and what became of it."""

import dataclasses
import json
import warnings
from typing import Annotated

import typer
from rich.table import Table

from outrider.cli import print_table, quiet
from outrider.draft.contract import API
from outrider.errors import InputError
from outrider.plugins.registry import HeadsOffer, registry
from outrider.target.fingerprint import read_fingerprint


def command(as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False) -> None:
    """List the installed plugins and the heads that they offer; one that failed says why."""
    with quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the table says it all
        known = registry()
    heads = [
        [_offer(one) for one in known.offers if record.status == "loaded" and one.plugin == record.name]
        for record in known.plugins
    ]
    if as_json:
        listed = zip(known.plugins, heads, strict=True)
        typer.echo(json.dumps([dataclasses.asdict(record) | {"heads": own} for record, own in listed], indent=2))
        return
    table = Table("plugin", "from", "module", "status", "drafters", "heads", "detail", box=None, pad_edge=False)
    for record, own in zip(known.plugins, heads, strict=True):
        offered = ", ".join(f"{one['drafter']} for {one['target']}" for one in own)
        table.add_row(
            record.name, record.origin, record.module, record.status, " ".join(record.drafters), offered, record.detail
        )
    print_table(table)
    typer.echo(f"drafter API {'.'.join(map(str, API))}")


def _offer(offer: HeadsOffer) -> dict[str, str]:
    try:
        target = read_fingerprint(offer.folder)[0]
    except InputError as error:
        target = f"nobody: {error}"
    return {"drafter": offer.drafter, "target": target, "folder": str(offer.folder)}
