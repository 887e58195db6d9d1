"""`outrider merge`: the shards of a comparison made into one."""

from pathlib import Path
from typing import Annotated

import typer

from outrider.cli.arguments import writable
from outrider.cli.comparison import show, status
from outrider.compare.files import read, save
from outrider.compare.merge import merge
from outrider.errors import InputError


def command(
    files: Annotated[list[Path], typer.Argument(help="What outrider compare --shard i/n --save wrote.")],
    out: Annotated[Path, typer.Option("--out", help="Where the whole is written.")],
) -> int:
    """Merge the shards of a comparison, and print its table."""
    goal = writable(out)
    if len(files) < 2:
        raise InputError("merge takes two comparisons or more")
    found = merge([read(one) for one in files], [str(one) for one in files])
    save(found, goal)
    show(found, "table")
    return status(found)
