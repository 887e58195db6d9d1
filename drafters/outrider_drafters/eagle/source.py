"""A folder of an EAGLE head before it is understood: its layout, its config file, and its tensors' names and shapes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from outrider import InputError
from outrider_drafters.eagle.config import Layout, Method
from outrider_drafters.eagle.names import canonical
from outrider_drafters.head_keys import Keys
from outrider_drafters.tensors import StoredTensor, list_tensors, read_json

CONFIG: Final = "config.json"
WEIGHTS: Final = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_ARCHITECTURE: Final = "LlamaForCausalLMEagle3"
SPECULATORS: Final = ("eagle", "eagle3")


@dataclass(frozen=True, slots=True)
class Source:
    """A folder of a head before it is understood.

    Args:
        folder: which.
        layout: whose way of writing it is.
        top: the whole config file.
        body: what it says of the decoder layers.
        stored: the tensors by their names in the network.
        names: their names in the file by those in the network.
    """

    folder: Path
    layout: Layout
    top: Keys
    body: Keys
    stored: Mapping[str, StoredTensor]
    names: Mapping[str, str]

    def shape(self, name: str, axis: int) -> int | None:
        """Return a dimension of a tensor; None where there is no such tensor or dimension."""
        found = self.stored.get(name)
        return found.shape[axis] if found is not None and len(found.shape) == 2 else None

    @property
    def method(self) -> Method:
        """Which network it is: as its config says, else by the tensors that only one of them has."""
        told = self.top.values.get("speculators_model_type")
        if told in SPECULATORS:
            return "eagle3" if told == "eagle3" else "eagle"
        marks = {"layers.0.hidden_norm.weight", "d2t", "t2d", "norm.weight"} & self.stored.keys()
        named = _ARCHITECTURE in _architectures(self.top) or "draft_vocab_size" in self.top.values
        return "eagle3" if marks or named else "eagle"

    @property
    def is_head(self) -> bool:
        """Whether it is a head of EAGLE at all, be it broken."""
        told = self.top.values.get("speculators_model_type")
        if told is not None or self.layout != "safeailab":
            return told is None or told in SPECULATORS
        return "fc.weight" in self.stored or any(name.startswith("midlayer.") for name in self.names.values())


def open_source(folder: Path) -> Source:
    """Look at a folder's config file and at its tensors' names and shapes.

    Raises:
        InputError: one of them can't be read, or two names mean the same tensor.
    """
    path = folder / CONFIG
    top = Keys(path, read_json(path))
    body, layout = top, _raw_layout(top)
    if "speculators_model_type" in top.values:
        body, layout = top.inner("transformer_layer_config"), "speculators"
    elif top.values.get("model_type") == "eagle" and "model" in top.values:
        body, layout = top.inner("model"), "vllm-eagle"
    stored = list_tensors(folder, WEIGHTS)
    names: dict[str, str] = {}
    for name in stored:
        known = canonical(name, layout)
        if known in names:
            raise InputError(f"{stored[name].file}: {names[known]} and {name} are the same tensor")
        names[known] = name
    return Source(folder, layout, top, body, {known: stored[name] for known, name in names.items()}, names)


def _raw_layout(top: Keys) -> Layout:
    specforge = _ARCHITECTURE in _architectures(top) or "eagle_config" in top.values
    return "specforge" if specforge else "safeailab"


def _architectures(top: Keys) -> list[Any]:
    found = top.values.get("architectures")
    return found if isinstance(found, list) else []
