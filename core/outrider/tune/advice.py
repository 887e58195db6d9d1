"""What to do, by what was measured: the fastest setting, or no speculation at all."""

from collections.abc import Sequence
from typing import Final

from outrider.tune.result import Candidate, Checked, Choice

WORTH: Final = 1.02
"""The least measured speed-up for which it is worth speculating: less than this is within what such a run can tell."""


def choose(batch_size: int, checked: Sequence[Checked], candidates: Sequence[Candidate]) -> Choice:
    """Return what to do at a batch size.

    Args:
        batch_size: which.
        checked: the settings that were validated at it.
        candidates: the drafters that took part at it.
    """
    known = [(one.speed_up, one) for one in checked if one.speed_up is not None]
    if not known:
        errors = [one.error for one in candidates] + [one.error for one in checked]
        failed = next((one for one in errors if one), "nothing was validated")
        reason = f"do not speculate: no drafter could be measured ({failed})"
        return Choice(batch_size=batch_size, setting=None, speed_up=None, reason=reason)
    speed_up, best = max(known, key=lambda one: one[0].value)
    value = speed_up.value
    if value < WORTH:
        reason = f"do not speculate: the fastest, {best.row}, runs at {value:.2f} times the speed of plain decoding"
        return Choice(batch_size=batch_size, setting=None, speed_up=None, reason=reason)
    low, high = speed_up.low, speed_up.high
    reason = f"use {best.row}: {value:.2f} times the speed of plain decoding ({low:.2f} to {high:.2f})"
    if low < 1.0:
        reason += "; the interval holds 1, so more prompts or a quieter machine may say otherwise"
    return Choice(batch_size=batch_size, setting=best.setting, speed_up=speed_up, reason=reason)
