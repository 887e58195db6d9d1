"""The guarded loader: plugins come in one by one, and one that is broken becomes a record with its reason.

pluggy's own loading of entry points stops at the first broken plugin and skips a duplicate without a word.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Literal

import pluggy

from outrider.errors import first_line
from outrider.plugins import hookspecs
from outrider.plugins.selection import EVERYTHING, Selection
from outrider.trace import traced

OWN_DISTRIBUTION: Final = "outrider"

Status = Literal["loaded", "failed", "disabled", "missing"]
"""Disabled and missing by the variables of `Selection`: the one is installed and not loaded, the other not installed."""


@dataclass(frozen=True, slots=True)
class PluginRecord:
    """What became of an installed plugin.

    Args:
        name: the entry point's name.
        distribution: the package that installed it.
        version: of that package.
        module: what the entry point names.
        status: whether it works.
        detail: why it does not; of one that is loaded what does not work of it.
        drafters: names of the drafters that it registered.
    """

    name: str
    distribution: str
    version: str
    module: str
    status: Status
    detail: str = ""
    drafters: tuple[str, ...] = ()

    @property
    def origin(self) -> str:
        """The distribution and its version."""
        return f"{self.distribution} {self.version}".strip()

    @property
    def builtin(self) -> bool:
        """Whether it came with outrider itself."""
        return self.distribution == OWN_DISTRIBUTION


@dataclass(frozen=True, slots=True)
class LoadedPlugin:
    """A record, and how a plugin that works implements the hooks: drafters, and heads that it offers."""

    record: PluginRecord
    implementations: tuple[Any, ...] = ()
    offers: tuple[Any, ...] = ()


def installed() -> list[EntryPoint]:
    """Return the entry points of all installed plugins, the built-ins first."""
    found = entry_points(group=hookspecs.PROJECT)
    return sorted(
        found, key=lambda point: (_distribution(point)[0] != OWN_DISTRIBUTION, point.name, _distribution(point))
    )


def load_plugins(points: Iterable[EntryPoint], selection: Selection = EVERYTHING) -> list[LoadedPlugin]:
    """Import and register every plugin that is asked for, each on its own.

    Args:
        points: of the plugins, the built-ins first.
        selection: which of them are asked for; by default all.
    """
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    owners: dict[str, str] = {}
    points = list(points)
    loaded = [_load(manager, point, owners, selection) for point in points]
    unknown = selection.unknown((point.name, _distribution(point)[0]) for point in points)
    told = [PluginRecord(name, "", "", "", "missing", f"{where} names it") for name, where in unknown]
    return [*loaded, *map(LoadedPlugin, told)]


def _load(
    manager: pluggy.PluginManager, point: EntryPoint, owners: dict[str, str], selection: Selection
) -> LoadedPlugin:
    distribution, version = _distribution(point)
    if refused := selection.refused(point.name, distribution):
        return LoadedPlugin(PluginRecord(point.name, distribution, version, point.value, "disabled", refused))
    plugin: Any = None
    try:
        if point.name in owners:
            raise ValueError(f"the plugin name is taken by {owners[point.name]}")
        with traced(f"plugin '{point.name}' ({distribution} {version})", f"import {point.value}"):
            plugin = point.load()
        manager.register(plugin, point.name)
        manager.check_pending()
        hooks = (manager.hook.register_drafters, manager.hook.offer_heads)
        found = [tuple(impl for impl in hook.get_hookimpls() if impl.plugin is plugin) for hook in hooks]
        if not any(found):
            raise TypeError("it implements no register_drafters; is the function marked with outrider.hookimpl?")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plugin may raise anything on import, SystemExit too
        if plugin is not None and manager.is_registered(plugin):
            manager.unregister(plugin)
        failed = PluginRecord(point.name, distribution, version, point.value, "failed", first_line(error))
        return LoadedPlugin(failed)
    owners[point.name] = f"{distribution} {version}".strip()
    record = PluginRecord(point.name, distribution, version, point.value, "loaded")
    return LoadedPlugin(record, *found)


def _distribution(point: EntryPoint) -> tuple[str, str]:
    return (point.dist.name, point.dist.version) if point.dist else ("", "")
