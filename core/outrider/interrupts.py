"""Ctrl-C that is neither lost nor too early.

Python drops the exception where it comes up inside a destructor or a callback, and raises it in the middle of a change.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Interrupts:
    """Whether Ctrl-C was pressed since this was made."""

    def __init__(self) -> None:
        self.came = False

    def check(self) -> None:
        """Raise KeyboardInterrupt where Ctrl-C was pressed, also where it went unnoticed."""
        if self.came:
            raise KeyboardInterrupt


@contextmanager
def watched() -> Iterator[Interrupts]:
    """Notice Ctrl-C while something runs; what the process does about it stays as it is."""
    with _noted(hold=False) as found:
        yield found


@contextmanager
def deferred() -> Iterator[Interrupts]:
    """Hold Ctrl-C back while something runs that must not be left half done; the second one comes through."""
    with _noted(hold=True) as found:
        yield found


@contextmanager
def _noted(*, hold: bool) -> Iterator[Interrupts]:
    """Note Ctrl-C, and hold the first one back or not."""
    found = Interrupts()
    before: Any = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield found  # signals are not ours here
        return

    def note(number: int, frame: Any) -> Any:
        held, found.came = hold and not found.came, True
        return None if held else before(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield found
    finally:
        signal.signal(signal.SIGINT, before)
