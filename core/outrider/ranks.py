"""Processes that share a target: every one runs every forward, and the first decides for all."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from outrider.errors import GenerationError, OutriderError, first_line

T = TypeVar("T")


class Ranks:
    """The processes that hold a target together (tensor parallelism).

    Each holds a part of the weights, so that a forward needs them all at the same place of the program. Whatever depends on
    clocks, random numbers, files or rounding is therefore decided by the first one alone.

    Args:
        group: a process group of torch.distributed for CPU objects; None for a process of its own.
    """

    def __init__(self, group: Any = None) -> None:
        self._group = group

    @property
    def several(self) -> bool:
        """Whether there are others."""
        return self._group is not None

    @property
    def first(self) -> bool:
        """Whether this process decides."""
        return self._group is None or self._group.rank() == 0

    def decided(self, make: Callable[[], T], told: Callable[[T], T] | None = None) -> T:
        """Return what the first process makes, in every process; what it raises, all raise.

        Args:
            make: called in the first process only.
            told: what the others get of it, which must be picklable; the same by default.
        """
        if self._group is None:
            return make()
        import torch.distributed as dist

        message: list[Any] = [None]
        made: Any = None
        raised: BaseException | None = None
        if self.first:
            try:
                made = make()
                message = [(made if told is None else told(made), None)]
            except BaseException as error:  # Ctrl-C too: the others would wait for ever
                raised = error
                message = [(None, _portable(error))]
        dist.broadcast_object_list(message, src=dist.get_global_rank(self._group, 0), group=self._group)
        if raised is not None:
            raise raised
        heard, failure = message[0]
        if failure is not None:
            raise failure
        return cast("T", made if self.first else heard)


def _portable(error: BaseException) -> BaseException:
    """Return an error that other processes can be sent."""
    if isinstance(error, KeyboardInterrupt):
        return KeyboardInterrupt()
    if isinstance(error, OutriderError):
        return type(error)(str(error))
    return GenerationError(f"the first process failed: {first_line(error)}")
