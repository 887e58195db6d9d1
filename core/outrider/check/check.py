"""What a check is, which drafters it is for, and how it fails."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from outrider.check.traits import Traits
from outrider.draft.contract import Drafter, TargetInfo
from outrider.errors import OutriderError

Make = Callable[[TargetInfo], Drafter[Any]]
"""Makes a fresh drafter for a target."""
Tier = Literal["basic", "trees", "sampling", "batch", "features"]
TIERS: Final[tuple[Tier, ...]] = ("basic", "trees", "sampling", "batch", "features")


class CheckFailedError(OutriderError):
    """A drafter that does not do what every drafter must; the message ends with the smallest input that shows it."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a drafter must do.

    Args:
        name: by which it is picked.
        tier: which group it belongs to.
        expects: what it asks, in a sentence.
        run: raises `CheckFailedError`, or an error of the drafter's own making.
        trait: what a drafter has that is asked; see `Traits`. Empty where every drafter is.
    """

    name: str
    tier: Tier
    expects: str
    run: Callable[[Make], None]
    trait: Literal["", "branches", "samples", "features"] = ""

    def applies(self, traits: Traits) -> bool:
        """Say whether a drafter of these traits is asked."""
        return not self.trait or bool(getattr(traits, self.trait))


@dataclass(frozen=True, slots=True)
class Case:
    """An input of a check.

    Args:
        ids: the prompt.
        count: how many tokens or steps follow.
        setting: what else was set, for the message.
    """

    ids: tuple[int, ...]
    count: int = 0
    setting: str = ""

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.ids[:8])) + (", ..." if len(self.ids) > 8 else "")
        parts = [f"prompt [{shown}] of {len(self.ids)} ids", *([f"count {self.count}"] if self.count else [])]
        return ", ".join([*parts, *([self.setting] if self.setting else [])])

    def smaller(self) -> Iterator["Case"]:
        """Yield inputs that are smaller, the smallest first."""
        for length in sorted({1, 2, len(self.ids) // 4, len(self.ids) // 2}):
            if 0 < length < len(self.ids):
                yield Case(self.ids[-length:], self.count, self.setting)
        for count in sorted({1, self.count // 4, self.count // 2, self.count - 1}):
            if 0 < count < self.count:
                yield Case(self.ids, count, self.setting)


_MOST_TRIES: Final = 24


def hold(case: Case, run: Callable[[Case], None]) -> None:
    """Run a case; where it fails, look for a smaller one that fails too.

    Raises:
        CheckFailedError: with the smallest case that was found.
    """
    try:
        run(case)
        return
    except Exception as error:
        found, message = case, _told(error)
    tries = 0
    smaller = found.smaller()
    while tries < _MOST_TRIES and (one := next(smaller, None)) is not None:
        tries += 1
        try:
            run(one)
        except Exception as error:
            found, message, smaller = one, _told(error), one.smaller()
    raise CheckFailedError(f"{message}; smallest input: {found}")


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, OutriderError) else f"{type(error).__name__}: {error}"
