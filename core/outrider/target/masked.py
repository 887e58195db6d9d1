"""The tier that serves most models: all rows' trees in one forward, under masks built outside."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import torch
from transformers.cache_utils import Cache

from outrider.draft.batch import TreeBatch
from outrider.errors import ModelError
from outrider.target import compat
from outrider.target.attention import MASKED_IMPLEMENTATIONS, PositionTable, build_masks
from outrider.target.cache import RowCache
from outrider.target.call import Scored
from outrider.target.tier import KeysValues, Opening, Piece, Tier


class MaskedTier(Tier[RowCache]):
    """One forward a step for all rows and nodes, whatever their lengths."""

    name: ClassVar[str] = "tree"
    how: ClassVar[str] = "one forward for all nodes, under a tree mask"

    def refusal(self) -> str:
        """See `Tier`."""
        config: Any = self.caller.model.config
        if config.is_encoder_decoder:
            return "its decoder's masks are its own"
        if not self.caller.names.positions:
            return "its forward takes no position_ids"
        attention = config.get_text_config()._attn_implementation
        if attention not in MASKED_IMPLEMENTATIONS:
            names = " or ".join(map(repr, MASKED_IMPLEMENTATIONS))
            return f"its attention '{attention}' takes no tree mask; load it with attn_implementation={names}"
        return ""

    def open(self, rows: int, want: Opening) -> RowCache:
        """See `Tier`."""
        windows = () if want.whole else compat.windows(self.caller.model)
        return RowCache(rows, want.capacity, self.device, want.wanted, want.shared, static=want.static, windows=windows)

    def lengths(self, cache: RowCache) -> list[int]:
        """See `Tier`."""
        return cache.lengths

    def columns(self, cache: RowCache) -> int:
        """See `Tier`."""
        return len(cache)

    def read(self, cache: RowCache, prompts: Sequence[Sequence[int]], chunk: int) -> Iterator[list[Piece]]:
        """See `Tier`; shorter rows are padded on the left, and the padding's columns are holes."""
        longest = max(map(len, prompts))
        pads = [longest - len(prompt) for prompt in prompts]
        ids = [[0] * pad + list(prompt) for pad, prompt in zip(pads, prompts, strict=True)]
        starts = zip(pads, cache.lengths, strict=True)
        positions = [[-1] * pad + list(range(start, start + longest - pad)) for pad, start in starts]
        cache.solid = cache.solid and not any(pads)
        for start in range(0, longest, chunk):
            part = slice(start, min(start + chunk, longest))
            fed, where = (torch.tensor([row[part] for row in rows], device=self.device) for rows in (ids, positions))
            scored = self._feed(cache, fed, where, last_only=True)
            cache.append(where)
            found = []
            for row, pad in enumerate(pads):
                tokens = part.stop - max(part.start, pad)
                if tokens > 0:
                    hidden = {layer: states[row : row + 1, -tokens:] for layer, states in scored.hidden.items()}
                    shared = cache.copied(row, range(len(cache) - tokens, len(cache)))
                    own = Scored(scored.logits[row : row + 1], hidden)
                    found.append(Piece(row, cache.lengths[row], tokens, own, shared))
                    cache.lengths[row] += tokens
            cache.forget()
            yield found

    def forward(self, cache: RowCache, roots: Sequence[int], trees: TreeBatch) -> Scored:
        """See `Tier`."""
        trees = trees.to(self.device)
        start = torch.tensor(cache.lengths, device=self.device)[:, None]
        ids = torch.cat([torch.tensor(roots, device=self.device)[:, None], trees.tokens], 1)
        ancestors = trees.ancestors() if trees.width else None
        positions = start if ancestors is None else start + ancestors.sum(-1) - 1
        scored = self._feed(cache, ids, positions, ancestors)
        cache.append(positions)
        return scored

    def grow(self, cache: RowCache, ids: torch.Tensor, sees: torch.Tensor | None) -> Scored:
        """Score nodes below others that are in the cache and not committed; for trees that a model of one's own reads.

        Args:
            cache: all committed ids are read; after them come the nodes of earlier calls.
            ids: `[rows, count]` int64.
            sees: `[rows, count, earlier + count]` bool, which of the earlier nodes and of these every node sees: its ancestors
                and itself. None where it is all that come before it, in a cache without holes.
        """
        start = torch.tensor(cache.lengths, device=self.device)[:, None]
        if sees is None:
            first = len(cache) - cache.lengths[0]
            positions = start + torch.arange(first, first + ids.shape[1], device=self.device)
        else:
            positions = start + sees.sum(-1) - 1
        scored = self._feed(cache, ids, positions, sees)
        cache.append(positions)
        return scored

    def shared(self, cache: RowCache, width: int, paths: Sequence[Sequence[int]]) -> list[KeysValues]:
        """See `Tier`."""
        root = len(cache) - 1 - width
        return [cache.copied(row, [root, *[root + 1 + node for node in path]]) for row, path in enumerate(paths)]

    def commit(self, cache: RowCache, width: int, paths: Sequence[Sequence[int]]) -> None:
        """See `Tier`."""
        cache.keep(len(cache) - 1 - width, [[0, *[node + 1 for node in path]] for path in paths])

    def rollback(self, cache: RowCache, width: int) -> None:
        """See `Tier`."""
        cache.keep(len(cache) - 1 - width, [[]] * len(cache.lengths))

    def truncate(self, cache: RowCache, length: int) -> bool:
        """See `Tier`."""
        return cache.truncate(length)

    def adopt(self, cache: RowCache, given: Cache) -> None:
        """See `Tier`."""
        cache.adopt(compat.held(given))

    def release(self, cache: RowCache, given: Cache) -> None:
        """See `Tier`."""
        known, room = compat.length_of(given), compat.room_of(given)
        if room is not None and len(cache) > room:
            raise ModelError(
                f"the cache that was passed in has room for {room} tokens, and the text needs {len(cache)}"
            )
        for index, (keys, values) in enumerate(cache.contents()):
            if keys.shape[-2] > known:
                given.update(keys[..., known:, :], values[..., known:, :], index)

    def select(self, cache: RowCache, rows: Sequence[int]) -> None:
        """See `Tier`."""
        cache.select(rows)

    def _feed(
        self,
        cache: RowCache,
        ids: torch.Tensor,
        positions: torch.Tensor,
        ancestors: torch.Tensor | None = None,
        *,
        last_only: bool = False,
    ) -> Scored:
        """Run the model on new columns; `ancestors` `[rows, Q, nodes + Q]` says which of the last ones they see."""
        masks = None
        # Without holes and branches the model's own rule is what plain decoding applies; it needs no mask.
        if ancestors is not None or not cache.solid or (cache.static and len(cache)):
            columns = len(cache) + ids.shape[1]
            spare = cache.capacity - columns if cache.static and len(cache) else 0
            table = PositionTable.of(cache.positions, positions, ancestors, spare)
            masks = build_masks(self.caller.model, table, cache.layers)
        queries = positions if cache.solid else positions.clamp(min=0)
        return self.caller(cache.layers, ids, queries, masks, last_only=last_only, wanted=cache.wanted)
