"""The command line, one module a subcommand."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table
from transformers.utils import logging as transformers_logging


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' progress bars and notes out of the terminal, and say our own warnings in one line."""
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity(logging.ERROR)
    with warnings.catch_warnings():
        warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
        warnings.filterwarnings("ignore", module="transformers")
        yield


def print_table(table: Table) -> None:
    """Print a table; nothing in it is cut off, and lines are not broken where no terminal asks for it."""
    for column in table.columns:
        column.overflow = "fold"
    console = Console()
    if not console.is_terminal:
        console.width = 10_000
        table.expand = False
    console.print(table, soft_wrap=not console.is_terminal)
