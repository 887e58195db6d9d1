"""The guarded loader, against plugins that are broken in every way a plugin can be."""

import sys
import types
from typing import Any

import pytest

import outrider
from outrider import RowDrafter
from outrider.draft.contract import API
from outrider.plugins.loader import installed, load_plugins
from outrider.plugins.registry import Registry
from registries import Installed, make_drafter_class


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Installed:
    return Installed(monkeypatch)


def test_the_built_ins_come_in_through_their_entry_point() -> None:
    (record,) = [one for one in outrider.registry().plugins if one.name == "ngram"]
    assert (record.distribution, record.status, record.drafters) == ("outrider", "loaded", ("ngram",))
    assert record.module == "outrider_drafters.ngram.drafter"
    assert record.builtin


def test_a_good_plugin_is_listed_with_its_provenance(fake: Installed) -> None:
    fake.add("outrider-good", "good", make_drafter_class("good"))
    registry = fake.registry()
    record = registry.find("good")
    assert (record.distribution, record.version, record.plugin) == ("outrider-good", "1.0", "good")
    assert record.location.startswith(f"{sys.modules['registries'].__file__}:")
    assert registry.find("outrider-good/good") is record


def _broken(fake: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that case 29 names, and more."""
    fake.add("a-missing", "missing", module="no_such_module_at_all")

    def exits(name: str, *rest: Any) -> Any:
        raise SystemExit(3)

    finder = types.SimpleNamespace(find_spec=lambda name, *_: exits(name) if name == "exits_on_import" else None)
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    fake.add("b-exits", "exits", module="exits_on_import")

    @outrider.hookimpl
    def raises(register: Any) -> None:
        raise RuntimeError("no licence file")

    fake.add("c-raises", "raises", body=raises)

    @outrider.hookimpl
    def newer(register: Any, registry: Any) -> None: ...

    fake.add("d-newer", "newer", body=newer)
    fake.add("e-unmarked", "unmarked", body=lambda register: None)
    fake.add("f-api", "api", make_drafter_class("api", requires_api=(API[0], API[1] + 1)))
    fake.add("g-no-api", "no-api", make_drafter_class("no-api", requires_api=None))
    fake.add("h-name", "badname", make_drafter_class("Bad Name"))
    fake.add("i-class", "noclass", object)
    fake.add("j-abstract", "abstract", RowDrafter)
    fake.add("k-duplicate", "ngram", make_drafter_class("other"))
    fake.add("l-options", "options", make_drafter_class("options", Options=dict))
    fake.add("m-nothing", "nothing")

    @outrider.hookimpl
    def mute(register: Any) -> None:
        raise _MuteError

    fake.add("n-mute", "mute", body=mute)


REASONS = {
    "a-missing": "ModuleNotFoundError: No module named 'no_such_module_at_all'",
    "b-exits": "SystemExit: 3",
    "c-raises": "RuntimeError: no licence file",
    "d-newer": "PluginValidationError",
    "e-unmarked": "outrider.hookimpl",
    "f-api": "was written for drafter API 0.2, and this outrider has 0.1",
    "g-no-api": "requires_api = None",
    "h-name": "name = 'Bad Name'",
    "i-class": "no subclass of outrider.Drafter",
    "j-abstract": "RowDrafter.name = None",
    "k-duplicate": "the plugin name is taken by outrider",
    "l-options": "no subclass of outrider.DrafterOptions",
    "m-nothing": "registered nothing",
    "n-mute": "_MuteError",
}


class _MuteError(Exception):
    """An error that can't even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError


def test_broken_plugins_become_records_and_the_rest_works(fake: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.add("0-good", "good", make_drafter_class("good"))
    _broken(fake, monkeypatch)
    fake.add("z-good", "good-too", make_drafter_class("good-too"))
    registry = fake.registry()
    failed = {one.distribution: one.detail for one in registry.plugins if one.status == "failed"}
    assert failed.keys() == REASONS.keys()
    for distribution, reason in REASONS.items():
        assert reason in failed[distribution]
    assert {one.name for one in registry.drafters()} == {
        "none",
        "ngram",
        "lookahead",
        "eagle",
        "eagle3",
        "medusa",
        "self",
        "cascade",
        "draft-model",
        "good",
        "good-too",
    }


def test_asking_for_a_broken_drafter_says_why_it_is_not_there(fake: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    _broken(fake, monkeypatch)
    registry = fake.registry()
    for name in ("raises", "c-raises/raises"):
        with pytest.raises(
            outrider.UnknownDrafterError, match=r"provided by c-raises 1.0, which failed .*no licence file"
        ):
            registry.find(name)


def test_strict_raises_at_the_first(fake: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    _broken(fake, monkeypatch)
    with pytest.raises(outrider.PluginError, match="plugin 'missing' of a-missing 1.0 failed"):
        fake.registry(strict=True)


def test_nobody_takes_a_built_in_s_name(fake: Installed) -> None:
    fake.add("a-thief", "thief", make_drafter_class("ngram"), make_drafter_class("none"), make_drafter_class("loot"))
    registry = fake.registry()
    assert registry.find("ngram").distribution == "outrider"
    assert registry.find("none").distribution == "outrider"
    assert registry.find("loot").distribution == "a-thief"
    assert registry.find("a-thief/ngram").distribution == "a-thief"
    (record,) = [one for one in registry.plugins if one.name == "thief"]
    assert record.status == "loaded"
    assert "name 'ngram' is taken by outrider; pick it as a-thief/ngram" in record.detail


def test_of_two_drafters_of_one_name_the_first_is_kept_and_both_can_be_picked(fake: Installed) -> None:
    fake.add("a-first", "first", make_drafter_class("twin"))
    fake.add("b-second", "second", make_drafter_class("twin"))
    registry = fake.registry()
    assert registry.find("twin").distribution == "a-first"
    assert registry.find("b-second/twin").distribution == "b-second"


def test_a_plugin_that_fails_half_way_registers_nothing(fake: Installed) -> None:
    fake.add("a-half", "half", make_drafter_class("whole"), object)
    with pytest.raises(outrider.UnknownDrafterError):
        fake.registry().find("whole")


def test_ctrl_c_while_plugins_load_is_no_broken_plugin(fake: Installed) -> None:
    @outrider.hookimpl
    def interrupted(register: Any) -> None:
        raise KeyboardInterrupt

    fake.add("a-slow", "slow", body=interrupted)
    with pytest.raises(KeyboardInterrupt):
        fake.registry()


@pytest.mark.usefixtures("fresh_registry")
def test_a_broken_plugin_is_warned_of_once(fake: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.add("a-missing", "missing", module="no_such_module_at_all")
    monkeypatch.setattr("outrider.plugins.registry.installed", lambda: [*installed(), *fake.points])
    with pytest.warns(
        UserWarning, match=r"plugin 'missing' \(a-missing 1.0\) failed to load: ModuleNotFoundError"
    ) as seen:
        [outrider.drafters() for _ in range(3)]
    assert len(seen) == 1


def test_without_entry_points_there_is_an_outrider_without_drafters() -> None:
    registry = Registry(load_plugins([]))
    assert [one.name for one in registry.drafters()] == ["none"]
    with pytest.raises(outrider.UnknownDrafterError):
        registry.find("ngram")
