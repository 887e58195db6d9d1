"""The pages of the docs as tests run them: python blocks in order, and commands.

A fence says what becomes of its block: `python` and `sh` run, `toml` is read by tests of its page, and `text` or
nothing is only shown. A python block whose first line is `# name.py` is that file too.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
AUTHORS = ROOT / "docs" / "authors.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "plugins").glob("**/README.md"))]
LANGUAGES = ("python", "sh", "toml", "text", "")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NAMED = re.compile(r"# (\w+\.py)\n")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its text, and the line before it."""

    language: str
    text: str
    line: int


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def prose(text: str) -> str:
    """A text without its blocks."""
    return _FENCE.sub("", text)


def blocks(page: Path, *languages: str) -> list[Block]:
    """The blocks of a page in some languages, in order; all of them by default."""
    text = read(page)
    found = [Block(one[1], one[2], text.count("\n", 0, one.start(2))) for one in _FENCE.finditer(text)]
    return [block for block in found if not languages or block.language in languages]


def named_files(page: Path) -> dict[str, str]:
    """The python blocks that name a file, by its name."""
    return {match[1]: one.text for one in blocks(page, "python") if (match := _NAMED.match(one.text))}


def write_files(page: Path, folder: Path) -> None:
    """Write the python blocks that name a file."""
    for name, text in named_files(page).items():
        (folder / name).write_text(text, encoding="utf-8")


def run_python(page: Path) -> dict[str, Any]:
    """Run the python blocks one after another; returns what they leave."""
    scope: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page, "python"):
        exec(compile("\n" * block.line + block.text, name_of(page), "exec"), scope)
    return scope


def commands(block: Block, model: str | Path = "MODEL") -> list[str]:
    """The commands of a block, one a line, with a folder in place of MODEL."""
    lines = block.text.replace("\\\n", " ").replace("MODEL", str(model)).splitlines()
    return [line.partition("  #")[0].strip() for line in lines if line.strip() and not line.startswith("#")]


def packaging() -> Block:
    """The block that makes, installs, tests and builds a package."""
    (found,) = [block for block in blocks(AUTHORS, "sh") if "outrider plugin new" in block.text]
    return found
