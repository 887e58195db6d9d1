"""Checking a drafter: every check that applies, one after another."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from outrider.check.check import TIERS, Check, CheckFailedError, Tier
from outrider.check.checks import drafter_checks
from outrider.check.settings import settings_kept
from outrider.check.subject import Checkable, Subject, subject_of
from outrider.errors import InputError, OutriderError, first_line, suggestion

Status = Literal["passed", "failed", "expected", "skipped"]


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What became of a check.

    Args:
        check: its name.
        tier: its tier.
        status: `expected` is a failure that was announced, `skipped` a check that the drafter is not asked.
        detail: what failed, with the smallest input that was found; or why it is expected or skipped.
        seconds: that it took.
    """

    check: str
    tier: Tier
    status: Status
    detail: str = ""
    seconds: float = 0.0


def check_drafter(
    drafter: Checkable,
    options: Mapping[str, Any] | None = None,
    *,
    tiers: Sequence[str] = TIERS,
    only: Sequence[str] = (),
    expected_failures: Mapping[str, str] | None = None,
    hear: Callable[[CheckReport], None] = lambda _: None,
    raises: bool = True,
) -> list[CheckReport]:
    """Check that a drafter is right, on tiny random models.

    Args:
        drafter: its name in any form, its class, or a function that makes one for a `TargetInfo`.
        options: the drafter's own, for a name or a class; over those of its `for_check`.
        tiers: which of `basic`, `trees`, `sampling`, `batch` and `features`.
        only: names of checks; all by default.
        expected_failures: checks that it fails, each with the reason; beside those that the drafter names itself.
        hear: told of every check as it ends.
        raises: whether a failure is an error in the end.

    Returns:
        A report of every check that was chosen.

    Raises:
        InputError: an unknown check or tier, or the drafter can't be made.
        CheckFailedError: a check failed, and `raises`.
    """
    chosen = choose_checks(tiers, only)
    subject = subject_of(drafter, options)
    expected = {**subject.expected, **(expected_failures or {})}
    _known(expected, [check.name for check in drafter_checks()], "check")
    reports = []
    for check in chosen:
        reports.append(run_check(subject, check, expected))
        hear(reports[-1])
    failed = [one for one in reports if one.status == "failed"]
    if failed and raises:
        told = "; ".join(f"{one.check}: {one.detail}" for one in failed)
        raise CheckFailedError(f"drafter '{subject.name}' fails {len(failed)} of {len(reports)} checks. {told}")
    return reports


def choose_checks(tiers: Sequence[str] = TIERS, only: Sequence[str] = ()) -> list[Check]:
    """Return the checks of some tiers, or some by name.

    Raises:
        InputError: there is no such tier or check.
    """
    every = list(drafter_checks())
    _known(tiers, TIERS, "tier")
    _known(only, [check.name for check in every], "check")
    return [check for check in every if check.tier in tiers and (not only or check.name in only)]


def _known(names: Sequence[str] | Mapping[str, str], known: Sequence[str], kind: str) -> None:
    wrong = next((name for name in names if name not in known), None)
    if wrong is not None:
        raise InputError(f"unknown {kind} '{wrong}'.{suggestion(wrong, known)} Known: {', '.join(known)}.")


def run_check(subject: Subject, check: Check, expected: Mapping[str, str]) -> CheckReport:
    """Run a check that a drafter may be expected to fail."""
    if not check.applies(subject.traits):
        return CheckReport(check.name, check.tier, "skipped", _SKIPPED[check.trait])
    before = time.perf_counter()
    detail = _failure(subject, check)
    seconds = time.perf_counter() - before
    reason = expected.get(check.name)
    if detail and reason is not None:
        return CheckReport(check.name, check.tier, "expected", reason, seconds)
    if detail:
        return CheckReport(check.name, check.tier, "failed", detail, seconds)
    note = "" if reason is None else f"though it was expected to fail: {reason}"
    return CheckReport(check.name, check.tier, "passed", note, seconds)


_SKIPPED: dict[str, str] = {
    "branches": "its trees don't branch",
    "samples": "it declares no node as drawn",
    "features": "it needs no features",
}


def _failure(subject: Subject, check: Check) -> str:
    with warnings.catch_warnings(record=True) as said, settings_kept():
        warnings.simplefilter("always")
        try:
            check.run(subject.make)
        except KeyboardInterrupt:
            raise
        except OutriderError as error:
            return " ".join(str(error).split())
        except BaseException as error:  # a drafter may raise anything where it is made
            return first_line(error)
    # A guard only warns of that, since the text is whole.
    return next((text for one in said if " failed in end: " in (text := str(one.message))), "")
