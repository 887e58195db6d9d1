"""Ctrl-C that comes up where Python drops it."""

import os
import signal

import pytest

from outrider.interrupts import deferred, watched


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000):
        pass


class Dropping:
    """Interrupts the process inside its destructor, whose exceptions Python only mentions."""

    def __del__(self) -> None:
        interrupt()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_was_dropped_is_noticed() -> None:
    before = signal.getsignal(signal.SIGINT)
    with watched() as interrupts:
        interrupts.check()
        dropping = [Dropping()]
        dropping.clear()
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_is_raised_as_ever() -> None:
    with watched(), pytest.raises(KeyboardInterrupt):
        interrupt()


def test_an_interrupt_waits_and_the_second_one_does_not() -> None:
    with deferred() as interrupts:
        interrupt()
        assert interrupts.came
        with pytest.raises(KeyboardInterrupt):
            interrupt()
    with pytest.raises(KeyboardInterrupt):
        interrupts.check()
    with pytest.raises(KeyboardInterrupt):
        interrupt()
