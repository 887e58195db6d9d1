"""Five broken plugins installed at once: everything else works, each is reported once, and asking for it says why."""

import json
import sys
from pathlib import Path

import pytest

from environments import Done, pretend_installed, run_several
from support import char_tokenizer, tiny_model

DRAFTER = """
import outrider

class Broken(outrider.RowDrafter):
    '''Is broken.'''

    name = "{name}"
    requires_api = {api}

    def propose_row(self, view):
        raise RuntimeError("out of ideas")

@outrider.hookimpl
def {hook}(register):
    register(Broken)
"""


def _body(name: str, api: str = "(0, 1)", hook: str = "register_drafters") -> str:
    return DRAFTER.format(name=name, api=api, hook=hook)


BROKEN = {
    "outrider-unimportable": ("unimportable", "import a_module_that_nobody_has\n"),
    "outrider-misspelt": ("misspelt", _body("misspelt", hook="register_drafter")),
    "outrider-newer": ("newer", _body("newer", api="(0, 2)")),
    "outrider-twin": ("ngram", _body("twin")),
    "outrider-raises": ("raises", _body("raises")),
}
REASONS = {
    "outrider-unimportable": "ModuleNotFoundError: No module named 'a_module_that_nobody_has'",
    "outrider-misspelt": "unknown hook 'register_drafter'",
    "outrider-newer": "Broken was written for drafter API 0.2, and this outrider has 0.1",
    "outrider-twin": "the plugin name is taken by outrider 0.1.0",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packages, and a model beside them."""
    made = tmp_path_factory.mktemp("broken")
    for distribution, (plugin, body) in BROKEN.items():
        pretend_installed(made / "site", distribution, plugin, body)
    tiny_model(3, 0.1).save_pretrained(made / "model")
    char_tokenizer().save_pretrained(made / "model")
    return made


def outrider(folder: Path, *commands: list[str], **variables: str) -> list[Done]:
    return run_several(sys.executable, *commands, cwd=folder, path=str(folder / "site"), **variables)


def generate(drafter: str) -> list[str]:
    asked = ["generate", "-m", "model", "--dtype", "float64", "-p", "abcabc", "--max-new-tokens", "16", "--json"]
    return [*asked, "-d", drafter]


def test_they_are_listed_with_their_reasons(folder: Path) -> None:
    plugins, drafters = outrider(folder, ["plugins", "--json"], ["drafters"])
    assert (plugins.status, plugins.err, drafters.status) == (0, "", 0)
    own = [one for one in json.loads(plugins.out) if one["distribution"] in BROKEN]
    assert sorted(one["distribution"] for one in own) == sorted(BROKEN)
    for record in own:
        reason = REASONS.get(record["distribution"], "")
        assert record["status"] == ("failed" if reason else "loaded")
        assert reason in record["detail"]
    rows = drafters.out.splitlines()
    for reason in REASONS.values():
        assert sum(reason in row and " failed: " in row for row in rows) == 1
    assert any(row.startswith("raises ") and " loaded " in row and "outrider-raises 1.0" in row for row in rows)


def test_everything_else_works_and_each_is_reported_once_with_its_reason(folder: Path) -> None:
    names = {one: f"{one}/{plugin}" if plugin == "ngram" else plugin for one, (plugin, _) in BROKEN.items()}
    ngram, plain, *asked = outrider(folder, *map(generate, ["ngram", "none", *(names[one] for one in REASONS)]))
    assert (ngram.status, plain.status, plain.err) == (0, 0, "")
    assert json.loads(ngram.out)["token_ids"] == json.loads(plain.out)["token_ids"]
    warnings = ngram.err.splitlines()
    assert len(warnings) == len(REASONS)
    for distribution, reason in REASONS.items():
        assert sum(distribution in line and reason in line and line.startswith("warning: ") for line in warnings) == 1
    for done, (distribution, reason) in zip(asked, REASONS.items(), strict=True):
        assert (done.status, done.out) == (2, "")
        (line,) = done.err.splitlines()
        name = names[distribution]
        assert line.startswith(f"error: drafter '{name}' is provided by {distribution} 1.0, which failed to load: ")
        assert reason in line


def test_one_that_raises_is_named_and_in_the_trace(folder: Path) -> None:
    (done,) = outrider(folder, generate("raises"), OUTRIDER_TRACE_PLUGINS="1", OUTRIDER_LOAD_PLUGINS="raises")
    assert (done.status, done.out) == (1, "")
    lines = done.err.splitlines()
    assert lines[-1] == "error: drafter 'raises' failed in propose: RuntimeError: out of ideas"
    assert any("drafter 'raises' propose raised" in line for line in lines)
    assert any("plugin 'raises' (outrider-raises 1.0) register_drafters took" in line for line in lines)
    assert not any("outrider-newer" in line for line in lines)


def test_they_can_be_turned_off(folder: Path) -> None:
    off, raises = outrider(folder, generate("ngram"), generate("raises"), OUTRIDER_DISABLED_PLUGINS=",".join(BROKEN))
    assert (off.status, off.err) == (0, "")
    assert raises.status == 2
    assert "which is turned off: OUTRIDER_DISABLED_PLUGINS names it" in raises.err
