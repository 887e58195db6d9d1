"""Registries of drafters that no package brings."""

from types import SimpleNamespace
from typing import Any

from outrider import Drafter
from outrider.plugins.loader import LoadedPlugin, PluginRecord
from outrider.plugins.registry import Registry


def registry_of(*drafters: type[Drafter[Any]]) -> Registry:
    """A registry of these drafters alone, without an installed package."""

    def register_drafters(register: Any) -> None:
        for drafter in drafters:
            register(drafter)

    record = PluginRecord("test", "test", "1", "test", "loaded")
    return Registry([LoadedPlugin(record, (SimpleNamespace(function=register_drafters, argnames=("register",)),))])
