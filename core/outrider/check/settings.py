"""Torch's settings for the whole process, which no drafter may change."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def settings() -> dict[str, Any]:
    """Return what is set, by name."""
    return {
        "number of threads": torch.get_num_threads(),
        "default dtype": torch.get_default_dtype(),
        "gradient mode": torch.is_grad_enabled(),
        "deterministic mode": torch.are_deterministic_algorithms_enabled(),
    }


@contextmanager
def settings_kept() -> Iterator[None]:
    """Put everything back at the end, so that a drafter that changes it spoils no other check."""
    before = settings()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    try:
        yield
    finally:
        if torch.get_num_threads() != before["number of threads"]:
            torch.set_num_threads(before["number of threads"])
        torch.set_default_dtype(before["default dtype"])
        torch.set_grad_enabled(before["gradient mode"])
        torch.use_deterministic_algorithms(before["deterministic mode"], warn_only=warns)
