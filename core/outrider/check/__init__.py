"""The conformance kit: named checks that every drafter must pass, from one generator, by four fronts.

`check_drafter` runs them and tells what failed; `parametrize_with_checks` and `DrafterContract` make tests of them; the command
is `outrider check`. See docs/checks.md.
"""

from outrider.check.check import TIERS, Check, CheckFailedError
from outrider.check.checks import drafter_checks
from outrider.check.kit import CheckReport, check_drafter
from outrider.check.pytesting import DrafterContract, parametrize_with_checks

__all__ = (
    "TIERS",
    "Check",
    "CheckFailedError",
    "CheckReport",
    "DrafterContract",
    "check_drafter",
    "drafter_checks",
    "parametrize_with_checks",
)
