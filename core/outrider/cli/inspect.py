"""`outrider inspect`: how a model is served, and what is refused."""

import dataclasses
import json
from typing import Annotated, Any

import typer
from rich.table import Table

from outrider.cli import print_table, quiet
from outrider.target.inspection import Inspection, inspect
from outrider.target.load import load


def command(
    model: Annotated[str, typer.Option("-m", "--model", help="smollm2, a folder, or a Hub id (required).")],
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16, ..., or auto.")] = None,
    device: Annotated[str | None, typer.Option(help="Such as cpu or cuda:0.")] = None,
    device_map: Annotated[str | None, typer.Option(help="Spread the layers over devices: auto.")] = None,
    revision: Annotated[str | None, typer.Option(help="Of a Hub id.")] = None,
    trust_remote_code: Annotated[bool, typer.Option(help="Run the model's own code.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show how a model is served, and why not otherwise."""
    with quiet():
        target = load(
            model,
            dtype=dtype,
            device=device,
            device_map=device_map,
            revision=revision,
            trust_remote_code=trust_remote_code,
        )
        found = inspect(target)
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(found), indent=2))
        return
    table = Table.grid(padding=(0, 2))
    for name, value in _lines(found):
        table.add_row(name, value)
    print_table(table)


def _lines(found: Inspection) -> list[tuple[str, str]]:
    error = (
        "told by swapped tokens, as half precision is"
        if found.error is None
        else f"{found.error:.1e} standard deviations"
    )
    later = ", ".join(map(str, found.verified_later)) or "nowhere"
    lines: list[tuple[str, Any]] = [
        ("model", f"{found.model} ({found.model_type}), {found.parameters:,} parameters"),
        ("runs in", f"{found.dtype} on {found.device}, attention {found.attention}"),
        ("tier", f"{found.tier}: {found.how}"),
        *[("  refused", f"{name}: {reason}") for name, reason in found.refused.items()],
        ("error of a node", error),
        ("verified", f"after {found.verified_context} tokens; again where a text first passes: {later}"),
        ("drafts", f"in contexts of up to {found.drafts_up_to} tokens" if found.drafts_up_to else "in any context"),
        ("rotary switch", found.rope_switch or "none"),
        ("batches", found.batches),
        ("caller's caches", f"{found.caches}; quantised and offloaded ones are refused"),
        ("features", found.features),
    ]
    return [(name, str(value)) for name, value in lines]
