"""Reading Medusa's heads from the layouts in which they are published; numbers and widths come from the tensors."""

import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from outrider import InputError, TargetInfo, heads_folder, not_heads_of
from outrider_drafters.head_keys import Keys
from outrider_drafters.medusa.heads import Heads, HeadsShape
from outrider_drafters.medusa.names import FASTER, KEYS, UNUSED, VLLM, Layout
from outrider_drafters.tensors import (
    StoredTensor,
    is_file,
    list_tensors,
    listed,
    read_json,
    read_tensors,
    weight_file,
)

FILES: Final = (
    "medusa_lm_head.safetensors",
    "medusa_lm_head.pt",
    "model.safetensors.index.json",
    "model.safetensors",
    "pytorch_model.bin.index.json",
    "pytorch_model.bin",
)
_MAP: Final = "token_map"
_IN_TARGET: Final = "medusa_head."
_IN_VLLM: Final = "medusa_heads."
_ABOUT_HEADS: Final = "medusa_"


def read_accuracies(folder: str | Path) -> tuple[tuple[float, ...], ...] | None:
    """Return how often each rank of each head in a folder is right, where that was measured.

    Raises:
        InputError: the folder tells something else.
    """
    found = Found.of(Path(folder))
    return None if found is None else found.accuracies


def read_heads(folder: str | Path, target: TargetInfo) -> tuple[Heads, torch.Tensor | None]:
    """Read the heads in a folder, strictly: every tensor has its place, and every place its tensor.

    Returns:
        The heads, on the CPU in the files' dtype, and the map `[draft vocab]` of their ids to the target's, or None.

    Raises:
        InputError: the folder holds no heads, other heads than the target's, or something besides.
    """
    folder = heads_folder(folder)
    found = Found.of(folder)
    if found is None:
        raise not_heads_of("medusa", folder)
    found.check_names()
    shape = found.shape(target.hidden_size, target.vocab_size)
    output = None
    tensors = read_tensors(folder, FILES, set(found.stored.values()) - {found.stored.get(_MAP)})
    id_map = found.token_map(target.vocab_size)
    if not shape.outputs:
        if target.parts is None:
            raise InputError(f"drafter 'medusa': the heads in {folder} need the target's own output rows")
        output = target.parts.head if id_map is None else target.parts.head.narrow(id_map)
    with torch.device("meta"):
        heads = Heads(shape, output)
    weights = {own: tensors[found.stored[name]] for name, own in found.renamed(shape)}
    heads.load_state_dict(weights, strict=True, assign=True)
    return heads.requires_grad_(False).eval(), id_map


@dataclass(frozen=True, slots=True)
class Found:
    """What a folder says of its heads before their values are read.

    Args:
        folder: which.
        layout: how they are named.
        tensors: shapes by name, prefixes left out.
        stored: the names in the files.
        config: of the heads, or of the model that they are in.
    """

    folder: Path
    layout: Layout
    tensors: Mapping[str, StoredTensor]
    stored: Mapping[str, str]
    config: Keys

    @classmethod
    def of(cls, folder: Path) -> "Found | None":
        """Look into a folder; None where it holds no heads of this kind."""
        if weight_file(folder, FILES) is None:
            return None
        held = list_tensors(folder, FILES)
        inside = any(name.startswith(_IN_TARGET) for name in held)
        prefix = _IN_TARGET if inside else _IN_VLLM
        stored = {name.removeprefix(prefix): name for name in held if name.startswith(prefix) or not inside}
        layout = VLLM if any(name.startswith(("blocks.", "lm_heads.")) for name in stored) else FASTER
        path = folder / "config.json"
        config = Keys(path, read_json(path) if is_file(path) else {})
        found = cls(folder, layout, {name: held[stored[name]] for name in stored}, stored, config)
        return found if found.heads else None

    @property
    def file(self) -> Path:
        """Return the file that names what there is."""
        return weight_file(self.folder, FILES) or self.folder

    @property
    def name(self) -> str:
        """Return whose layout it is."""
        if self.layout is VLLM:
            return "vLLM"
        if self.in_model:
            return "Medusa-2, in the target's files"
        return "FasterDecoding" if self.outputs else "FasterDecoding, version 2"

    @property
    def in_model(self) -> bool:
        """Whether they lie in the target's own files, and the config is the target's."""
        return any(name.startswith(_IN_TARGET) for name in self.stored.values())

    @property
    def widths(self) -> tuple[int, int | None, int | None]:
        """Return the hidden width, the target's vocabulary and the draft's, as far as shapes and config tell them."""
        own = next((one.shape for name, one in self.tensors.items() if self.layout.output.fullmatch(name)), None)
        block = next((one.shape for name, one in self.tensors.items() if self.layout.block.fullmatch(name)), own)
        mapped, said = self.tensors.get(_MAP), self.config.values.get("vocab_size")
        draft = next(iter(mapped.shape), 0) if mapped is not None else own[0] if own else None
        whole = said if type(said) is int else None if mapped is not None else draft
        return (block or (0,))[-1], whole, draft

    @property
    def heads(self) -> int:
        """Return how many heads there are."""
        return 1 + max(self._numbers(1, self.layout.block, self.layout.output), default=-1)

    @property
    def layers(self) -> int:
        """Return how many blocks a head has."""
        return 1 + max(self._numbers(2, self.layout.block), default=-1)

    @property
    def bias(self) -> bool:
        """Say whether blocks have biases; in the first layout all do."""
        named = (self.layout.block.fullmatch(name) for name in self.tensors)
        return self.layout is FASTER or any(match is not None and match[3] == "bias" for match in named)

    @property
    def outputs(self) -> int:
        """Return how many output layers there are to be."""
        own = self._numbers(1, self.layout.output)
        shared = self.layout is VLLM and own == {0} and self.config.values.get("original_lm_head") is True
        return 1 if shared else self.heads if own else 0

    @property
    def accuracies(self) -> tuple[tuple[float, ...], ...] | None:
        """Return how often each rank of each head is right, where the config tells.

        Raises:
            InputError: it tells something else.
        """
        told = self.config.values.get("rank_accuracies")
        if told is None:
            return None
        rows: list[Any] = told if isinstance(told, list) and len(told) == self.heads else [None]
        for row in rows:
            good = isinstance(row, list) and row and all(type(one) in (int, float) and 0 <= one <= 1 for one in row)
            if not good or sorted(row, reverse=True) != row:
                raise self.config.wrong("rank_accuracies", f"{self.heads} lists of falling shares from 0 to 1")
        return tuple(tuple(float(one) for one in row) for row in rows)

    def check_names(self) -> None:
        """Check that nothing is missing and nothing is left over, and that the config says the same.

        Raises:
            InputError: it is not so.
        """
        expected = {name for name, _ in self.renamed(self._counts(0, 0))} | ({_MAP} & self.tensors.keys())
        missing, more = expected - self.tensors.keys(), self.tensors.keys() - expected
        if missing or more:
            parts = [f"missing {listed(missing)}"] * bool(missing) + [f"unexpected {listed(more)}"] * bool(more)
            what = f"{self.heads} heads of {self.layers} blocks"
            raise InputError(f"{self.file} does not hold {what}: {', '.join(parts)}")
        self._check_keys()
        for key, found in self._facts():
            said = self.config.values.get(key)
            if said is None or said == found or (key == "version" and str(said) == found):
                continue
            text = f"{self.config.path} says {key} = {said!r}, and the tensors say {found!r}"
            if key in ("medusa_num_heads", "num_heads") and type(said) is int and said < self.heads:
                warnings.warn(f"{text}, which counts", stacklevel=2)  # published configs are wrong here
            else:
                raise InputError(text)

    def shape(self, width: int, whole: int) -> HeadsShape:
        """Check all tensors' shapes, and return what the heads are made of.

        Args:
            width: of the target's hidden states.
            whole: the target's vocabulary.

        Raises:
            InputError: a tensor is of another shape, or the vocabulary another.
        """
        vocab, mapped = whole, self.tensors.get(_MAP)
        if mapped is not None:
            if len(mapped.shape) != 1:
                raise InputError(f"{mapped.file}: '{_MAP}' has shape {list(mapped.shape)}, and is a list of ids")
            vocab = mapped.shape[0]
        for name, stored in self.tensors.items():
            block = self.layout.block.fullmatch(name)
            if name == _MAP:
                continue
            if not stored.floating:
                raise InputError(
                    f"{stored.file}: '{self.stored[name]}' is {stored.dtype}, and a weight must be float16, bfloat16, float32 "
                    f"or float64"
                )
            wanted = (vocab, width) if block is None else (width,) if block[3] == "bias" else (width, width)
            if stored.shape == wanted:
                continue
            text = f"{stored.file}: '{self.stored[name]}' has shape {list(stored.shape)}, and must have {list(wanted)}"
            if block is None and mapped is None and stored.shape[1:] == (width,) and stored.shape[0] < whole:
                raise InputError(f"{text}; a smaller vocabulary needs a '{_MAP}'")
            raise InputError(f"{text}: the target's hidden width is {width}, its vocabulary {whole}")
        return self._counts(width, vocab)

    def token_map(self, whole: int | None) -> torch.Tensor | None:
        """Read the map `[draft vocab]` of draft ids to the target's, of which there are `whole`; None where there is none.

        Raises:
            InputError: it holds no ids, ids beyond the target's, or one twice.
        """
        if _MAP not in self.tensors:
            return None
        name = self.stored[_MAP]
        found, what = read_tensors(self.folder, FILES, {name})[name], f"{self.tensors[_MAP].file}: '{_MAP}'"
        if found.is_floating_point() or found.dtype == torch.bool:
            raise InputError(f"{what} is {found.dtype}, and holds ids")
        ids = found.long()
        if not len(ids) or int(ids.min()) < 0 or (whole is not None and int(ids.max()) >= whole):
            raise InputError(f"{what} holds ids that are not among the target's {whole or 'tokens'}")
        if len(set(ids.tolist())) < len(ids):
            raise InputError(f"{what} holds an id twice")
        return ids

    def renamed(self, shape: HeadsShape) -> Iterator[tuple[str, str]]:
        """Yield every tensor's name here and in `Heads`."""
        kinds = ("weight", "bias") if shape.bias else ("weight",)
        for head in range(shape.heads):
            for layer in range(shape.layers):
                for kind in kinds:
                    name = self.layout.names.format(head=head, layer=layer, kind=kind)
                    yield name, VLLM.names.format(head=head, layer=layer, kind=kind)
        for head in range(shape.outputs):
            yield self.layout.output_names.format(head=head, layers=shape.layers), f"lm_heads.{head}.weight"

    def _counts(self, width: int, vocab: int) -> HeadsShape:
        return HeadsShape(self.heads, self.layers, width, self.bias, self.outputs, vocab)

    def _check_keys(self) -> None:
        """Refuse keys of the config that nobody here knows: of a whole model's, those that are about heads.

        Raises:
            InputError: with the keys.
        """
        values = self.config.values
        if self.in_model:
            values = {key: one for key, one in values.items() if key.startswith(_ABOUT_HEADS)}
        Keys(self.config.path, values).check(KEYS, UNUSED)

    def _facts(self) -> Iterator[tuple[str, Any]]:
        """Yield what a config may say of the heads, and what the tensors say."""
        yield "medusa_num_heads", self.heads
        yield "medusa_num_layers", self.layers
        own = next((one for name, one in self.tensors.items() if self.layout.output.fullmatch(name)), None)
        rows = self.tensors.get(_MAP, own)
        if self.layout is FASTER:
            yield "version", "2" if own is None else "1"
            return
        yield "hidden_size", self.widths[0]
        yield "num_heads", self.heads
        yield "num_hidden_layers", self.layers
        yield "medusa_fc_bias", self.bias
        if own is None or self.heads > 1:  # of a single head's output layer both are true
            yield "original_lm_head", own is None or self.outputs < self.heads
        if rows is not None:
            yield "truncated_vocab_size", next(iter(rows.shape), 0)

    def _numbers(self, group: int, *patterns: re.Pattern[str]) -> set[int]:
        matches = (pattern.fullmatch(name) for name in self.tensors for pattern in patterns)
        return {int(match[group]) for match in matches if match is not None}
