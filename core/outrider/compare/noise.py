"""How quiet the machine is while it measures: who else uses the CPUs, who waits, and whether the clock holds."""

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final

from outrider.compare.result import Calibration, Noise
from outrider.ranks import Ranks

_OTHERS: Final = 0.25
_OTHERS_SHARE: Final = 0.05
_WAITED: Final = 0.05
_SPREAD: Final = 0.15
_BETWEEN: Final = 10.0
_TICKS: Final = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass(frozen=True, slots=True)
class Reading:
    """The machine's counters at a moment.

    Args:
        wall: seconds.
        own: CPU seconds of this process and its ended children, and of those that do the work with it.
        busy: CPU seconds of everybody on this process's CPUs; None where it can't be read.
        ran: seconds that this process's threads were on a CPU; None likewise.
        waited: seconds that they could have been and were not.
        load: load averages.
        mhz: mean clock of the CPUs.
    """

    wall: float
    own: float
    busy: float | None = None
    ran: float | None = None
    waited: float | None = None
    load: tuple[float, ...] = ()
    mhz: float | None = None

    @classmethod
    def now(cls, own: float | None = None) -> "Reading":
        """Read them; `own` is by default that of this process alone."""
        ran, waited = _scheduled()
        return cls(
            wall=time.monotonic(),
            own=own_seconds() if own is None else own,
            busy=_busy(),
            ran=ran,
            waited=waited,
            load=tuple(os.getloadavg()) if hasattr(os, "getloadavg") else (),
            mhz=_mhz(),
        )


def own_seconds() -> float:
    """Return the CPU seconds of this process and its ended children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def own_seconds_of(ranks: Ranks) -> float:
    """Return the CPU seconds of the processes on this machine that do the work together."""
    here = platform.node()
    return sum(seconds for node, seconds in ranks.gathered((here, own_seconds())) if node == here)


def cores() -> set[int]:
    """Return the CPUs that this process may use."""
    return set(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def between(before: Reading, after: Reading, calibrations: tuple[Calibration, ...] = ()) -> Noise:
    """Say how quiet it was between two readings, with a warning for everything that makes times doubtful."""
    wall = max(after.wall - before.wall, 1e-9)
    own = after.own - before.own
    others = None if before.busy is None or after.busy is None else max(0.0, after.busy - before.busy - own) / wall
    waited = None
    if None not in (before.ran, after.ran, before.waited, after.waited):
        ran, late = after.ran - before.ran, after.waited - before.waited  # type: ignore[operator]
        waited = max(0.0, late) / max(ran + late, 1e-9)
    seconds = [one.seconds for one in calibrations]
    spread = max(seconds) / min(seconds) - 1 if len(seconds) > 1 and min(seconds) > 0 else None
    warnings = []
    if others is not None and others > max(_OTHERS, _OTHERS_SHARE * len(cores())):
        warnings.append(
            f"other processes used {others:.1f} of {len(cores())} cores while this ran (at most {_OTHERS:.2f} is quiet)"
        )
    if waited is not None and waited > _WAITED:
        warnings.append(f"this process waited for a CPU {waited:.0%} of the time that it wanted one")
    if spread is not None and spread > _SPREAD:
        warnings.append(
            f"the same small forward took up to {spread:.0%} longer at one time than at another: the clock or the machine "
            f"did not hold still"
        )
    return Noise(
        wall_seconds=wall,
        own_cpu_seconds=own,
        other_cores=others,
        waited_share=waited,
        load_before=before.load,
        load_after=after.load,
        mhz_before=before.mhz,
        mhz_after=after.mhz,
        calibrations=calibrations,
        calibration_spread=spread,
        warnings=tuple(warnings),
    )


class Watch:
    """Watches the machine during a measurement.

    Args:
        forward: the same small amount of work each time.
        ranks: the processes that do it together, of which the first asks the clock.
    """

    def __init__(self, forward: Callable[[], object], ranks: Ranks | None = None) -> None:
        self._forward, self._ranks, self._found = forward, ranks or Ranks(), list[Calibration]()
        forward()  # the first one sets things up
        self._before = Reading.now(own_seconds_of(self._ranks))
        self._start = self._last = time.monotonic()
        self._calibrate()

    def look(self) -> None:
        """Calibrate again, where that is some time ago."""
        if self._ranks.decided(lambda: time.monotonic() - self._last >= _BETWEEN):
            self._calibrate()

    def over(self) -> Noise:
        """Return how quiet it was."""
        self._calibrate()
        return between(self._before, Reading.now(own_seconds_of(self._ranks)), tuple(self._found))

    def _calibrate(self) -> None:
        took: list[float] = []
        began = time.perf_counter()
        while self._ranks.decided(lambda: len(took) < 5 or (time.perf_counter() - began < 0.05 and len(took) < 50)):
            start = time.perf_counter()
            self._forward()
            took.append(time.perf_counter() - start)
        self._last = time.monotonic()
        self._found.append(Calibration(at=round(self._last - self._start, 3), seconds=round(min(took), 7)))


def _busy() -> float | None:
    """Return the CPU seconds of everybody on this process's CPUs, waiting for disks and idling not counted."""
    try:
        lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    mine, total, seen = cores(), 0, False
    for line in lines:
        name, *values = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in mine:
            user, nice, system, _, _, interrupts, soft, *rest = map(int, values)
            total, seen = total + user + nice + system + interrupts + soft + (rest[0] if rest else 0), True
    return total / _TICKS if seen else None


def _scheduled() -> tuple[float | None, float | None]:
    """Return how long this process's threads ran, and how long they waited to."""
    ran = waited = 0
    try:
        for task in Path("/proc/self/task").iterdir():
            on, late, *_ = map(int, (task / "schedstat").read_text(encoding="ascii").split())
            ran, waited = ran + on, waited + late
    except (OSError, ValueError):
        return None, None
    return ran / 1e9, waited / 1e9


def _mhz() -> float | None:
    found = []
    for core in cores():
        try:
            text = Path(f"/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq").read_text(encoding="ascii")
            found.append(int(text) / 1000)
        except (OSError, ValueError):
            break
    if not found:
        try:
            lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return None
        found = [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]
    return round(fmean(found), 1) if found else None
