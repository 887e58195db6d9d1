"""Registries of drafters that no package brings, and packages that are not there."""

import sys
import types
from importlib.metadata import EntryPoint
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

import outrider
from outrider import Drafter, DrafterOptions, DraftTree, DraftView, RowDrafter
from outrider.draft.contract import API
from outrider.plugins.loader import LoadedPlugin, PluginRecord, installed, load_plugins
from outrider.plugins.registry import Registry


def registry_of(*drafters: type[Drafter[Any]]) -> Registry:
    """A registry of these drafters alone, without an installed package."""

    def register_drafters(register: Any) -> None:
        for drafter in drafters:
            register(drafter)

    record = PluginRecord("test", "test", "1", "test", "loaded")
    return Registry([LoadedPlugin(record, (SimpleNamespace(function=register_drafters, argnames=("register",)),))])


class _Dist:
    def __init__(self, name: str, version: str = "1.0") -> None:
        self.name, self.version = name, version


def make_drafter_class(name: str, **replaced: Any) -> type[Drafter[Any]]:
    class Made(RowDrafter[DrafterOptions]):
        """Proposes nothing."""

        requires_api: ClassVar[tuple[int, int]] = API

        def propose_row(self, view: DraftView) -> DraftTree:
            return DraftTree()

    Made.name = name
    for key, value in replaced.items():
        setattr(Made, key, value)
    return Made


class Installed:
    """Pretends that distributions are installed, beside those that are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.points: list[EntryPoint] = []

    def add(self, dist: str, name: str, *classes: Any, module: str | None = None, body: Any = None) -> None:
        where = module or f"fake_{dist}_{name}".replace("-", "_")
        plugin = types.ModuleType(where)

        @outrider.hookimpl
        def register_drafters(register: Any) -> None:
            for one in classes:
                register(one)

        plugin.register_drafters = body or register_drafters  # type: ignore[attr-defined]
        if module is None:
            self._monkeypatch.setitem(sys.modules, where, plugin)
        point = EntryPoint(name, where, "outrider")
        vars(point)["dist"] = _Dist(dist)
        self.points.append(point)

    def registry(self, **options: Any) -> Registry:
        return Registry(load_plugins([*installed(), *self.points]), **options)
