"""`outrider drafters`: what can be picked by name, where it comes from, and what does not work."""

import json
from typing import Annotated, Final

import typer
from rich.table import Table

from outrider.cli import print_table, quiet
from outrider.plugins.loader import PluginRecord
from outrider.plugins.registry import DrafterRecord, Registry, registry

_COLUMNS: Final = ("drafter", "from", "status", "requires", "drafts", "sampling", "options", "what it does", "where")
_NOT_TOLD: Final = "not told"


def command(as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False) -> None:
    """List the drafters: where each comes from, what it requires and drafts, and the plugins that failed."""
    with quiet():
        rows = _rows(registry())
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table(*_COLUMNS, box=None, pad_edge=False)
    for row in rows:
        origin = f"{row['distribution']} {row['version'] or ''}".strip()
        status = f"{row['status']}: {row['detail']}" if row["detail"] else row["status"]
        rest = (row[name] for name in ("requires", "drafts", "sampling", "options", "summary", "location"))
        shown = [" ".join(one) if isinstance(one, list) else str(one or "") for one in rest]
        table.add_row(str(row["pick"]), origin, str(status), *shown)
    print_table(table)


def _rows(known: Registry) -> list[dict[str, object]]:
    """Return what can be picked, then what is picked by its package's name, then what is not there."""
    rows = [_as_dict(record, record.name) for record in known.drafters()]
    for record in known.shadowed():
        owner = known.find(record.name).origin
        rows.append(_as_dict(record, record.qualified) | {"detail": f"the name {record.name} is taken by {owner}"})
    return rows + [_failed(plugin) for plugin in known.plugins if plugin.status == "failed"]


def _as_dict(record: DrafterRecord, pick: str) -> dict[str, object]:
    has = record.drafter.capabilities
    return {
        "name": record.name,
        "pick": pick,
        "plugin": record.plugin or None,
        "distribution": record.distribution,
        "version": record.version or None,
        "status": "loaded",
        "detail": "",
        "api": list(record.drafter.requires_api),
        "requires": has.requires if has else _NOT_TOLD,
        "drafts": has.shape if has else _NOT_TOLD,
        "sampling": has.sampling if has else _NOT_TOLD,
        "location": record.location,
        "options": list(record.options),
        "summary": record.summary,
    }


def _failed(plugin: PluginRecord) -> dict[str, object]:
    nothing = dict.fromkeys(("api", "requires", "drafts", "sampling"))
    told = {
        "name": plugin.name,
        "pick": "",
        "plugin": plugin.name,
        "distribution": plugin.distribution,
        "version": plugin.version or None,
        "status": plugin.status,
        "detail": plugin.detail,
    }
    return told | nothing | {"location": plugin.module, "options": [], "summary": ""}
