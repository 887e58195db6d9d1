"""Every example of every page runs, and every link leads somewhere."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import outrider
from outrider.check import DrafterContract
from outrider.cli.app import app, run_app
from pages import (
    AUTHORS,
    LANGUAGES,
    PAGES,
    README,
    ROOT,
    blocks,
    commands,
    name_of,
    named_files,
    packaging,
    prose,
    read,
    run_python,
    write_files,
)

DOCS = ROOT / "docs"
WITH_PYTHON = [page for page in PAGES if blocks(page, "python")]
WITH_COMMANDS = [page for page in PAGES if blocks(page, "sh")]


def readme(scope: dict[str, Any]) -> None:
    assert scope["result"].text
    assert scope["result"].stats.num_accepted_draft_tokens > 0
    registered: list[type] = []
    scope["register_drafters"](registered.append)
    assert registered == [scope["Repeat"]]


def checks(scope: dict[str, Any]) -> None:
    assert scope["report"].detail == "it is there to draft nothing"
    assert scope["test_it_is_right"].pytestmark
    assert issubclass(scope["TestNgram"], DrafterContract)


LEFT: dict[Path, Callable[[dict[str, Any]], None]] = {README: readme, DOCS / "checks.md": checks}
"""What the examples of a page leave, beyond having run."""


@pytest.fixture
def _shared_model(smollm2: outrider.Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded model is loaded once."""
    load = outrider.load

    def shared(name: Any, **options: Any) -> outrider.Target:
        return smollm2 if name == "smollm2" else load(name, **options)

    for place in ("outrider.load", "outrider.cli.target.load", "outrider.cli.inspect.load"):
        monkeypatch.setattr(place, shared)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_what_it_is(page: Path) -> None:
    found = blocks(page)
    assert len(found) * 2 == sum(line.lstrip().startswith("```") for line in read(page).splitlines())
    assert {block.language for block in found} <= set(LANGUAGES)


@pytest.mark.usefixtures("_shared_model")
@pytest.mark.parametrize("page", WITH_PYTHON, ids=name_of)
def test_the_python_of_a_page_runs(page: Path) -> None:
    scope = run_python(page)
    if page in LEFT:
        LEFT[page](scope)


@pytest.mark.usefixtures("_shared_model")
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=name_of)
def test_the_commands_of_a_page_run(
    page: Path,
    model_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In a folder with the page's files; those of a new package run in an environment of their own, as a newcomer's."""
    write_files(page, tmp_path)
    monkeypatch.chdir(tmp_path)
    for block in blocks(page, "sh"):
        if block == packaging():
            continue
        for command in commands(block, model_folder):
            status = run_app(app, shlex.split(command)[1:], "outrider")
            shown = capsys.readouterr()
            assert (status, command.partition(" ")[0]) == (0, "outrider"), f"{command}\n{shown.out}{shown.err}"
            assert shown.out


def test_every_stage_of_the_tutorial_is_checked() -> None:
    every = [command for block in blocks(AUTHORS, "sh") for command in commands(block)]
    listed = [command.split()[2] for command in every if command.startswith("outrider check ")]
    stage = re.compile(r"^class (\w+)\(outrider\.(?:Row)?Drafter\b", re.MULTILINE)
    classes = [f"{name}::{found}" for name, text in named_files(AUTHORS).items() for found in stage.findall(text)]
    assert listed == classes
    assert len(listed) == 9


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(read(page))):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", read(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
