"""What an EAGLE layer has read: pairs of the target's features and tokens, and guesses below them.

A pair is the feature at a position with the token that follows there (EAGLE, Li et al. 2024, arXiv:2401.15077, section 3.2).
Only pairs of the target's own features stay in the cache; everything that was guessed is dropped before the next is read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from outrider import Branches, PositionTable, RowCache


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of one row that are new.

    Args:
        start: position of the first feature.
        features: `[pairs, width]` of the target, as the checkpoint wants them.
        tokens: the token after each.
    """

    start: int
    features: torch.Tensor
    tokens: tuple[int, ...]


class Layer(Protocol):
    """What the reader needs of a network."""

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """Return embeddings `[..., width]` of target ids."""
        ...

    def fuse(self, features: torch.Tensor) -> torch.Tensor:
        """Make of the target's features `[..., features]` what the layer reads, `[..., hidden]`."""
        ...

    def run(
        self, embeds: torch.Tensor, hidden: torch.Tensor, table: PositionTable, cache: RowCache
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the layers on new columns.

        Returns:
            `[rows, count, hidden]`, what is fed back, and what logits are made of.
        """
        ...

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Return logits `[..., draft vocab]`."""
        ...


class EagleGroup:
    """Rows in one cache, read and guessed in one forward for all.

    Args:
        layer: the network.
        rows: how many.
        cache: empty, of so many rows.
        id_map: `[draft vocab]` int64, the target's ids of the draft's tokens; None where they are the same.
    """

    def __init__(self, layer: Layer, rows: int, cache: RowCache, id_map: torch.Tensor | None) -> None:
        self._layer, self._cache, self._id_map = layer, cache, id_map
        self._rows, self._device = rows, cache.positions.device
        self._branches = Branches(rows, self._device)
        self._fed: torch.Tensor | None = None

    @property
    def rows(self) -> int:
        """See `Group`."""
        return self._rows

    def read(self, items: Sequence[Pairs | None]) -> torch.Tensor:
        """See `Group`; every row that is asked has at least one new pair."""
        self._drop()
        starts = [held if one is None else one.start for one, held in zip(items, self._cache.lengths, strict=True)]
        self._cache.shorten([min(start, held) for start, held in zip(starts, self._cache.lengths, strict=True)])
        # Where the target's cache held a beginning before, there are no pairs of it.
        self._cache.solid = self._cache.solid and starts == self._cache.lengths
        self._cache.lengths = starts
        counts = [0 if one is None else len(one.tokens) for one in items]
        longest = max(counts)
        like = next(one.features for one in items if one is not None)
        features = like.new_zeros(self._rows, longest, like.shape[1])
        tokens = torch.zeros(self._rows, longest, dtype=torch.long)
        where = torch.full((self._rows, longest), -1)
        for row, one in enumerate(items):
            if one is not None:
                features[row, longest - counts[row] :] = one.features
                tokens[row, longest - counts[row] :] = torch.tensor(one.tokens)
                where[row, longest - counts[row] :] = torch.arange(one.start, one.start + counts[row])
        self._cache.solid = self._cache.solid and min(counts) == longest
        hidden = self._layer.fuse(features)
        fed, states = self._run(tokens.to(self._device), hidden, where.to(self._device), None)
        self._cache.lengths = [start + count for start, count in zip(starts, counts, strict=True)]
        self._fed = fed[:, -1:]
        return self._layer.logits(states[:, -1])

    def guess(self, tokens: torch.Tensor, parents: torch.Tensor | None) -> torch.Tensor:
        """See `Group`; the layer's own output at a guess's parent takes the place of the target's feature."""
        assert self._fed is not None  # noqa: S101  something was read before
        parents, sees = self._branches.grow(tokens, parents)
        below = (parents + 1)[..., None].expand(-1, -1, self._fed.shape[2])  # the first is that of the text's end
        hidden = self._fed.gather(1, below)
        lengths = torch.tensor(self._cache.lengths, device=self._device)[:, None]
        ids = tokens if self._id_map is None else self._id_map[tokens]
        fed, states = self._run(ids, hidden, lengths + sees.sum(-1) - 1, sees)
        self._fed = torch.cat([self._fed, fed], 1)
        return self._layer.logits(states)

    def forget(self, at: int, length: int) -> None:
        """See `Group`."""
        self._drop()
        lengths = self._cache.lengths
        self._cache.shorten([min(held, length) if row == at else held for row, held in enumerate(lengths)])

    def select(self, kept: Sequence[int]) -> None:
        """See `Group`."""
        self._drop()
        self._cache.select(kept)
        self._rows = len(kept)
        self._branches = Branches(self._rows, self._device)

    def _drop(self) -> None:
        self._cache.keep(len(self._cache) - len(self._branches), [[]] * self._rows)
        self._branches, self._fed = Branches(self._rows, self._device), None

    def _run(
        self, ids: torch.Tensor, hidden: torch.Tensor, positions: torch.Tensor, sees: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        table = PositionTable.of(self._cache.positions, positions, sees)
        found = self._layer.run(self._layer.embed(ids), hidden, table, self._cache)
        self._cache.append(positions)
        return found
