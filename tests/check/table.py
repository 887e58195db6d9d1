"""Which check catches what: `python -m check.table FILE`, run from the tests folder, writes the tables of docs/checks.md."""

import inspect
import re
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from check.zoo import ZOO, Copies
from outrider.check import drafter_checks
from outrider.check.traits import traits_of
from outrider.errors import OutriderError

DOCS = Path(__file__).parents[2] / "docs" / "checks.md"


def catchers(faulty: type[Copies]) -> list[str]:
    """The checks that a drafter fails, each run alone."""
    traits = traits_of(faulty)
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for check in drafter_checks():
            if not check.applies(traits):
                continue
            try:
                check.run(faulty)
            except OutriderError:
                found.append(check.name)
    return found


def row(faulty: type[Copies], named: str, found: Sequence[str]) -> str:
    text = " ".join((inspect.getdoc(faulty) or "").split())
    if len(found) > 8:
        return f"| {text} | `{named}` | {len(found) - 1} more |"
    return f"| {text} | `{named}` | {', '.join(f'`{name}`' for name in found if name != named) or '-'} |"


def checks_table() -> str:
    asked = {"": "every drafter", "branches": "whose trees branch", "samples": "that declares drawn nodes"}
    asked |= {"features": "that needs features"}
    lines = ["| check | tier | asked of | it expects that |", "|---|---|---|---|"]
    lines += [f"| `{one.name}` | {one.tier} | {asked[one.trait]} | {one.expects} |" for one in drafter_checks()]
    return "\n".join(lines)


def zoo_table(rows: Sequence[str]) -> str:
    return "\n".join(["| the drafter ... | is caught by | and by |", "|---|---|---|", *rows])


def put(text: str, name: str, table: str) -> str:
    """The text with a table in its place."""
    return re.sub(rf"(<!-- {name} -->\n).*?(\n<!-- end -->)", lambda at: at[1] + table + at[2], text, flags=re.DOTALL)


def part(text: str, name: str) -> list[str]:
    """The lines of a table."""
    found = re.search(rf"<!-- {name} -->\n(.*?)\n<!-- end -->", text, re.DOTALL)
    assert found is not None
    return found[1].splitlines()


def main(file: Path) -> None:
    rows = [row(faulty, named, catchers(faulty)) for faulty, named in ZOO]
    text = put(file.read_text(encoding="utf-8"), "checks", checks_table())
    file.write_text(put(text, "zoo", zoo_table(rows)), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
