"""The fronts of the kit: a function, parametrised tests, a class, and what is told of a drafter."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

import outrider
from check.zoo import Copies, Keeps, KeepsRejected
from outrider import DraftView, RowStart, TargetInfo
from outrider.check import CheckFailedError, CheckReport, DrafterContract, check_drafter, parametrize_with_checks
from outrider.check.check import Case, hold
from outrider.draft.contract import API
from outrider.draft.plain import Plain
from outrider.draft.training import Trains
from outrider.errors import InputError


def test_a_function_that_makes_drafters_is_checked() -> None:
    heard: list[CheckReport] = []
    reports = check_drafter(lambda target: Keeps(target), tiers=["basic", "trees"], hear=heard.append)
    assert reports == heard
    assert {one.status for one in reports} == {"passed"}
    assert {one.tier for one in reports} == {"basic", "trees"}


def test_a_failure_names_the_check_and_the_smallest_input() -> None:
    with pytest.raises(CheckFailedError) as error:
        check_drafter(lambda target: KeepsRejected(target), only=["accepted-trunk", "truncate"])
    text = str(error.value)
    assert text.startswith("drafter 'copies' fails 1 of 2 checks. accepted-trunk: after 1 steps")
    assert "smallest input: prompt [" in text
    assert "of 1 ids, count 1" in text


def test_an_expected_failure_is_one_with_its_reason() -> None:
    reason = {"accepted-trunk": "known"}
    found = check_drafter(
        lambda target: KeepsRejected(target), only=["accepted-trunk", "work"], expected_failures=reason
    )
    assert [(one.check, one.status, one.detail) for one in found] == [
        ("accepted-trunk", "expected", "known"),
        ("work", "passed", ""),
    ]
    (passed,) = check_drafter(lambda target: Keeps(target), only=["accepted-trunk"], expected_failures=reason)
    assert (passed.status, passed.detail) == ("passed", "though it was expected to fail: known")


def test_what_is_not_asked_is_skipped_with_the_reason() -> None:
    (report,) = check_drafter("ngram", only=["declared-law"])
    assert (report.status, report.detail) == ("skipped", "it declares no node as drawn")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"only": ["depth-rom"]}, "unknown check 'depth-rom'. Did you mean 'depth-room'?"),
        ({"tiers": ["basics"]}, "unknown tier 'basics'. Did you mean 'basic'?"),
        ({"expected_failures": {"truncat": "so"}}, "unknown check 'truncat'"),
        ({"options": {"max_m": 3}}, "unknown option 'max_m'"),
    ],
)
def test_wrong_words_are_errors(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        check_drafter("ngram", **arguments)


class Needy(Plain):
    """Needs a file."""

    name: ClassVar[str] = "needy"

    def __init__(self, target: outrider.TargetInfo, options: outrider.DrafterOptions) -> None:
        super().__init__(target, options)
        raise InputError("give a file")


def test_a_drafter_that_needs_something_made_for_its_target_is_told_how() -> None:
    with pytest.raises(InputError, match=r"tiny random targets \(64 tokens, width 32, 2 layers\).*for_check\(target\)"):
        check_drafter(Needy)
    with pytest.raises(InputError, match="is an object"):
        check_drafter(outrider.make_drafter("ngram", None, outrider_target()))


def outrider_target() -> outrider.TargetInfo:
    from outrider.check.targets import tiny_target

    return tiny_target().info


def test_a_drafter_says_how_one_is_made_for_a_check() -> None:
    reports = check_drafter("draft-model", only=["depth-room", "declared-law"])
    assert [one.status for one in reports] == ["passed", "passed"]


class Careless(Plain):
    """Raises what no plugin should."""

    name: ClassVar[str] = "careless"
    requires_api: ClassVar[tuple[int, int]] = API
    expected_failures: Mapping[str, str] = {}

    def propose_row(self, view: DraftView) -> Any:
        raise SystemExit(3)


def test_whatever_a_drafter_raises_is_a_failure() -> None:
    (report,) = check_drafter(Careless, only=["depth-room"], raises=False)
    assert report.status == "failed"
    assert "drafter 'careless' failed in propose: SystemExit: 3" in report.detail


def test_the_smallest_case_is_found() -> None:
    def fails(case: Case) -> None:
        if len(case.ids) >= 3 and case.count >= 5:
            raise CheckFailedError("so")

    with pytest.raises(CheckFailedError, match=r"so; smallest input: prompt \[.*\] of 3 ids, count 5") as error:
        hold(Case(tuple(range(24)), 40), fails)
    assert "21, 22, 23" in str(error.value)
    hold(Case((1, 2), 40), fails)


@parametrize_with_checks("ngram", lambda target: Keeps(target), tiers=["batch", "features"])
def test_parametrised(drafter: Any, check: Any) -> None:
    check(drafter)


class TestContract(DrafterContract):
    @pytest.fixture
    def drafter(self) -> str:
        return "ngram"


SUITE = """
import pytest
from outrider.check import DrafterContract, parametrize_with_checks
from outrider import DraftTree, DrafterOptions, RowDrafter

class TooDeep(RowDrafter[DrafterOptions]):
    name = "too-deep"
    requires_api = (0, 1)

    def propose_row(self, view):
        return DraftTree.chain([1, 2, 3, 4])

class TestTooDeep(DrafterContract):
    expected_failures = {"node-room": "known"}

    @pytest.fixture
    def drafter(self):
        return TooDeep

@parametrize_with_checks("ngram", tiers=["features"])
def test_it(drafter, check):
    check(drafter)

def test_fixtures(tiny_outrider_target, run_outrider):
    assert tiny_outrider_target.info.vocab_size == 64
    status, out, err = run_outrider("drafters")
    assert status == 0 and "ngram" in out
"""


def test_a_suite_of_a_plugin_needs_nothing_but_outrider(tmp_path: Path) -> None:
    """In a process of its own, where the plugin is found by its entry point."""
    import subprocess
    import sys

    (tmp_path / "test_plugin.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "test_plugin.py"]
    command += ["-k", "room or order or chunked or fixtures"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == 1, found.stdout + found.stderr
    assert "depth-room (it expects that trees are well formed" in found.stdout
    assert "smallest input: prompt [37] of 1 ids, max_depth 1" in found.stdout
    assert re.search(r"1 failed, 2 passed, 2 skipped.* 1 xfailed", found.stdout), found.stdout[-300:]


@pytest.mark.parametrize("name", [one.name for one in outrider.drafters() if isinstance(one.drafter, Trains)])
def test_what_is_trained_is_checked_with_the_weights_that_training_begins_with(name: str) -> None:
    (report,) = check_drafter(name, only=["counts"], raises=False)
    assert report.status == "passed", report.detail


def made_by(faulty: type[Copies]) -> Any:
    def make(target: TargetInfo) -> Copies:
        return faulty(target)

    return make


class SetsDtype(Copies):
    """Makes float64 torch's default, once and for all."""

    def begin(self, rows: Sequence[RowStart]) -> None:
        torch.set_default_dtype(torch.float64)


class SetsOneThread(Copies):
    """Sets torch's threads to one, which they may be already."""

    def begin(self, rows: Sequence[RowStart]) -> None:
        torch.set_num_threads(1)


@pytest.mark.parametrize("faulty", [SetsDtype, SetsOneThread])
def test_a_setting_that_is_changed_is_found_and_spoils_no_other_check(faulty: type[Copies]) -> None:
    before = torch.get_default_dtype(), torch.get_num_threads()
    reports = {one.check: one for one in check_drafter(made_by(faulty), only=["counts", "purity"], raises=False)}
    assert (reports["counts"].status, reports["purity"].status) == ("passed", "failed")
    assert "the drafter changed torch's" in reports["purity"].detail
    assert (torch.get_default_dtype(), torch.get_num_threads()) == before


def test_a_drafter_that_fails_when_a_row_ends_fails() -> None:
    class FailsAtTheEnd(Copies):
        def end(self, rows: Sequence[int]) -> None:
            raise KeyError(rows[0])

    (report,) = check_drafter(made_by(FailsAtTheEnd), only=["next-row"], raises=False)
    assert report.status == "failed"
    assert "drafter 'copies' failed in end: KeyError" in report.detail
