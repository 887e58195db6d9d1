"""`outrider check`: whether a drafter is right."""

import dataclasses
import json
from collections import Counter
from typing import Annotated

import typer

from outrider.check.check import TIERS
from outrider.check.kit import CheckReport, check_drafter
from outrider.cli import quiet
from outrider.plugins.words import read_options


def command(
    drafter: Annotated[str, typer.Argument(metavar="DRAFTER", help="NAME, NAME[key=value,...] or file.py::Class.")],
    option: Annotated[list[str] | None, typer.Option("-o", "--option", help="The drafter's key=value.")] = None,
    tier: Annotated[list[str] | None, typer.Option(help=f"Only checks of this tier: {', '.join(TIERS)}.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only the check of this name.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check a drafter on tiny random models; status 1 where a check fails."""

    def hear(report: CheckReport) -> None:
        if not as_json:
            note = f"  ({report.detail})" if report.detail and report.status != "failed" else ""
            typer.echo(f"{report.status:9} {report.tier:9} {report.check:21} {report.seconds:5.1f} s{note}")

    with quiet():
        reports = check_drafter(
            drafter, read_options(option or []), tiers=tier or TIERS, only=only or (), hear=hear, raises=False
        )
    failed = [one for one in reports if one.status == "failed"]
    if as_json:
        found = {"drafter": drafter, "passed": not failed, "checks": [dataclasses.asdict(one) for one in reports]}
        typer.echo(json.dumps(found, indent=2))
    else:
        for one in failed:
            typer.echo(f"\n{one.check}: {one.detail}")
        counts = Counter(one.status for one in reports)
        typer.echo(f"\n{', '.join(f'{count} {status}' for status, count in counts.most_common())}")
    if failed:
        raise typer.Exit(1)
