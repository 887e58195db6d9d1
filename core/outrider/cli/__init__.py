"""The command line, one module a subcommand."""

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table
from transformers.utils import logging as transformers_logging

from outrider.errors import OutriderError
from outrider.ranks import Ranks, was_heard


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' progress bars and notes out of the terminal, and say our own warnings in one line."""
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity(logging.ERROR)
    with warnings.catch_warnings():
        warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
        warnings.filterwarnings("ignore", module="transformers")
        yield


@contextmanager
def first_speaks(ranks: Ranks) -> Iterator[None]:
    """Let the first of several processes alone print, write and hear of Ctrl-C; an error is said by whom it came up in."""
    with ranks.interruptible():
        if ranks.first:
            yield
            return
        told = sys.stdout, sys.stderr
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
            sys.stdout = sys.stderr = nowhere
            try:
                yield
            except BaseException as error:
                if was_heard(error):
                    raise SystemExit(error.exit_status if isinstance(error, OutriderError) else 1) from error
                raise
            finally:
                sys.stdout, sys.stderr = told


def print_table(table: Table) -> None:
    """Print a table; nothing in it is cut off, and lines are not broken where no terminal asks for it."""
    for column in table.columns:
        column.overflow = "fold"
    console = Console()
    if not console.is_terminal:
        console.width = 10_000
        table.expand = False
    console.print(table, soft_wrap=not console.is_terminal)
