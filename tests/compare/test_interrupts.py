"""Ctrl-C that comes up where Python drops it."""

import os
import signal

import pytest

from outrider.compare.interrupts import watched


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
