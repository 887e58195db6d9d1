"""The target's keys and values for a few rows, and the position table that says what every column holds."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer


class RowLayer(DynamicLayer):
    """Keys and values of one layer in buffers that grow by doubling.

    transformers' own layer copies everything at every step. All columns are kept, for sliding layers too, so that any
    rollback is possible; the mask applies the window.
    """

    def __init__(self, capacity: int = 256) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._capacity = capacity
        self._buffers: list[torch.Tensor] = []

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        *args: Any,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append columns; returns views of all keys and values `[rows, heads, columns, width]`."""
        used = self.get_seq_length()
        end = used + key_states.shape[-2]
        if not self.is_initialized:
            self.device, self.is_initialized = key_states.device, True
        if not self._buffers or end > self._buffers[0].shape[-2]:
            self._grow((key_states, value_states), used, end)
        for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[..., used:end, :] = states
        self.keys, self.values = (buffer[..., :end, :] for buffer in self._buffers)
        return self.keys, self.values

    def _grow(self, like: tuple[torch.Tensor, torch.Tensor], used: int, end: int) -> None:
        self._capacity = max(self._capacity, 2 * end if self._buffers else end)
        grown = [states.new_empty(*states.shape[:-2], self._capacity, states.shape[-1]) for states in like]
        for old, new in zip(self._buffers, grown, strict=False):
            new[..., :used, :] = old[..., :used, :]
        self._buffers = grown

    def move(self, columns: torch.Tensor, start: int) -> None:
        """Copy `columns` `[rows, count]` to the columns from `start` on."""
        for buffer in self._buffers:
            index = columns[:, None, :, None].expand(-1, buffer.shape[1], -1, buffer.shape[-1])
            buffer[..., start : start + columns.shape[1], :] = buffer.gather(2, index)


class RowCache:
    """The cache of a few rows: transformers' `Cache` of `RowLayer`s, and its position table.

    Args:
        rows: number of rows.
        capacity: columns to reserve at once.
        device: where the target takes its input.

    `positions` is `[rows, columns]` int64: the logical position that a column holds, or -1 for a hole.
    """

    def __init__(self, rows: int, capacity: int, device: torch.device) -> None:
        self.layers = Cache(layer_class_to_replicate=lambda: RowLayer(capacity))  # type: ignore[arg-type]
        self.positions = torch.empty(rows, 0, dtype=torch.long, device=device)
        self.solid = True  # no holes, in any row

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
            columns = torch.tensor(padded, device=self.positions.device) + start
            for layer in self.layers.layers:
                layer.move(columns, start)  # type: ignore[union-attr]
            self.positions[:, start:end] = self.positions.gather(1, columns)
        self.layers.crop(end - len(self))
        self.positions = self.positions[:, :end]
        if ragged:
            lengths = torch.tensor([len(path) for path in paths], device=self.positions.device)
            holes = torch.arange(longest, device=self.positions.device) >= lengths[:, None]
            self.positions[:, start:].masked_fill_(holes, -1)
            self.solid = False
