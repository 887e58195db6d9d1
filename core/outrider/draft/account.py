"""The account of drafting: what it has won or lost against plain decoding, and what it may still lose."""

from typing import Final

_TO_TRY: Final = 3.0
_SHARE: Final = 0.012
_TRUST: Final = 5.0


class Account:
    """In plain steps a row: a step's tokens are what plain decoding would have taken for them, its cost what it took.

    Whatever the drafter does, what is lost stays within 8 steps and 1.2 % of the tokens, and one step; of that 5 steps are kept
    for drafts that are expected to win.
    """

    def __init__(self) -> None:
        self.balance = 0.0
        self._tokens = 0.0

    def emit(self, tokens: float) -> None:
        """Count tokens, drafted or not."""
        self._tokens += tokens

    def book(self, gain: float) -> None:
        """Count what a step has won, or lost."""
        self.balance += gain

    @property
    def to_try(self) -> float:
        """What a draft may lose that is not expected to win."""
        return self.balance + _TO_TRY + _SHARE * self._tokens

    @property
    def to_lose(self) -> float:
        """What a draft may lose that is."""
        return self.to_try + _TRUST
