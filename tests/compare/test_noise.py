"""Noise: by counters that say so, and by a real second process."""

import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import pytest

from outrider.compare.noise import Reading, Watch, between, cores
from outrider.compare.result import Calibration

QUIET = Reading(wall=100.0, own=50.0, busy=1000.0, ran=50.0, waited=1.0, load=(1.0, 1.0, 1.0), mhz=3000.0)


def after(**changed: float) -> Reading:
    """Ten seconds later, in which this process alone was busy."""
    told: dict[str, Any] = {"wall": 110.0, "own": 60.0, "busy": 1010.2, "ran": 60.0, "waited": 1.1} | changed
    return replace(QUIET, **told)


def calibrations(*seconds: float) -> tuple[Calibration, ...]:
    return tuple(Calibration(at=float(at), seconds=one) for at, one in enumerate(seconds))


def test_a_quiet_machine_has_no_warning() -> None:
    found = between(QUIET, after(), calibrations(0.010, 0.0105, 0.0102))
    assert found.warnings == ()
    assert found.own_cpu_seconds == 10
    assert found.other_cores == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("changed", "seconds", "said"),
    [
        ({"busy": 1000.0 + 10 + 10 * max(1, 0.06 * len(cores()))}, (0.01, 0.01), "other processes used"),
        ({"waited": 2.5}, (0.01, 0.01), "waited for a CPU"),
        ({}, (0.010, 0.010, 0.012), "20% longer"),
    ],
)
def test_what_disturbs_is_said(changed: dict[str, float], seconds: tuple[float, ...], said: str) -> None:
    (warning,) = between(QUIET, after(**changed), calibrations(*seconds)).warnings
    assert said in warning


def test_what_cannot_be_read_is_not_guessed() -> None:
    bare = Reading(wall=1.0, own=1.0)
    found = between(bare, replace(bare, wall=2.0, own=2.0))
    assert (found.other_cores, found.waited_share, found.calibration_spread, found.warnings) == (None, None, None, ())


@pytest.mark.skipif(Reading.now().busy is None, reason="this system does not tell what its CPUs do")
def test_a_second_busy_process_is_noticed() -> None:
    """Told by the CPU time that it really got, however busy the machine is besides."""
    code = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"
    watch = Watch(lambda: None)
    busy = subprocess.Popen([sys.executable, "-c", code])
    try:
        began, got = time.monotonic(), 0.0
        while got < 0.8 and time.monotonic() - began < 50:
            time.sleep(0.1)
            got = _cpu_seconds(busy.pid)
        found = watch.over()
    finally:
        busy.kill()
        busy.wait()
    assert got >= 0.8
    assert found.other_cores is not None
    assert found.other_cores >= 0.8 * got / found.wall_seconds - 0.05
    if got / found.wall_seconds > max(0.35, 0.06 * len(cores())):
        assert any("other processes" in warning for warning in found.warnings)


def _cpu_seconds(process: int) -> float:
    with open(f"/proc/{process}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
