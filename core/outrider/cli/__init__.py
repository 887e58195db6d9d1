"""The command line, one module a subcommand."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

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
