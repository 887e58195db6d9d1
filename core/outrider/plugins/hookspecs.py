"""The hooks that plugins implement."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pluggy

from outrider.draft.contract import Drafter

PROJECT: Final = "outrider"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

Register = Callable[[type[Drafter[Any]]], None]
Offer = Callable[[str, Path], None]


@hookspec
def register_drafters(register: Register) -> None:
    """Call `register` with every drafter class that the plugin provides."""


@hookspec
def offer_heads(offer: Offer) -> None:
    """Call `offer` with a drafter's name and a folder, for everything trained that the plugin brings.

    The folder is one that `outrider train` wrote: its `target.json` says for which model.
    """
