"""The target's keys and values for a few rows, and the position table that says what every column holds."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from transformers.cache_utils import Cache, DynamicLayer

from outrider.draft.contract import MAX_NODES
from outrider.errors import ModelError

_FEW_HOLES: Final = 64


class RowLayer(DynamicLayer):
    """Keys and values of one layer in buffers that grow by doubling.

    transformers' own layer copies everything at every step.

    Args:
        capacity: columns to reserve at once.
        static: after the first forward the model gets the whole buffers, whose addresses and shapes stay; spare columns
            are masked.
        window: how far back a sliding layer looks; what no later token can see is dropped by `forget`.
    """

    def __init__(self, capacity: int = 256, *, static: bool = False, window: int | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.capacity = min(capacity, 2 * window) if window else capacity
        self.static = static
        self.window = window
        self.is_sliding = window is not None
        self.start = 0  # columns before it were dropped
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
        if not self.buffers or end - self.start > self.buffers[0].shape[-2]:
            self._grow((key_states, value_states), end - self.start)
        for buffer, states in zip(self.buffers, (key_states, value_states), strict=True):
            buffer[..., self.used - self.start : end - self.start, :] = states
        shown = self.capacity if self.static and self.used else end - self.start
        self.used = end
        self.keys, self.values = (buffer[..., :shown, :] for buffer in self.buffers)
        return self.keys, self.values

    def get_seq_length(self) -> int:
        """Return how many columns are used, dropped ones included."""
        return self.used

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return how many columns the model gets at the next forward, and where they begin."""
        if self.static and self.used:
            return self.capacity, 0
        return self.used - self.start + query_length, self.start

    def _grow(self, like: tuple[torch.Tensor, torch.Tensor], columns: int) -> None:
        if self.static and columns > self.capacity:
            raise ModelError(f"a static cache of {self.capacity} columns can't hold {columns}")
        self.capacity, held = max(self.capacity, 2 * columns if self.buffers else columns), self.used - self.start
        with torch.inference_mode(False):  # buffers that are made inside it could not be written outside
            grown = [_zeros(states, self.capacity) for states in like]
        for old, new in zip(self.buffers, grown, strict=False):
            new[..., :held, :] = old[..., :held, :]
        self.buffers = grown

    def cut(self, end: int) -> None:
        """Say that `end` columns are used."""
        self.used = end
        self.keys, self.values = (buffer[..., : end - self.start, :] for buffer in self.buffers)

    def forget(self) -> None:
        """Drop what no later token can see, when it is as much as a window: what is left is copied then."""
        if self.window is None or self.used - self.start < 2 * self.window:
            return
        first = self.used - self.window
        for buffer in self.buffers:
            buffer[..., : self.window, :] = buffer[..., first - self.start : self.used - self.start, :].clone()
        self.start = first
        self.cut(self.used)

    def reaches(self, length: int) -> bool:
        """Say whether a token at this position would find all that it looks at."""
        return self.start == 0 or (self.window is not None and self.start <= length - self.window + 1)

    def move(self, columns: torch.Tensor, start: int) -> None:
        """Copy `columns` `[rows, count]` to the columns from `start` on."""
        columns, start = columns - self.start, start - self.start
        for buffer in self.buffers:
            index = columns[:, None, :, None].expand(-1, buffer.shape[1], -1, buffer.shape[-1])
            buffer[..., start : start + columns.shape[1], :] = buffer.gather(2, index)

    def select(self, rows: torch.Tensor) -> None:
        """Keep these rows only."""
        self.buffers = [buffer.index_select(0, rows) for buffer in self.buffers]
        self.cut(self.used)


def _zeros(like: torch.Tensor, columns: int) -> torch.Tensor:
    return torch.zeros((*like.shape[:-2], columns, like.shape[-1]), dtype=like.dtype, device=like.device)


def _layers(capacity: int, *, static: bool, windows: Sequence[int | None]) -> Callable[[], RowLayer]:
    """Return what makes the layers of a cache, one after another.

    A model that makes more of them than its config names has none that slides. Nothing here holds the cache, which would then
    live until the cycle is found.
    """
    made: list[RowLayer] = []

    def make() -> RowLayer:
        extra = len(made) >= len(windows)
        made.append(RowLayer(capacity, static=static, window=None if extra else windows[len(made)]))
        for layer in made if extra else ():
            layer.window, layer.is_sliding = None, False
        return made[-1]

    return make


class RowCache:
    """The cache of a few rows: transformers' `Cache` of `RowLayer`s, and its position table.

    Args:
        rows: number of rows.
        capacity: columns to reserve at once.
        device: where the target takes its input.
        wanted: layers whose hidden states the rows' forwards return.
        shared: layers whose keys and values are copied for drafters.
        static: see `RowLayer`.
        windows: every layer's, None for one that looks at everything; empty where all columns are kept. Only a single row
            drops any, since rows of different lengths look at different columns.

    `positions` is `[rows, columns]` int64: the logical position that a column holds, or -1 for a hole. `lengths` says how many
    committed ids every row holds.
    """

    def __init__(
        self,
        rows: int,
        capacity: int,
        device: torch.device,
        wanted: frozenset[int] = frozenset(),
        shared: frozenset[int] = frozenset(),
        *,
        static: bool = False,
        windows: Sequence[int | None] = (),
    ) -> None:
        self.windows = windows if rows == 1 and not static else ()
        make = _layers(capacity, static=static, windows=self.windows)
        self.layers = Cache(layer_class_to_replicate=make)  # type: ignore[arg-type]
        self.positions = torch.empty(rows, 0, dtype=torch.long, device=device)
        self.lengths = [0] * rows
        self.solid = True  # no holes, in any row
        self.capacity = capacity
        self.static = static
        self.wanted, self.shared = wanted, shared

    def __len__(self) -> int:
        return self.positions.shape[1]

    def forget(self) -> None:
        """Drop what no later token can see, in sliding layers; all columns must be committed."""
        for layer in self.layers.layers if self.windows else ():
            layer.forget()  # type: ignore[union-attr]

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
        self.forget()

    def truncate(self, length: int) -> bool:
        """Forget what the only row of a cache without holes holds beyond `length` ids; false where a window is gone."""
        if not all(layer.reaches(length) for layer in self.layers.layers):  # type: ignore[union-attr]
            return False
        self._cut(length)
        self.lengths = [length]
        return True

    def shorten(self, lengths: Sequence[int]) -> bool:
        """Forget what each row holds beyond a length; false where a window is gone."""
        if len(lengths) == 1 and self.solid:
            return self.truncate(lengths[0])
        if any(length < held for length, held in zip(lengths, self.lengths, strict=True)):
            beyond = self.positions >= torch.tensor(lengths, device=self.positions.device)[:, None]
            self.positions = self.positions.masked_fill(beyond, -1)
            self.lengths = list(lengths)
            self.compact()
        return True

    def extend(self, contents: Sequence[tuple[torch.Tensor, torch.Tensor]], counts: Sequence[int]) -> None:
        """Take over keys and values that were computed elsewhere, for the rows' next ids.

        Args:
            contents: for every layer `[rows, heads, longest, width]`, shorter rows padded on the left.
            counts: how many ids each row gets, at least one in some row.
        """
        for index, (keys, values) in enumerate(contents):
            self.layers.update(keys, values, index)
        longest = max(counts)
        where = [
            [-1] * (longest - count) + list(range(length, length + count))
            for length, count in zip(self.lengths, counts, strict=True)
        ]
        self.append(torch.tensor(where, device=self.positions.device))
        self.lengths = [length + count for length, count in zip(self.lengths, counts, strict=True)]
        self.solid = self.solid and min(counts) == longest
        self.forget()

    def adopt(self, contents: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Take over the keys and values of a single row, a pair a layer."""
        length = contents[0][0].shape[-2] if contents else 0
        for index, (keys, values) in enumerate(contents):
            self.layers.update(keys, values, index)
        self.positions = torch.arange(length, device=self.positions.device)[None]
        self.lengths = [length]

    def contents(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return every layer's keys and values `[rows, heads, columns, width]`, without what was dropped."""
        rows: Any = self.layers.layers
        return [tuple(buffer[..., : layer.used - layer.start, :] for buffer in layer.buffers) for layer in rows]

    def copied(self, row: int, columns: Sequence[int]) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
        """Return a row's keys and values of some columns, `[heads, columns, width]` for every shared layer."""
        layers: Any = self.layers.layers
        found = {}
        for index in sorted(self.shared):
            layer = layers[index]
            where = torch.tensor(columns, device=layer.device) - layer.start
            keys, values = (buffer[row].index_select(1, where) for buffer in layer.buffers)
            found[index] = (keys, values)
        return found

    def add_holes(self, count: int) -> None:
        """Add columns that hold nothing to every row."""
        for index, (keys, values) in enumerate(self.contents()):
            self.layers.update(_zeros(keys, count), _zeros(values, count), index)
        self.append(self.positions.new_full((len(self.lengths), count), -1))
        self.solid = False

    def compact(self) -> None:
        """Move every row's tokens to the front, so that only the shorter rows have holes, and at the end."""
        longest = min(max(self.lengths), len(self))
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
