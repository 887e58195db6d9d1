"""In which contexts a target's tier is known to be exact: the probe's, and those that it was probed in since."""

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from outrider.errors import ModelError, PlainDiffersError

BEYOND: Final = 3
"""How far past a threshold a context must be to say something about it."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What the probe found.

    Args:
        tier: what serves the model.
        error: largest difference between a node's logits and its path's alone, over the logits' standard deviation; None
            in half precision, where only the swap test is made.
        context: length of the context that trees were verified after.
        refused: why each tier before it can't serve.
    """

    tier: str
    error: float | None
    context: int
    refused: Mapping[str, str]


class Trust:
    """Which context lengths trees may be verified in; what it finds out holds for all texts.

    Args:
        thresholds: context lengths at which the model changes, rising, that the probe did not pass.
        check: verifies trees of a target after a context; raises `ModelError` where they are not exact.
        limit: beyond which trees are known not to be exact.
    """

    def __init__(
        self,
        thresholds: Sequence[int] = (),
        check: Callable[[Any, Sequence[int]], object] | None = None,
        limit: int | None = None,
    ) -> None:
        self._pending = list(thresholds)
        self._check = check
        self._lock = threading.Lock()
        self.limit = limit

    @property
    def pending(self) -> tuple[int, ...]:
        """Thresholds that no text has passed yet."""
        return tuple(self._pending)

    def room(self, target: Any, ids: Sequence[int], columns: int = 0) -> int | None:
        """Return how many nodes may be drafted after `ids`; None for as many as one likes.

        No draft reaches past a threshold that no text has passed; the first text that has is used to verify trees again, and
        where they are not exact, nothing is drafted beyond that length any more, in any text.
        """
        if not self._pending and self.limit is None:
            return None
        with self._lock:
            while self._pending and len(ids) >= self._pending[0] + BEYOND:
                self._pass(target, ids)
            ends = [end for end in (self.limit, *self._pending[:1]) if end is not None]
            # A model may go by the column that a token lies in, holes and wide trees counted.
            return max(0, min(ends) - max(len(ids), columns + 1)) if ends else None

    def _pass(self, target: Any, ids: Sequence[int]) -> None:
        threshold = self._pending.pop(0)
        if self._check is None or (self._pending and len(ids) >= self._pending[0] + BEYOND):
            return  # the next one is passed as well, and one check says it for both
        try:
            self._check(target, ids)
        except PlainDiffersError as error:
            raise ModelError(
                f"{type(target.model).__name__} can't be served in contexts of more than {threshold} tokens: {error}"
            ) from error
        except ModelError as error:
            self.limit, self._pending = threshold, []
            warnings.warn(
                f"in contexts of more than {threshold} tokens {type(target.model).__name__} can't be verified exactly "
                f"({error}): nothing is drafted there, and the text goes on as plain decoding",
                stacklevel=2,
            )
