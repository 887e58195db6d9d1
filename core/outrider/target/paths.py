"""The tiers for models that can't mask a tree: every path of a tree is a row of a batch, on copies of the row's cache.

Where every layer's cache can be cut, the accepted path's copy is cut and goes on. Where it can't (recurrent states,
convolutions, sliding caches), the accepted tokens are read again from the cache as it was, unless a whole path was accepted.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from transformers.cache_utils import Cache

from outrider.draft.batch import TreeBatch
from outrider.draft.tree import ROOT, DraftTree
from outrider.errors import ModelError
from outrider.target import compat
from outrider.target.call import Scored
from outrider.target.tier import Opening, Piece, Tier


@dataclass(slots=True)
class PathRow:
    """A row's own cache, and the last forward until it is committed.

    Args:
        cache: committed ids' keys, values and states, of one row.
        context: further arguments of the model, such as an encoder's output.
        length: committed ids in the cache.
        tree: what was scored.
        ids: `[paths, 1 + depth]`, what was fed.
        paths: nodes of every path.
        tried: the cache after the forward, a row a path.
        settled: no forward is under way or waits for its commit.
    """

    cache: Cache
    context: Mapping[str, Any]
    length: int = 0
    tree: DraftTree = field(default_factory=DraftTree)
    ids: torch.Tensor | None = None
    paths: list[tuple[int, ...]] = field(default_factory=list)
    tried: Cache | None = None
    settled: bool = True


@dataclass(slots=True)
class PathRows:
    """The rows, each by itself.

    Args:
        rows: in order.
        wanted: layers whose hidden states the forwards return.
    """

    rows: list[PathRow]
    wanted: frozenset[int]


class PathTier(Tier[PathRows]):
    """A batch of paths, on caches that can be cut."""

    name: ClassVar[str] = "paths"
    how: ClassVar[str] = "a batch of the tree's paths, on copies of the cache"
    replays: ClassVar[bool] = False

    def refusal(self) -> str:
        """See `Tier`."""
        return ""

    def open(self, rows: int, want: Opening) -> PathRows:
        """See `Tier`.

        Raises:
            ModelError: a static cache was asked for.
        """
        if want.static:
            raise ModelError(
                f"a static cache is served in the tier tree only, and this model is served in the tier {self.name}"
            )
        contexts = want.contexts or [{}] * rows
        return PathRows([PathRow(self._cache(), context) for context in contexts], want.wanted)

    def _cache(self) -> Cache:
        return compat.plain_cache(self.caller.model)

    def lengths(self, cache: PathRows) -> list[int]:
        """See `Tier`."""
        return [row.length for row in cache.rows]

    def read(self, cache: PathRows, prompts: Sequence[Sequence[int]], chunk: int) -> Iterator[list[Piece]]:
        """See `Tier`."""
        for index, (row, prompt) in enumerate(zip(cache.rows, prompts, strict=True)):
            for start in range(0, len(prompt), chunk):
                part = prompt[start : start + chunk]
                ids = torch.tensor([list(part)], device=self.device)
                row.settled = False
                scored = self._feed(row.cache, row, ids, cache.wanted, last_only=True)
                piece = Piece(index, row.length, len(part), scored)
                row.length += len(part)
                row.settled = True
                yield [piece]

    def forward(self, cache: PathRows, roots: Sequence[int], trees: TreeBatch) -> Scored:
        """See `Tier`."""
        every = [
            self._score(row, root, tree, cache.wanted)
            for row, root, tree in zip(cache.rows, roots, trees.unpack(), strict=True)
        ]
        logits = _padded([scored.logits for scored in every], trees.width + 1)
        hidden = {layer: _padded([one.hidden[layer] for one in every], trees.width + 1) for layer in cache.wanted}
        return Scored(logits, hidden)

    def _score(self, row: PathRow, root: int, tree: DraftTree, wanted: frozenset[int]) -> Scored:
        """Score a tree path by path; `[1 + nodes, ...]`."""
        leaves = sorted(set(range(len(tree))) - set(tree.parents)) or [ROOT]
        row.tree, row.paths = tree, [tree.path(leaf) for leaf in leaves]
        depth = max(map(len, row.paths))
        # Padding at the end changes nothing before it.
        fed = [[root, *[tree.tokens[n] for n in path], *[root] * (depth - len(path))] for path in row.paths]
        row.ids = torch.tensor(fed, device=self.device)
        row.settled = False
        row.tried = compat.fork(row.cache, len(row.paths)) if self._forks(row) else row.cache
        scored = self._feed(row.tried, row, row.ids, wanted)
        place = {node: (which, step) for which, path in enumerate(row.paths) for step, node in enumerate(path, 1)}
        place[ROOT] = (0, 0)
        which, step = zip(*[place[node] for node in range(ROOT, len(tree))], strict=True)
        return Scored(
            scored.logits[which, step], {layer: states[which, step] for layer, states in scored.hidden.items()}
        )

    def _forks(self, row: PathRow) -> bool:
        return len(row.paths) > 1 or (self.replays and len(row.tree) > 0)

    def commit(self, cache: PathRows, width: int, paths: Sequence[Sequence[int]]) -> None:  # noqa: ARG002
        """See `Tier`."""
        for row, path in zip(cache.rows, paths, strict=True):
            assert row.ids is not None and row.tried is not None  # noqa: S101, PT018  a forward came before
            kept, fed = 1 + len(path), row.ids.shape[1]
            which = next(index for index, one in enumerate(row.paths) if one[: len(path)] == tuple(path))
            if kept < fed and self.replays:
                self._feed(row.cache, row, row.ids[which : which + 1, :kept], frozenset())
            else:
                row.cache = row.tried
                if len(row.paths) > 1:
                    compat.select_rows(row.cache, [which])
                if kept < fed:
                    compat.crop(row.cache, fed - kept)
            row.length += kept
            row.tried = row.ids = None
            row.settled = True

    def rollback(self, cache: PathRows, width: int) -> None:  # noqa: ARG002
        """See `Tier`."""
        for row in cache.rows:
            if row.tried is row.cache and row.ids is not None:
                if self.replays:
                    raise ModelError(f"in the tier {self.name} a step without a draft can't be taken back")
                compat.crop(row.cache, row.ids.shape[1])
            row.tried = row.ids = None
            row.settled = True

    def truncate(self, cache: PathRows, length: int) -> bool:
        """See `Tier`."""
        (row,) = cache.rows
        if not row.settled:  # what an interrupted forward left in the layers is not known
            return False
        if length < row.length:
            if self.replays:
                return False
            compat.crop(row.cache, row.length - length)
            row.length = length
        return True

    def adopt(self, cache: PathRows, given: Cache) -> None:
        """See `Tier`."""
        (row,) = cache.rows
        row.length = compat.length_of(given)
        contents = compat.held(given, native=self.replays)
        if self.replays and row.length:
            row.cache = compat.fork(given, 1)
        for index, (keys, values) in enumerate(contents):
            row.cache.update(keys, values, index)

    def release(self, cache: PathRows, given: Cache) -> None:
        """See `Tier`."""
        (row,) = cache.rows
        given.__dict__.update(row.cache.__dict__)

    def select(self, cache: PathRows, rows: Sequence[int]) -> None:
        """See `Tier`."""
        cache.rows = [cache.rows[row] for row in rows]

    def _feed(
        self,
        cache: Cache,
        row: PathRow,
        ids: torch.Tensor,
        wanted: frozenset[int],
        *,
        last_only: bool = False,
    ) -> Scored:
        positions = torch.arange(row.length, row.length + ids.shape[1], device=self.device).expand_as(ids)
        context = {name: compat.widen(value, len(ids)) for name, value in row.context.items()}
        return self.caller(cache, ids, positions, last_only=last_only, wanted=wanted, context=context)


class ReplayTier(PathTier):
    """A batch of paths, on caches that can't be cut: the accepted tokens are read again."""

    name: ClassVar[str] = "replay"
    how: ClassVar[str] = "a batch of the tree's paths, and a second forward that reads what was accepted"
    replays: ClassVar[bool] = True

    def _cache(self) -> Cache:
        return compat.native_cache(self.caller.model)


def _padded(rows: Sequence[torch.Tensor], width: int) -> torch.Tensor:
    """Stack `[nodes, size]` tensors, padded with zeros to `[rows, width, size]`."""
    pad = torch.nn.functional.pad
    return torch.stack([pad(row, (0, 0, 0, width - len(row))) for row in rows])
