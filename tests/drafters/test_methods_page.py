"""The page on methods: a section for every built-in drafter, with the options that it really has."""

import re

import pytest
from pydantic_core import PydanticUndefined

import outrider
from outrider import DrafterRecord
from pages import ROOT, read

PAGE = read(ROOT / "docs" / "methods.md")
BUILT_IN = [record for record in outrider.drafters() if record.distribution == "outrider"]
SECTIONS = {
    name: text
    for heading, text in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    for name in re.findall(r"`([\w-]+)`", heading)
}


def options_table(record: DrafterRecord) -> str:
    """The options as the page lists them: names, defaults and what they are for, as `outrider drafters` knows them."""
    lines = ["| option | default | |", "|---|---|---|"]
    for name, field in record.drafter.Options.model_fields.items():
        text = "none" if field.default is None else str(field.default).lower().replace("'", "")
        default = "needed" if field.default is PydanticUndefined else text
        lines.append(f"| `{name}` | {default} | {field.description} |")
    return "\n".join(lines)


def test_every_built_in_has_its_section_and_no_other() -> None:
    assert set(SECTIONS) == {record.name for record in BUILT_IN}


@pytest.mark.parametrize("record", BUILT_IN, ids=lambda record: record.name)
def test_a_section_says_what_differs_and_lists_the_options(record: DrafterRecord) -> None:
    section = SECTIONS[record.name]
    if not record.options:
        assert "| option |" not in section
        return
    assert options_table(record) in section, (
        f"docs/methods.md: the options of {record.name} are\n{options_table(record)}"
    )
    assert re.search(r"^\| what .* | what is done here | why it differs \|$", section, re.MULTILINE)
