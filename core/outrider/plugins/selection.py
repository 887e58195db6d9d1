"""Which of the installed plugins are loaded: `OUTRIDER_LOAD_PLUGINS` names the only ones, `OUTRIDER_DISABLED_PLUGINS` others.

Both hold names with commas between them: a plugin's, a package's for all that it brings, or PACKAGE/PLUGIN. The built-ins'
package is `outrider`; nothing is said of them that is not of every other package.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

ONLY: Final = "OUTRIDER_LOAD_PLUGINS"
WITHOUT: Final = "OUTRIDER_DISABLED_PLUGINS"


@dataclass(frozen=True, slots=True)
class Selection:
    """What the variables ask for.

    Args:
        only: names of what is loaded; None for everything, empty for nothing.
        without: names of what is not, which count where both name a plugin.
    """

    only: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()

    @classmethod
    def read(cls, variables: Mapping[str, str] | None = None) -> "Selection":
        """Read the variables, by default the process's."""
        known = os.environ if variables is None else variables
        return cls(_names(known[ONLY]) if ONLY in known else None, _names(known.get(WITHOUT, "")))

    def refused(self, plugin: str, distribution: str) -> str:
        """Return why a plugin is not loaded; empty where it is."""
        names = {plugin, distribution, f"{distribution}/{plugin}"}
        if names.intersection(self.without):
            return f"{WITHOUT} names it"
        if self.only is not None and not names.intersection(self.only):
            return f"{ONLY} does not name it"
        return ""

    def unknown(self, installed: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return the names that no installed plugin or package has, each with the variable that holds it.

        Args:
            installed: names of all plugins and of their packages.
        """
        known = {name for plugin, package in installed for name in (plugin, package, f"{package}/{plugin}")}
        asked = ((ONLY, self.only or ()), (WITHOUT, self.without))
        return [(name, variable) for variable, names in asked for name in names if name not in known]


EVERYTHING: Final = Selection()


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
