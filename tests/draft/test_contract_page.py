"""The page on the contract: it names every method, capability and field, and every check beside what it notices."""

import re
from collections import Counter
from dataclasses import fields
from typing import Any

import pytest

import outrider
from outrider.api import __all__ as public_names
from outrider.check import drafter_checks
from outrider.draft.contract import TargetParts
from outrider.draft.laws import DraftLaws
from pages import ROOT, prose, read

PAGE = read(ROOT / "docs" / "contract.md")
WORDS = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", prose(PAGE)))))
VALUES = (
    outrider.TargetInfo,
    outrider.RowStart,
    outrider.DraftView,
    outrider.Outcome,
    outrider.Features,
    outrider.Needs,
    outrider.DraftTree,
    DraftLaws,
    outrider.TreeBatch,
)
# What a view makes its decisions and laws of, which drafters don't call themselves.
INNER = {"decisions", "warp"}


def public(kind: Any) -> list[str]:
    return [name for name in vars(kind) if not name.startswith("_")]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: value.__name__)
def test_every_field_is_named(value: Any) -> None:
    assert {field.name for field in fields(value)} - INNER <= WORDS
    assert value.__name__ in WORDS


def test_every_method_and_attribute_has_its_line() -> None:
    for name in ("__init__", *public(outrider.Drafter), "propose_row"):
        assert re.search(rf"^\| `{name}\b", PAGE, re.MULTILINE), name
    assert set(public(TargetParts)) <= WORDS
    for capability in fields(outrider.Capabilities):
        assert f"| `{capability.name}` |" in PAGE


def test_every_check_notices_something() -> None:
    (table,) = re.findall(r"<!-- never -->\n(.*?)<!-- end -->", PAGE, re.DOTALL)
    named = re.findall(r"^\| .* \| `([\w-]+)` \|$", table, re.MULTILINE)
    assert Counter(named) == Counter(check.name for check in drafter_checks())
    assert len(named) == len(table.splitlines()) - 2


def test_what_it_builds_on_is_public() -> None:
    (table,) = re.findall(r"What else there is to build on:\n(.*?)^## ", PAGE, re.DOTALL | re.MULTILINE)
    names = re.findall(r"`(?:outrider\.)?(\w+)`", " ".join(line.split("|")[1] for line in table.splitlines() if line))
    assert len(names) > 15
    assert set(names) <= set(public_names)
