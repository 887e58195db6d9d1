"""Where a comparison ran: the machine, how quiet it was, and what forwards cost there."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from pydantic import ConfigDict

_STRICT: Final = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The same small forward at some moment.

    Args:
        at: seconds from the beginning.
        seconds: the fastest of a few.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    at: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """How quiet the machine was.

    Args:
        wall_seconds: of the measurement.
        own_cpu_seconds: of this process.
        other_cores: CPU seconds of everything else on this process's CPUs, by wall seconds; None where it can't be read.
        waited_share: share of the time that this process's threads wanted a CPU and waited for one; None likewise.
        load_before: the load averages of 1, 5 and 15 minutes at the beginning; empty where there are none.
        load_after: the same at the end.
        mhz_before: mean clock of the CPUs; None where it can't be read.
        mhz_after: the same at the end.
        calibrations: the same small forward before, between and after the runs.
        calibration_spread: their slowest over their fastest, less 1; None below two.
        warnings: what is wrong with the measurement, a line each; empty on a quiet machine.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    wall_seconds: float
    own_cpu_seconds: float
    other_cores: float | None = None
    waited_share: float | None = None
    load_before: tuple[float, ...] = ()
    load_after: tuple[float, ...] = ()
    mhz_before: float | None = None
    mhz_after: float | None = None
    calibrations: tuple[Calibration, ...] = ()
    calibration_spread: float | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardCost:
    """What a forward of the target took.

    Args:
        batch_size: texts in it.
        rows: tokens of each text that it scored: the nodes and their root.
        context: tokens that each text had before.
        seconds: the fastest of a few, since what disturbs a measurement makes it longer.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    batch_size: int
    rows: int
    context: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A machine's share of a comparison; there are several where shards were merged.

    Args:
        shard: as in the settings.
        started: when, in UTC, ISO 8601.
        seconds: how long all of it took.
        machine: what it ran on: system, processor, cores, threads, memory, GPU.
        versions: of Python, outrider, torch, transformers, and the packages of the drafters.
        noise: how quiet it was.
        costs: the machine's cost curve; empty where it was not measured.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    shard: str | None
    started: str
    seconds: float
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    noise: Noise
    costs: tuple[ForwardCost, ...] = ()
