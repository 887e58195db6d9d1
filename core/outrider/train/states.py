"""The target's hidden states on training text: computed as they are needed, or once, in sharded safetensors."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from outrider.errors import InputError
from outrider.target import compat
from outrider.target.model import Target
from outrider.train.examples import Example

_SHARD: Final = 64
"""Texts of a shard, on average."""
_STORED: Final = torch.bfloat16
"""Half the size, and as noise far below what tells tokens apart."""


class States(Protocol):
    """Where the target's states come from."""

    def of(self, chosen: Sequence[int], ids: torch.Tensor) -> dict[int, torch.Tensor]:
        """Return for every layer the states `[rows, n, hidden]` of examples, whose ids `[rows, n]` are padded on the right."""
        ...


class OnlineStates:
    """States that are computed anew each time.

    Args:
        target: whose.
        layers: which, as in `Needs.hidden`.
    """

    def __init__(self, target: Target, layers: Sequence[int]) -> None:
        self._target, self._layers = target, tuple(layers)
        self._names = compat.ForwardNames.of(target.model)

    @torch.no_grad()
    def of(self, chosen: Sequence[int], ids: torch.Tensor) -> dict[int, torch.Tensor]:  # noqa: ARG002
        """See `States`."""
        # Padding on the right is never seen by what comes before it.
        call: Any = self._target.model
        kept = {"logits_to_keep": 1} if self._names.logits_to_keep else {}
        output = call(**{self._names.ids: ids}, output_hidden_states=True, use_cache=False, **kept)
        states = compat.hidden_states(output)
        return {layer: states[layer] for layer in self._layers}


class StoredStates:
    """States that were computed once.

    Args:
        folder: of the shards.
        layers: which are wanted, of those that are there.
        examples: as they were when the states were stored.
        like: dtype and device of what is returned.
    """

    def __init__(self, folder: Path, layers: Sequence[int], examples: Sequence[Example], like: torch.Tensor) -> None:
        self._layers, self._like = tuple(layers), like
        self._places: list[tuple[Path, int, int]] = []
        for name, shard in _shards(examples):
            end = 0
            for one in shard:
                begin, end = end, end + len(one.ids)
                self._places.append((folder / name, begin, end))

    def of(self, chosen: Sequence[int], ids: torch.Tensor) -> dict[int, torch.Tensor]:
        """See `States`."""
        found = {}
        for layer in self._layers:
            rows = [self._read(index, layer) for index in chosen]
            states = self._like.new_zeros(*ids.shape, rows[0].shape[1])
            for row, own in enumerate(rows):
                states[row, : len(own)] = own.to(states)
            found[layer] = states
        return found

    def _read(self, index: int, layer: int) -> torch.Tensor:
        file, begin, end = self._places[index]
        with safe_open(file, framework="pt") as stored:
            found: torch.Tensor = stored.get_slice(str(layer))[begin:end]
        return found


def store_states(
    target: Target,
    examples: Sequence[Example],
    layers: Sequence[int],
    folder: Path,
    *,
    tokens: int,
    share: tuple[int, int] = (0, 1),
    report: Callable[[int, int], None],
) -> None:
    """Compute the states of examples that are not there yet, shard by shard.

    A shard is called by its texts, so that text which is added finds what was computed before.

    Args:
        target: whose.
        examples: texts.
        layers: which states; a folder that holds these and more is used as it is.
        folder: is made; one with states of other layers or another target is refused.
        tokens: most of one forward.
        share: which part of the shards this process computes, of how many.
        report: is told the shards that are done, and how many there are.

    Raises:
        InputError: the folder holds other states, or can't be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        computed = OnlineStates(target, _claim(folder, _sample(target), layers))
        shards = [(folder / name, shard) for name, shard in _shards(examples)]
        for number, (file, shard) in enumerate(shards):
            if number % share[1] == share[0] and not file.exists():
                _write(file, _shard(computed, shard, target.info.device, tokens))
            report(number + 1, len(shards))
    except OSError as error:
        raise InputError(f"{folder} can't be written: {error.strerror or error}") from error


def _shards(examples: Sequence[Example]) -> list[tuple[str, Sequence[Example]]]:
    """Return what is stored together, with the names of its files.

    A shard ends where its last text says so, so that among more texts, or in another order of files, most shards are the
    same (content-defined chunking; Muthitacharoen, Chen and Mazieres 2001, SOSP, section 3.1).
    """
    found: list[tuple[str, Sequence[Example]]] = []
    first, name = 0, hashlib.sha256()
    for at, one in enumerate(examples):
        text = hashlib.sha256(json.dumps(one.ids).encode()).digest()
        name.update(text)
        if int.from_bytes(text[:8], "big") % _SHARD == 0 or at == len(examples) - 1:
            found.append((f"states-{name.hexdigest()[:16]}.safetensors", examples[first : at + 1]))
            first, name = at + 1, hashlib.sha256()
    return found


def _sample(target: Target) -> str:
    embeddings: Any = target.model.get_input_embeddings()
    sample = embeddings.weight.detach().flatten()[:4096].float().cpu().numpy().tobytes()
    return hashlib.sha256(sample).hexdigest()


def _claim(folder: Path, target: str, layers: Sequence[int]) -> list[int]:
    """Return the layers whose states a folder holds, which are those that are wanted where it was empty."""
    index = folder / "states.json"
    if not index.exists():
        kept = index.with_suffix(f".{os.getpid()}")
        kept.write_text(json.dumps({"target": target, "layers": list(layers)}), encoding="utf-8")
        kept.replace(index)
    held = json.loads(index.read_text(encoding="utf-8"))
    other = held.get("target") != target
    found: list[int] = held.get("layers", [])
    if other or not set(layers) <= set(found):
        what = "another target" if other else f"layers {found}, and {list(layers)} are wanted"
        raise InputError(f"{folder} holds states of {what}: give another folder, or delete it")
    return found


def _shard(computed: OnlineStates, examples: Sequence[Example], device: torch.device, tokens: int) -> dict[str, Any]:
    order = sorted(range(len(examples)), key=lambda index: len(examples[index].ids))
    found: dict[int, dict[int, torch.Tensor]] = {}
    while order:
        rows = max(1, tokens // len(examples[order[-1]].ids))
        chosen, order = order[-rows:], order[:-rows]
        ids = torch.zeros(len(chosen), len(examples[chosen[-1]].ids), dtype=torch.long)
        for row, index in enumerate(chosen):
            ids[row, : len(examples[index].ids)] = torch.tensor(examples[index].ids)
        for layer, states in computed.of(chosen, ids.to(device)).items():
            for row, index in enumerate(chosen):
                own = states[row, : len(examples[index].ids)].to("cpu", _STORED)
                found.setdefault(layer, {})[index] = own.clone()
    return {str(layer): torch.cat([rows[at] for at in range(len(examples))]) for layer, rows in found.items()}


def _write(file: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    part = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        save_file(dict(tensors), part)
        part.replace(file)
    except BaseException as error:
        part.unlink(missing_ok=True)
        if isinstance(error, OSError | KeyboardInterrupt):
            raise
        raise OSError(f"{error}") from error
