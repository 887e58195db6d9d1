"""Checks as tests: for a parametrised function, or for a class that only names its drafter.

pytest is imported when it is used: outrider itself does not need it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from outrider.check.check import TIERS, Check
from outrider.check.checks import drafter_checks
from outrider.check.kit import choose_checks, run_check
from outrider.check.subject import Checkable, subject_of


def run_as_test(drafter: Checkable, check: Check, expected_failures: Mapping[str, str] | None = None) -> None:
    """Run a check in a test: one that is not for the drafter is skipped, one that it fails by design is an expected failure."""
    import pytest

    subject = subject_of(drafter)
    report = run_check(subject, check, {**subject.expected, **(expected_failures or {})})
    if report.status == "failed":
        pytest.fail(f"{check.name} (it expects that {check.expects}): {report.detail}", pytrace=False)
    if report.status == "skipped":
        pytest.skip(report.detail)
    if report.status == "expected":
        pytest.xfail(report.detail)


def parametrize_with_checks(
    *drafters: Checkable, tiers: Sequence[str] = TIERS, expected_failures: Mapping[str, str] | None = None
) -> Callable[[Any], Any]:
    """Return a decorator that runs a test for every drafter and check.

    The test takes `drafter` and `check` and calls `check(drafter)`.

    Args:
        *drafters: as in `check_drafter`.
        tiers: as in `check_drafter`.
        expected_failures: as in `check_drafter`.
    """
    import pytest

    cases = [
        pytest.param(drafter, partial(_run, check, expected_failures), id=f"{_name(drafter)}-{check.name}")
        for drafter in drafters
        for check in choose_checks(tiers)
    ]
    return pytest.mark.parametrize(("drafter", "check"), cases)


def _run(check: Check, expected: Mapping[str, str] | None, drafter: Checkable) -> None:
    run_as_test(drafter, check, expected)


def _name(drafter: Any) -> str:
    if isinstance(drafter, Mapping):
        return str(drafter.get("name", drafter.get("method", "drafter")))
    return str(getattr(drafter, "name", None) or getattr(drafter, "__name__", drafter))


class DrafterContract:
    """Every check as a test of its own: inherit, and give a fixture `drafter` that returns what `check_drafter` takes."""

    expected_failures: Mapping[str, str] = {}
    """Checks that the drafter fails by design, each with the reason."""

    def test_contract(self, drafter: Checkable, drafter_check: Check) -> None:
        """Run a check; `drafter_check` is parametrised by outrider's pytest plugin."""
        run_as_test(drafter, drafter_check, self.expected_failures)


def every_check() -> list[Check]:
    """Return all checks, for the pytest plugin."""
    return list(drafter_checks())
