"""The hook that plugins implement."""

from collections.abc import Callable
from typing import Any, Final

import pluggy

from outrider.draft.contract import Drafter

PROJECT: Final = "outrider"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

Register = Callable[[type[Drafter[Any]]], None]


@hookspec
def register_drafters(register: Register) -> None:
    """Call `register` with every drafter class that the plugin provides."""
