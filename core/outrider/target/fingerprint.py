"""Which model a target is, whatever it is called and in whatever dtype it is loaded: by its shape and some of its weights."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch

from outrider.draft.contract import TargetInfo
from outrider.errors import InputError, ModelError

FILE: Final = "target.json"
_SAMPLES: Final = 32
# bfloat16 keeps eight bits, so two readings of a weight differ by up to 0.4 %.
_CLOSE: Final = 0.006


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What tells a target from others.

    Args:
        vocab_size: of the target.
        hidden_size: of the target.
        num_layers: of the target.
        sample: some of its weights: of the embeddings, and of the last decoder layer.
    """

    vocab_size: int
    hidden_size: int
    num_layers: int
    sample: tuple[float, ...]

    @classmethod
    def of(cls, target: TargetInfo) -> "Fingerprint | None":
        """Read a target's; None where it shows no weights, as quantised or outlined models don't."""
        parts: Any = target.parts
        if parts is None or target.device.type == "meta":
            return None
        try:
            weights = [parts.embeddings.module.weight, *_weights(parts.layer(-1))]
        except (ModelError, AttributeError):
            return None
        if not all(one.is_floating_point() and one.device.type != "meta" for one in weights):
            return None
        found = _sample(weights[0], _SAMPLES)
        for index in range(_SAMPLES):
            found += _sample(weights[1 + index % (len(weights) - 1)], 1 + index)[-1:]
        return cls(target.vocab_size, target.hidden_size, target.num_layers, tuple(found))

    def matches(self, other: "Fingerprint") -> bool:
        """Whether both are of the same model, up to the rounding of half precision."""
        shape, theirs = ((one.vocab_size, one.hidden_size, one.num_layers) for one in (self, other))
        if shape != theirs or len(self.sample) != len(other.sample):
            return False
        mine = torch.tensor(self.sample)
        return bool(torch.isclose(mine, torch.tensor(other.sample), rtol=_CLOSE, atol=1e-6).all())

    def write(self, folder: Path, name: str) -> None:
        """Write it beside heads, with what the target was called.

        Raises:
            OSError: the file can't be written.
        """
        part = folder / f".{FILE}.{os.getpid()}"
        part.write_text(json.dumps({"name": name} | asdict(self)) + "\n", encoding="utf-8")
        part.replace(folder / FILE)


def read_fingerprint(folder: Path) -> tuple[str, Fingerprint]:
    """Read what the target of a folder of heads was called, and its fingerprint.

    Raises:
        InputError: the file is not there, or is none.
    """
    path = folder / FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        sample = tuple(float(one) for one in found["sample"])
        sizes = [int(found[name]) for name in ("vocab_size", "hidden_size", "num_layers")]
        return str(found["name"]), Fingerprint(sizes[0], sizes[1], sizes[2], sample)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} can't be read: {error}") from error


def _weights(layer: Any) -> list[torch.Tensor]:
    return [one for _, one in sorted(layer.named_parameters()) if one.numel() > 1]


def _sample(weight: torch.Tensor, count: int) -> list[float]:
    """Return some of a tensor's values, spread evenly."""
    flat = weight.detach().flatten()
    # A stride that shares no factor with the width would walk through all columns.
    where = (torch.arange(count, device=flat.device) * (len(flat) // count + 1)) % len(flat)
    found: list[float] = flat[where].float().tolist()
    return found
