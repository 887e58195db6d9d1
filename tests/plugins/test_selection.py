"""Which plugins are loaded, by the variables, and that unknown names in them are told."""

import warnings

import pytest

import outrider
from outrider.plugins.loader import installed, load_plugins
from outrider.plugins.registry import Registry, registry
from outrider.plugins.selection import Selection

BUILT_IN = {point.name for point in installed() if point.dist is not None and point.dist.name == "outrider"}


def loaded(known: Registry) -> set[str]:
    return {one.name for one in known.plugins if one.status == "loaded"}


def of(variables: dict[str, str]) -> Registry:
    points = [point for point in installed() if point.name in BUILT_IN]
    return Registry(load_plugins(points, Selection.read(variables)))


@pytest.mark.parametrize(
    ("only", "without", "expected"),
    [
        (None, "", BUILT_IN),
        ("", "", set()),
        ("ngram", "", {"ngram"}),
        (" ngram, outrider/lookahead,ngram ", "", {"ngram", "lookahead"}),
        ("outrider", "", BUILT_IN),
        ("outrider", "eagle,outrider/self", BUILT_IN - {"eagle", "self"}),
        (None, "outrider", set()),
        ("ngram,cascade", "ngram", {"cascade"}),
    ],
)
def test_the_variables_name_what_is_loaded(only: str | None, without: str, expected: set[str]) -> None:
    known = of({"OUTRIDER_DISABLED_PLUGINS": without} | ({} if only is None else {"OUTRIDER_LOAD_PLUGINS": only}))
    assert loaded(known) == expected
    assert {one.name for one in known.plugins if one.status == "disabled"} == BUILT_IN - expected
    assert ("ngram" in {one.name for one in known.drafters()}) == ("ngram" in expected)
    assert "none" in {one.name for one in known.drafters()}


def test_what_is_not_loaded_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.EntryPoint.load", lambda self: pytest.fail(f"{self.name} was imported"))
    assert of({"OUTRIDER_LOAD_PLUGINS": ""}).drafters()[0].name == "none"


def test_asking_for_a_drafter_that_is_turned_off_says_by_what() -> None:
    known = of({"OUTRIDER_DISABLED_PLUGINS": "ngram"})
    with pytest.raises(
        outrider.UnknownDrafterError,
        match=r"'ngram' is provided by outrider 0.1.0, which is turned off: OUTRIDER_DISABLED_PLUGINS names it",
    ):
        known.find("ngram")
    with pytest.raises(outrider.UnknownDrafterError, match="Disabled plugins: eagle"):
        of({"OUTRIDER_DISABLED_PLUGINS": "eagle"}).find("eagle3")


@pytest.mark.parametrize("variable", ["OUTRIDER_LOAD_PLUGINS", "OUTRIDER_DISABLED_PLUGINS"])
@pytest.mark.usefixtures("fresh_registry")
def test_an_unknown_name_is_told_once(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "ngram,ngrm")
    with pytest.warns(UserWarning, match=f"outrider plugin 'ngrm' is not installed: {variable} names it") as seen:
        known = registry()
    assert len(seen) == 1
    (record,) = [one for one in known.plugins if one.status == "missing"]
    assert (record.name, record.detail) == ("ngrm", f"{variable} names it")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert registry() is known
    with pytest.raises(outrider.UnknownDrafterError, match="unknown drafter 'ngrm'"):
        known.find("ngrm")


def test_strict_takes_no_unknown_name() -> None:
    with pytest.raises(outrider.PluginError, match="plugin 'ngrm' missing: OUTRIDER_LOAD_PLUGINS names it"):
        Registry(load_plugins(installed(), Selection.read({"OUTRIDER_LOAD_PLUGINS": "ngrm"})), strict=True)
