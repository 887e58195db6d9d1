"""`outrider heads`: folders of trained heads."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from outrider.cli import print_table, quiet
from outrider.draft.contract import TargetInfo
from outrider.draft.heads import HeadsReport, HeadsTarget
from outrider.plugins.heads import export_heads, inspect_heads
from outrider.target.load import architectures, load, outline

app = typer.Typer(help="Look into folders of trained heads, and write them in other layouts.", rich_markup_mode=None)


@app.command("inspect")
def inspect(
    folder: Annotated[str, typer.Argument(metavar="PATH", help="The folder of the heads.")],
    model: Annotated[
        str | None, typer.Option("-m", "--model", help="Whether they fit this model, by its config.")
    ] = None,
    revision: Annotated[str | None, typer.Option(help="Of a Hub id.")] = None,
    trust_remote_code: Annotated[bool, typer.Option(help="Run the model's own code.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what a folder of heads holds, and whether it fits a model; status 1 where it doesn't."""
    with quiet():
        target = outline(model, revision=revision, trust_remote_code=trust_remote_code) if model is not None else None
        found = inspect_heads(folder, target)
    _print(found, model, as_json)
    if found.misfit:
        raise typer.Exit(1)


@app.command("export")
def export(
    folder: Annotated[str, typer.Argument(metavar="PATH", help="The folder of the heads.")],
    layout: Annotated[
        str, typer.Option(help="eagle, specforge or speculators; of medusa heads medusa or fasterdecoding.")
    ],
    out: Annotated[Path, typer.Option(help="A new folder, or an empty one.")],
    model: Annotated[
        str | None, typer.Option("-m", "--model", help="Whom they serve; loaded only where its weights are needed.")
    ] = None,
    revision: Annotated[str | None, typer.Option(help="Of a Hub id.")] = None,
    trust_remote_code: Annotated[bool, typer.Option(help="Run the model's own code.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write heads in a layout that other engines load, tensor for tensor."""
    with quiet():
        target = _target(model, revision, trust_remote_code) if model is not None else None
        found = export_heads(folder, layout, out, target)
    _print(found, model, as_json)


def _target(model: str, revision: str | None, trust: bool) -> HeadsTarget:
    def loaded() -> TargetInfo:
        # Rows are taken in the model's own dtype.
        return load(model, dtype="auto", revision=revision, trust_remote_code=trust).info

    return HeadsTarget(
        name=model,
        info=outline(model, revision=revision, trust_remote_code=trust),
        architectures=architectures(model, revision=revision, trust_remote_code=trust),
        load=loaded,
    )


def _print(found: HeadsReport, model: str | None, as_json: bool) -> None:
    if as_json:
        fits = {} if model is None else {"fits": not found.misfit}
        typer.echo(json.dumps(dataclasses.asdict(found) | fits, indent=2))
        return
    table = Table.grid(padding=(0, 2))
    for name, value in [*_lines(found), *([] if model is None else [("fits", _fits(found, model))])]:
        table.add_row(name, value)
    print_table(table)


def _fits(found: HeadsReport, model: str) -> str:
    """Say whether heads fit a model: by their figures, since a model's name is anybody's to give."""
    made_for = found.trained_for
    other = made_for is not None and made_for.rpartition("/")[2].lower() != model.rstrip("/").rpartition("/")[2].lower()
    return found.misfit or f"{model}: yes, by all figures{f'; made for {made_for}, which is not checked' * other}"


def _lines(found: HeadsReport) -> list[tuple[str, str]]:
    features = "by the target's number of layers" if found.features is None else ", ".join(map(str, found.features))
    drafts = "" if found.draft_vocab_size in (None, found.vocab_size) else f", drafts {found.draft_vocab_size} of them"
    return [
        ("drafter", found.drafter),
        ("layout", found.layout),
        ("holds", found.parts),
        ("hidden size", str(found.hidden_size)),
        ("vocabulary", f"{found.vocab_size or 'not told'}{drafts}"),
        ("reads layers", features),
        ("trained for", found.trained_for or "not told"),
        *found.details.items(),
    ]
