"""Every call of a plugin on stderr, with its time, where `OUTRIDER_TRACE_PLUGINS` asks for it.

A call is named when it begins and when it is over, so that a plugin that hangs is the last one named.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Final

from outrider.errors import InputError

VARIABLE: Final = "OUTRIDER_TRACE_PLUGINS"
_START: Final = perf_counter()


def tracing() -> bool:
    """Say whether calls are traced.

    Raises:
        InputError: the variable is neither 1 nor 0.
    """
    value = os.environ.get(VARIABLE, "").strip()
    if value not in ("", "0", "1"):
        raise InputError(f"{VARIABLE} = '{value}': write 1 to trace the calls of plugins, or 0")
    return value == "1"


@contextmanager
def traced(who: str, what: str) -> Iterator[None]:
    """Name a call of somebody when it begins and when it is over."""
    if not tracing():
        yield
        return
    began = _say(f"{who} {what} ...")
    how = "raised"
    try:
        yield
        how = "took"
    finally:
        _say(f"{who} {what} {how} {perf_counter() - began:.6f} s")


def _say(text: str) -> float:
    now = perf_counter()
    print(f"trace {now - _START:.6f} s: {text}", file=sys.stderr, flush=True)  # noqa: T201
    return now
