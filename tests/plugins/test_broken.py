"""Five broken plugins installed at once: everything else works, each is reported once, and asking for it says why."""

import json
import sys
from pathlib import Path

import pytest

from environments import Done, pretend_installed, run
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


def outrider(folder: Path, *arguments: str, **variables: str) -> Done:
    return run(sys.executable, "-m", "outrider", *arguments, cwd=folder, path=str(folder / "site"), **variables)


def generate(folder: Path, drafter: str, **variables: str) -> Done:
    asked = ("generate", "-m", "model", "--dtype", "float64", "-p", "abcabc", "--max-new-tokens", "16", "--json")
    return outrider(folder, *asked, "-d", drafter, **variables)


def test_they_are_listed_with_their_reasons(folder: Path) -> None:
    done = outrider(folder, "plugins", "--json")
    assert (done.status, done.err) == (0, "")
    own = [one for one in json.loads(done.out) if one["distribution"] in BROKEN]
    assert sorted(one["distribution"] for one in own) == sorted(BROKEN)
    for record in own:
        reason = REASONS.get(record["distribution"], "")
        assert record["status"] == ("failed" if reason else "loaded")
        assert reason in record["detail"]
    listed = outrider(folder, "drafters")
    assert listed.status == 0
    rows = listed.out.splitlines()
    for reason in REASONS.values():
        assert sum(reason in row and " failed: " in row for row in rows) == 1
    assert any(row.startswith("raises ") and " loaded " in row and "outrider-raises 1.0" in row for row in rows)


def test_everything_else_works_and_each_is_reported_once(folder: Path) -> None:
    done = generate(folder, "ngram")
    assert done.status == 0
    assert json.loads(done.out)["token_ids"] == json.loads(generate(folder, "none").out)["token_ids"]
    warnings = done.err.splitlines()
    assert len(warnings) == len(REASONS)
    for distribution, reason in REASONS.items():
        assert sum(distribution in line and reason in line and line.startswith("warning: ") for line in warnings) == 1


@pytest.mark.parametrize("name", ["unimportable", "misspelt", "newer", "outrider-twin/ngram"])
def test_asking_for_one_says_why_it_is_not_there(folder: Path, name: str) -> None:
    (distribution,) = [one for one, (plugin, _) in BROKEN.items() if name in (plugin, f"{one}/{plugin}")]
    done = generate(folder, name)
    assert (done.status, done.out) == (2, "")
    last = done.err.splitlines()[-1]
    assert last.startswith(f"error: drafter '{name}' is provided by {distribution} 1.0, which failed to load: ")
    assert REASONS[distribution] in last


def test_one_that_raises_is_named_and_in_the_trace(folder: Path) -> None:
    done = generate(folder, "raises", OUTRIDER_TRACE_PLUGINS="1", OUTRIDER_LOAD_PLUGINS="raises")
    assert (done.status, done.out) == (1, "")
    lines = done.err.splitlines()
    assert lines[-1] == "error: drafter 'raises' failed in propose: RuntimeError: out of ideas"
    assert any("drafter 'raises' propose raised" in line for line in lines)
    assert any("plugin 'raises' (outrider-raises 1.0) register_drafters took" in line for line in lines)
    assert not any("outrider-newer" in line for line in lines)


def test_they_can_be_turned_off(folder: Path) -> None:
    names = ",".join(BROKEN)
    done = generate(folder, "ngram", OUTRIDER_DISABLED_PLUGINS=names)
    assert (done.status, done.err) == (0, "")
    done = generate(folder, "raises", OUTRIDER_DISABLED_PLUGINS=names)
    assert done.status == 2
    assert "which is turned off: OUTRIDER_DISABLED_PLUGINS names it" in done.err
