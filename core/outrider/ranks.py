"""Processes that share a target: every one runs every forward, and the first decides for all."""

import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar, cast

from outrider.errors import GenerationError, OutriderError, first_line

T = TypeVar("T")
_ENDED: Final = ("closed by peer", "reset by peer", "Broken pipe")


def launched(environment: Mapping[str, str] = os.environ) -> bool:
    """Say whether `torchrun` or `accelerate launch` started several processes, which then hold the model together."""
    size = environment.get("WORLD_SIZE", "")
    return size.isdecimal() and int(size) > 1 and environment.get("RANK", "").isdecimal()


def launched_later(environment: Mapping[str, str] = os.environ) -> bool:
    """Say whether this is one of several processes, and not the first."""
    return launched(environment) and int(environment["RANK"]) > 0


class Ranks:
    """The processes that hold a target together (tensor parallelism).

    Each holds a part of the weights, so that a forward needs them all at the same place of the program. Whatever depends on
    clocks, random numbers, files or rounding is therefore decided by the first one alone.

    Args:
        group: a process group of torch.distributed for CPU objects; None for a process of its own.
    """

    def __init__(self, group: Any = None) -> None:
        self._group = group
        self._deciding = self._interrupted = self._told = False

    @property
    def several(self) -> bool:
        """Whether there are others."""
        return self._group is not None

    @property
    def first(self) -> bool:
        """Whether this process decides."""
        return self._group is None or self._group.rank() == 0

    def decided(self, make: Callable[[], T], told: Callable[[T], T] | None = None) -> T:
        """Return what the first process makes, in every process; what it raises, all raise, as one of `OutriderError`.

        Args:
            make: called in the first process only.
            told: what the others get of it, which must be picklable; the same by default.

        Raises:
            GenerationError: a process has ended.
        """
        if self._group is None:
            return make()
        message: list[Any] = [None]
        made: Any = None
        if self.first:
            try:
                made = self._make(make)
                message = [pickle.dumps((made if told is None else told(made), None))]
            except BaseException as error:  # Ctrl-C too: the others would wait for ever
                own = error
                message = [pickle.dumps((None, _portable(error)))]
                self._send(message)
                raise _portable(error) from (own if isinstance(own, Exception) else None)
        self._send(message)
        if self.first:
            return cast("T", made)
        heard, failure = pickle.loads(message[0])
        if failure is not None:
            failure.heard = True
            raise failure
        return cast("T", heard)

    def gathered(self, value: T) -> list[T]:
        """Return what every process gives, in their order."""
        if self._group is None:
            return [value]
        import torch.distributed as dist

        found: list[Any] = [None] * self._group.size()
        dist.all_gather_object(found, value, group=self._group)
        return found

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let Ctrl-C come up in all processes at the same place of the program.

        It reaches them one by one, and the launcher sends it to all of them once more.
        """
        aside = threading.current_thread() is not threading.main_thread()
        if not self.several or aside or not callable(signal.getsignal(signal.SIGINT)):
            yield
            return
        before = signal.signal(signal.SIGINT, self._interrupt)
        try:
            yield
        except RuntimeError as error:
            if any(sign in str(error) for sign in _ENDED):
                raise _ended(error) from error
            raise
        finally:
            signal.signal(signal.SIGINT, before)

    def _interrupt(self, *_: object) -> None:
        if not self.first or self._told:
            return
        self._interrupted = True
        if self._deciding:
            self._told = True
            raise KeyboardInterrupt

    def _make(self, make: Callable[[], T]) -> T:
        self._deciding = True
        try:
            if self._interrupted and not self._told:
                self._told = True
                raise KeyboardInterrupt
            return make()
        finally:
            self._deciding = False

    def _send(self, message: list[Any]) -> None:
        import torch.distributed as dist

        try:
            dist.broadcast_object_list(message, src=dist.get_global_rank(self._group, 0), group=self._group)
        except RuntimeError as error:
            raise _ended(error) from error


def _ended(error: BaseException) -> GenerationError:
    return GenerationError(
        f"another process of the launch, which holds a part of the model, has ended ({first_line(error)})"
    )


def was_heard(error: BaseException | None) -> bool:
    """Say whether an error is one of the first process, which says it itself."""
    while error is not None:
        if getattr(error, "heard", False):
            return True
        error = error.__cause__
    return False


def _portable(error: BaseException) -> BaseException:
    """Return an error that other processes can be sent."""
    if isinstance(error, KeyboardInterrupt):
        return KeyboardInterrupt()
    if isinstance(error, OutriderError):
        # Not a class of a plugin's, which the others may not have.
        known = next(one for one in type(error).__mro__ if one.__module__ == OutriderError.__module__)
        return cast("BaseException", known(str(error)))
    if isinstance(error, OSError) and error.errno is not None:
        return OSError(error.errno, error.strerror or "")
    return GenerationError(f"the first process failed: {first_line(error)}")
