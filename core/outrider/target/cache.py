"""The target's keys and values for a few rows, and the position table that says what every column holds."""

from collections.abc import Sequence
from typing import Any, Final

import torch
from transformers.cache_utils import Cache, DynamicLayer

from outrider.draft.contract import MAX_NODES
from outrider.errors import ModelError

_FEW_HOLES: Final = 64


class RowLayer(DynamicLayer):
    """Keys and values of one layer in buffers that grow by doubling.

    transformers' own layer copies everything at every step. All columns are kept, for sliding layers too, so that any
    rollback is possible; the mask applies the window.

    Args:
        capacity: columns to reserve at once.
        static: after the first forward the model gets the whole buffers, whose addresses and shapes stay; spare columns
            are masked.
    """

    def __init__(self, capacity: int = 256, *, static: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.capacity = capacity
        self.static = static
        self.used = 0
        self.buffers: list[torch.Tensor] = []

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        *args: Any,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append columns; returns views of all keys and values `[rows, heads, columns, width]`."""
        end = self.used + key_states.shape[-2]
        if not self.is_initialized:
            self.device, self.is_initialized = key_states.device, True
        if not self.buffers or end > self.buffers[0].shape[-2]:
            self._grow((key_states, value_states), end)
        for buffer, states in zip(self.buffers, (key_states, value_states), strict=True):
            buffer[..., self.used : end, :] = states
        shown = self.capacity if self.static and self.used else end
        self.used = end
        self.keys, self.values = (buffer[..., :shown, :] for buffer in self.buffers)
        return self.keys, self.values

    def get_seq_length(self) -> int:
        """Return how many columns are used."""
        return self.used

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return how many columns the model gets at the next forward, and where they begin."""
        return self.capacity if self.static and self.used else self.used + query_length, 0

    def _grow(self, like: tuple[torch.Tensor, torch.Tensor], end: int) -> None:
        if self.static and end > self.capacity:
            raise ModelError(f"a static cache of {self.capacity} columns can't hold {end}")
        self.capacity = max(self.capacity, 2 * end if self.buffers else end)
        grown = [states.new_zeros(*states.shape[:-2], self.capacity, states.shape[-1]) for states in like]
        for old, new in zip(self.buffers, grown, strict=False):
            new[..., : self.used, :] = old[..., : self.used, :]
        self.buffers = grown

    def cut(self, end: int) -> None:
        """Say that `end` columns are used."""
        self.used = end
        self.keys, self.values = (buffer[..., :end, :] for buffer in self.buffers)

    def move(self, columns: torch.Tensor, start: int) -> None:
        """Copy `columns` `[rows, count]` to the columns from `start` on."""
        for buffer in self.buffers:
            index = columns[:, None, :, None].expand(-1, buffer.shape[1], -1, buffer.shape[-1])
            buffer[..., start : start + columns.shape[1], :] = buffer.gather(2, index)

    def select(self, rows: torch.Tensor) -> None:
        """Keep these rows only."""
        self.buffers = [buffer.index_select(0, rows) for buffer in self.buffers]
        self.cut(self.used)


class RowCache:
    """The cache of a few rows: transformers' `Cache` of `RowLayer`s, and its position table.

    Args:
        rows: number of rows.
        capacity: columns to reserve at once.
        device: where the target takes its input.
        wanted: layers whose hidden states the rows' forwards return.
        static: see `RowLayer`.

    `positions` is `[rows, columns]` int64: the logical position that a column holds, or -1 for a hole. `lengths` says how many
    committed ids every row holds.
    """

    def __init__(
        self,
        rows: int,
        capacity: int,
        device: torch.device,
        wanted: frozenset[int] = frozenset(),
        *,
        static: bool = False,
    ) -> None:
        self.layers = Cache(layer_class_to_replicate=lambda: RowLayer(capacity, static=static))  # type: ignore[arg-type]
        self.positions = torch.empty(rows, 0, dtype=torch.long, device=device)
        self.lengths = [0] * rows
        self.solid = True  # no holes, in any row
        self.capacity = capacity
        self.static = static
        self.wanted = wanted

    def __len__(self) -> int:
        return self.positions.shape[1]

    def append(self, positions: torch.Tensor) -> None:
        """Record the columns `[rows, count]` that a forward has just added."""
        self.positions = torch.cat([self.positions, positions], 1)

    def keep(self, start: int, paths: Sequence[Sequence[int]]) -> None:
        """Keep all columns before `start` and, of those that follow, each row's `paths` (offsets from `start`, rising).

        Shorter rows get holes. Nothing moves where every row keeps a prefix of what follows.
        """
        longest = max(map(len, paths))
        end = start + longest
        ragged = any(len(path) < longest for path in paths)
        if any(offset != index for path in paths for index, offset in enumerate(path)):
            padded = [[*path, *range(len(path), longest)] for path in paths]
            self._move(torch.tensor(padded, device=self.positions.device) + start, start)
        self._cut(end)
        self.lengths = [length + len(path) for length, path in zip(self.lengths, paths, strict=True)]
        if ragged:
            lengths = torch.tensor([len(path) for path in paths], device=self.positions.device)
            holes = torch.arange(longest, device=self.positions.device) >= lengths[:, None]
            self.positions[:, start:].masked_fill_(holes, -1)
            self.solid = False
        spare = len(self) - max(self.lengths)
        full = self.static and len(self) + MAX_NODES + 1 > self.capacity
        if spare > max(_FEW_HOLES, len(self) // 4) or (spare and full):
            self.compact()

    def truncate(self, length: int) -> None:
        """Forget what the only row of a cache without holes holds beyond `length` ids."""
        self._cut(length)
        self.lengths = [length]

    def adopt(self, contents: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Take over the keys and values of a single row, a pair a layer."""
        length = contents[0][0].shape[-2] if contents else 0
        for index, (keys, values) in enumerate(contents):
            self.layers.update(keys, values, index)
        self.positions = torch.arange(length, device=self.positions.device)[None]
        self.lengths = [length]

    def contents(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return every layer's keys and values `[rows, heads, columns, width]`."""
        end = len(self)
        return [tuple(buffer[..., :end, :] for buffer in layer.buffers) for layer in self.layers.layers]  # type: ignore[union-attr]

    def compact(self) -> None:
        """Move every row's tokens to the front, so that only the shorter rows have holes, and at the end."""
        longest = max(self.lengths)
        order = (self.positions < 0).to(torch.int8).argsort(dim=1, stable=True)[:, :longest]
        self._move(order, 0)
        self._cut(longest)
        self.solid = min(self.lengths) == longest

    def select(self, rows: Sequence[int]) -> None:
        """Keep these rows only."""
        index = torch.tensor(rows, device=self.positions.device)
        for layer in self.layers.layers:
            layer.select(index.to(layer.device))  # type: ignore[union-attr]
        self.positions = self.positions[index]
        self.lengths = [self.lengths[row] for row in rows]
        if not self.solid:
            self.compact()

    def _move(self, columns: torch.Tensor, start: int) -> None:
        for layer in self.layers.layers:
            layer.move(columns.to(layer.device), start)  # type: ignore[union-attr]
        self.positions[:, start : start + columns.shape[1]] = self.positions.gather(1, columns)

    def _cut(self, end: int) -> None:
        for layer in self.layers.layers:
            layer.cut(end)  # type: ignore[union-attr]
        self.positions = self.positions[:, :end]
