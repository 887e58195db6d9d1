"""The hooks that plugins implement.

A plugin is a module that an entry point of the group `outrider` names. It may implement either hook or both, marked with
`outrider.hookimpl`, and name fewer arguments than a hook has, but no other ones. Every call is guarded: a plugin that raises
in one is a record with its reason (`outrider plugins`), what it had registered by then does not count, and the others work.
"""

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
    """Call `register` with every drafter class that the plugin provides.

    It raises InputError for what is no drafter of this contract (`outrider.API`), which is best left alone: that becomes the
    plugin's reason. Classes are registered, not made; nothing is loaded before somebody picks the drafter.
    """


@hookspec
def offer_heads(offer: Offer) -> None:
    """Call `offer` with a drafter's name and a folder, for everything trained that the plugin brings.

    The folder is one that `outrider train` wrote: its `target.json` says for which model. `outrider.find_heads` looks through
    what all plugins offer.
    """
