"""A draft's work does not grow faster than the text: counted in Python's instructions and tensor elements, not timed."""

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from outrider.check.check import Check, CheckFailedError, Make
from outrider.check.leading import Lead
from outrider.check.targets import prompt, tiny_target

_LENGTHS: Final = (100, 400)
_MOST: Final = 8.0
"""Four times the text may be four times the work; sixteen would be its square."""


def checks() -> Iterator[Check]:
    """Yield the checks."""
    yield Check(
        "work",
        "basic",
        "a draft's work, in instructions and tensor elements, grows no faster than the text (C17)",
        _work,
    )


class _Elements(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the elements that torch's operations make."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor):
            self.count += found.numel()
        return found


def _instructions(run: Callable[[], object]) -> int:
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


def _work(make: Make) -> None:
    target = tiny_target()
    for seed, repeats in ((3, False), (4, True)):
        found = []
        for length in _LENGTHS:
            ids = (prompt(7, seed) * length)[:length] if repeats else prompt(length, seed)
            with Lead(target, make(target.info), [ids]) as lead:
                lead.start([ids[0]])
                lead.propose()  # what reads along reads the prompt here
                lead.follow([ids[1]])
                elements = _Elements()
                instructions = _instructions(lead.propose)
                with elements:
                    lead.propose()
            found.append((instructions, elements.count))
        for what, short, long in zip(("Python instructions", "tensor elements"), *found, strict=True):
            if long > _MOST * max(short, 1000):
                raise CheckFailedError(
                    f"a draft after {_LENGTHS[1]} ids takes {long} {what}, and {short} after {_LENGTHS[0]}; "
                    f"smallest input: {'a repeating' if repeats else 'a random'} prompt of these lengths"
                )
