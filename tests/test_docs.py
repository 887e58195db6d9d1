"""Every example of every page runs, and every link leads somewhere."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import outrider
from environments import Environment
from outrider.check import DrafterContract
from outrider.cli.app import app, run_app
from pages import LANGUAGES, PAGES, README, ROOT, blocks, commands, name_of, read, run_python, write_files

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

    for place in ("outrider.load", "outrider.cli.generate.load", "outrider.cli.inspect.load"):
        monkeypatch.setattr(place, shared)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_what_it_is(page: Path) -> None:
    found = blocks(page)
    assert len(found) * 2 == sum(line.lstrip().startswith("```") for line in read(page).splitlines())
    assert {block.language for block in found} <= set(LANGUAGES)


@pytest.mark.usefixtures("_shared_model")
@pytest.mark.parametrize("page", WITH_PYTHON, ids=name_of)
def test_the_python_of_a_page_runs(page: Path) -> None:
    LEFT.get(page, lambda scope: None)(run_python(page))


@pytest.mark.usefixtures("_shared_model")
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=name_of)
def test_the_commands_of_a_page_run(
    page: Path,
    model_folder: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In an empty folder with the page's files; blocks of other programs too, in an environment of their own."""
    folder = tmp_path / "here"
    folder.mkdir()
    write_files(page, folder)
    monkeypatch.chdir(folder)
    for block in blocks(page, "sh"):
        listed = [shlex.split(command.replace("MODEL", str(model_folder))) for command in commands(block)]
        if any(program != "outrider" for program, *_ in listed):
            environment: Environment = request.getfixturevalue("environment")
            done = environment.shell("\n".join(map(shlex.join, listed)), folder)
            assert done.status == 0, done.out + done.err
            continue
        for command in listed:
            status = run_app(app, command[1:], "outrider")
            shown = capsys.readouterr()
            assert status == 0, f"{shlex.join(command)}\n{shown.out}{shown.err}"
            assert shown.out


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", read(page), flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
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
