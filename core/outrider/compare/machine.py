"""What a comparison ran on, how much memory its rows took, and what the target's forwards cost there."""

import importlib.metadata
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import torch

from outrider.compare.noise import cores
from outrider.compare.result import ForwardCost
from outrider.decode.request import read_request
from outrider.draft.batch import TreeBatch
from outrider.draft.tree import DraftTree
from outrider.target.model import Target
from outrider.target.tier import Opening

SIZES: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_TIMES: Final = 5
_RESET_PEAK: Final = "5"


def describe(target: Target) -> dict[str, Any]:
    """Return what the target runs on."""
    found: dict[str, Any] = {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": len(cores()),
        "threads": torch.get_num_threads(),
        "memory_bytes": _memory(),
    }
    if target.info.device.type == "cuda":
        properties: Any = torch.cuda.get_device_properties(target.info.device)
        found |= {"gpu": properties.name, "gpu_memory_bytes": properties.total_memory, "cuda": torch.version.cuda}
    return found


def versions(packages: Sequence[str] = ()) -> dict[str, str]:
    """Return the versions of what takes part; `packages` are the drafters'."""
    found = {"python": platform.python_version()}
    for name in dict.fromkeys(("outrider", "torch", "transformers", *packages)):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


class Peak:
    """The most memory that something took: of the GPU where the target is on one, else resident memory of this process.

    Everything that is loaded counts, the target and other rows' drafters too.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device if device.type == "cuda" else None
        self._resets = True
        self.begin()

    @property
    def meaning(self) -> str:
        """What is counted."""
        if self._device is not None:
            return "most bytes allocated on the GPU while the row ran, everything loaded included"
        since = "while the row ran" if self._resets else "since the process began"
        return f"most resident memory of the process {since}, everything loaded included"

    def begin(self) -> None:
        """Forget what was."""
        if self._device is not None:
            torch.cuda.reset_peak_memory_stats(self._device)
            return
        try:
            Path("/proc/self/clear_refs").write_text(_RESET_PEAK, encoding="ascii")
        except OSError:
            self._resets = False

    def read(self) -> int | None:
        """Return the most since then, in bytes."""
        if self._device is not None:
            return int(torch.cuda.max_memory_allocated(self._device))
        try:
            lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
        except (OSError, StopIteration):
            return _resident()


class Forwards:
    """Forwards of the target after a text, with chains of any length.

    Args:
        target: the model.
        ids: the text.
        batch_size: how many such texts are read together.
    """

    def __init__(self, target: Target, ids: Sequence[int], batch_size: int = 1) -> None:
        request = read_request(target, ids, {"max_new_tokens": 1, "seed": 0})
        self._target, self._ids, self._rows = target, list(request.ids), batch_size
        self._context = request.context
        forwards = (_TIMES + 1) * len(SIZES)
        room = target.room(self._ids)
        self.sizes = tuple(size for size in SIZES if room is None or size + forwards < room)
        """The sizes that the target has positions for."""
        self._cache = target.open(
            batch_size, Opening(len(self._ids) + forwards + max(SIZES), contexts=[request.context] * batch_size)
        )
        target.prefill(self._cache, [self._ids] * batch_size)

    @torch.no_grad()
    def seconds(self, rows: int) -> float:
        """Return how long a forward of so many tokens a text takes; one of them stays in the cache."""
        root = self._ids[-1]
        chain = DraftTree.chain([self._ids[at % len(self._ids)] for at in range(rows - 1)])
        batch = TreeBatch.pack([chain] * self._rows)
        start = perf_counter()
        scored = self._target.forward(self._cache, [root] * self._rows, batch)
        scored.logits[..., :1].sum().item()  # waits for the device
        took = perf_counter() - start
        self._target.commit(self._cache, batch.width, [()] * self._rows)
        return took

    @torch.no_grad()
    def again(self) -> None:
        """Read the text from the beginning: the same work each time."""
        cache = self._target.open(1, Opening(len(self._ids) + 1, contexts=[self._context]))
        self._target.prefill(cache, [self._ids])[..., :1].sum().item()


def cost_curve(target: Target, ids: Sequence[int], batch_sizes: Sequence[int]) -> tuple[ForwardCost, ...]:
    """Measure what forwards of the target cost by their size, sizes in turn.

    Args:
        target: the model.
        ids: the text that they come after.
        batch_sizes: how many texts there are at once.
    """
    found = []
    for size in batch_sizes:
        forwards = Forwards(target, ids, size)
        took: dict[int, list[float]] = {rows: [] for rows in forwards.sizes}
        for time in range(_TIMES + 1):
            for rows in forwards.sizes:
                seconds = forwards.seconds(rows)
                if time:  # the first sets things up
                    took[rows].append(seconds)
        found += [
            ForwardCost(batch_size=size, rows=rows, context=len(ids), seconds=round(min(one), 7))
            for rows, one in took.items()
        ]
    return tuple(found)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _resident() -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
