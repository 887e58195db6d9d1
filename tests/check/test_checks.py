"""Every registered drafter passes the kit, and every faulty one is caught, by the checks that the docs name."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

import outrider
from check.table import DOCS, catchers, checks_table, part, row
from check.zoo import RIGHT, ZOO, Copies
from outrider import Drafter, DraftTree, TargetInfo
from outrider.check import Check, CheckFailedError, drafter_checks
from outrider.check.kit import run_check
from outrider.check.subject import Subject, subject_of
from outrider.check.targets import other_inputs
from outrider.plugins.words import make_drafter
from support import FULL, OPTIONS

CHECKS = list(drafter_checks())
NAMES = [record.name for record in outrider.drafters()]
ROWS = part(DOCS.read_text(encoding="utf-8"), "zoo")[2:]


def _maker(name: str) -> Any:
    def make(target: TargetInfo) -> Drafter[Any]:
        parts: Any = target.parts
        # A drafter that reads with a model is as right with the target's first layer as with another.
        shown: Any = SimpleNamespace(info=target, model=parts.early_exit(1), tier=SimpleNamespace(name="masked"))
        return make_drafter(name, OPTIONS[name](shown) if name in OPTIONS else None, target)

    return make


@pytest.fixture(scope="module")
def subjects() -> dict[str, Subject]:
    return {name: subject_of(_maker(name)) for name in NAMES}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
@pytest.mark.parametrize("name", NAMES)
def test_registered_drafters_pass(name: str, check: Check, subjects: dict[str, Subject]) -> None:
    subject = subjects[name]
    report = run_check(subject, check, subject.expected)
    assert report.status != "failed", report.detail
    assert report.status != "passed" or not report.detail, "an expected failure that is none"


def test_what_drafters_do_is_seen(subjects: dict[str, Subject]) -> None:
    assert {name for name, one in subjects.items() if one.traits.features} == {
        "cascade",
        "eagle",
        "eagle3",
        "lookahead",
        "medusa",
        "self",
    }
    assert {name for name, one in subjects.items() if one.traits.samples} == {
        "draft-model",
        "eagle",
        "eagle3",
        "medusa",
        "self",
    }


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
@pytest.mark.parametrize("right", RIGHT, ids=lambda right: right.__name__)
def test_right_drafters_pass(right: type[Copies], check: Check) -> None:
    if check.applies(subject_of(right_maker(right)).traits):
        check.run(right)


def right_maker(right: type[Copies]) -> Any:
    return _RIGHT_MAKERS.setdefault(right, lambda target: right(target))


_RIGHT_MAKERS: dict[type[Copies], Any] = {}


@pytest.mark.parametrize(
    ("faulty", "named", "line"),
    [(*pair, line) for pair, line in zip(ZOO, ROWS, strict=True)],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_faulty_drafter_is_caught_by_its_checks(faulty: type[Copies], named: str, line: str) -> None:
    found = catchers(faulty)
    assert named in found
    assert row(faulty, named, found) == line, "docs/checks.md is out of date: run make checks"


def test_every_check_is_the_only_one_that_catches_some_fault() -> None:
    alone = {named for (_, named), line in zip(ZOO, ROWS, strict=True) if line.endswith("| - |")}
    assert alone == {check.name for check in CHECKS}


def test_the_docs_list_every_check() -> None:
    assert part(DOCS.read_text(encoding="utf-8"), "checks") == checks_table().splitlines()


@pytest.mark.parametrize("name", ["greedy-equality", "seed-equality", "stops"])
def test_a_lossy_verifier_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The equality checks are about the whole: a verifier that trusts the draft fails them."""
    from outrider.verify.match import Verdict

    def trusting(tree: DraftTree, draw: Any) -> Verdict:
        path: Sequence[int] = tree.path(0) if len(tree) else ()
        return Verdict(tuple(path), draw(path[-1] if path else -1))

    monkeypatch.setattr("outrider.verify.sampling.match", trusting)
    (check,) = [one for one in CHECKS if one.name == name]
    with pytest.raises(CheckFailedError, match="not that of plain decoding"):
        check.run(Copies)


@pytest.mark.skipif(not FULL, reason="fifty seeds take minutes")
@pytest.mark.parametrize("seed", range(1, 51))
@pytest.mark.parametrize("name", NAMES)
def test_no_false_alarm_on_other_targets_and_texts(name: str, seed: int, subjects: dict[str, Subject]) -> None:
    subject = subjects[name]
    with other_inputs(seed):
        for check in CHECKS:
            if check.tier in ("sampling", "batch", "trees"):
                report = run_check(subject, check, subject.expected)
                assert report.status != "failed", report.detail
