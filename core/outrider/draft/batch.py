"""The trees of several rows as tensors, the form in which they go into the target's forward."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import torch

from outrider.draft.laws import POINT, DraftLaws
from outrider.draft.tree import ROOT, DraftTree, MalformedTreeError

PADDING: Final = -2


@dataclass(frozen=True, slots=True)
class TreeBatch:
    """The trees of several rows, padded to one width, as they go into the target's forward.

    Args:
        tokens: `[rows, width]` int64.
        parents: `[rows, width]` int64, `PADDING` where a row has fewer nodes.
        q_rows: `[rows, width]` int64, the rows of laws that nodes were drawn from, `POINT` elsewhere; None where none was.
        laws: the laws of the drawn nodes: one object for all rows, or one for each, None where a row has none.
        coupled: whether any row is as `DraftTree` says; only the rule `match` serves them all then.
        scouts: `[rows, width]` bool, as in `DraftTree`; None where there is none.
    """

    tokens: torch.Tensor
    parents: torch.Tensor
    q_rows: torch.Tensor | None = None
    laws: DraftLaws | tuple[DraftLaws | None, ...] | None = None
    coupled: bool = False
    scouts: torch.Tensor | None = None

    @classmethod
    def pack(cls, trees: Sequence[DraftTree]) -> Self:
        """Pad the trees of several rows to the widest; tensors on the CPU.

        Every row keeps its own laws, since those of different drafters have different ids and can't be rows of one tensor.
        """
        width = max(map(len, trees), default=0)
        laws = tuple(tree.laws for tree in trees)
        q_rows = _padded([tree.q_rows or (POINT,) * len(tree) for tree in trees], width, POINT) if any(laws) else None
        tokens = _padded([tree.tokens for tree in trees], width, 0)
        parents = _padded([tree.parents for tree in trees], width, PADDING)
        scouts = None
        if any(tree.scouts for tree in trees):
            scouts = torch.tensor([[node in tree.scouts for node in range(width)] for tree in trees])
        return cls(tokens, parents, q_rows, laws if any(laws) else None, any(tree.coupled for tree in trees), scouts)

    def unpack(self) -> list[DraftTree]:
        """Return every row's tree, checked. Reads from the device once.

        Raises:
            MalformedTreeError: as `DraftTree`, or tensors of wrong shapes or dtypes.
        """
        parts = [self.tokens, self.parents] if self.q_rows is None else [self.tokens, self.parents, self.q_rows]
        for part in parts:
            if part.dtype != torch.long or part.ndim != 2 or part.shape != self.tokens.shape:
                raise MalformedTreeError(
                    f"a tensor of {part.dtype} and shape {list(part.shape)} where all are int64 of one shape [rows, width]"
                )
        if self.scouts is not None and (self.scouts.dtype != torch.bool or self.scouts.shape != self.tokens.shape):
            raise MalformedTreeError(
                f"scouts of {self.scouts.dtype} and shape {list(self.scouts.shape)} where bool [rows, width] is expected"
            )
        flags = torch.zeros_like(self.tokens) if self.scouts is None else self.scouts.long()
        rows = torch.stack([parts[0], parts[1], flags, *parts[2:]], 1).tolist()
        row_laws = self.laws if isinstance(self.laws, tuple) else (self.laws,) * len(rows)
        if len(row_laws) != len(rows):
            raise MalformedTreeError(f"laws of {len(row_laws)} rows for {len(rows)} trees")
        trees = []
        for (tokens, parents, marks, *drawn), own in zip(rows, row_laws, strict=True):
            size = len(parents) - parents.count(PADDING)
            q_rows = tuple(drawn[0][:size]) if drawn else ()
            laws = own if any(row != POINT for row in q_rows) else None
            tree = DraftTree(
                tokens=tuple(tokens[:size]),
                parents=tuple(parents[:size]),
                q_rows=q_rows if laws else (),
                laws=laws,
                coupled=self.coupled and size > 0,
                scouts=frozenset(node for node in range(size) if marks[node]),
            )
            trees.append(tree)
        return trees

    @property
    def width(self) -> int:
        """Nodes a row, padding included."""
        return self.tokens.shape[1]

    def among(self, places: Sequence[int], rows: int) -> "TreeBatch":
        """Return a batch of more rows, where these are at `places`, rising, and the others are empty."""
        if len(places) == rows:
            return self
        index = torch.tensor(places, device=self.tokens.device)

        def spread(part: torch.Tensor, value: int) -> torch.Tensor:
            whole = part.new_full((rows, self.width), value)
            return whole.index_copy(0, index, part)

        q_rows = None if self.q_rows is None else spread(self.q_rows, POINT)
        scouts = None if self.scouts is None else spread(self.scouts, False)
        tokens, parents, laws = spread(self.tokens, 0), spread(self.parents, PADDING), self.laws
        if isinstance(laws, tuple):
            own = dict(zip(places, laws, strict=True))
            laws = tuple(own.get(row) for row in range(rows))
        return TreeBatch(tokens, parents, q_rows, laws, self.coupled, scouts)

    def to(self, device: torch.device) -> "TreeBatch":
        """Move the tensors to `device`."""
        q_rows = None if self.q_rows is None else self.q_rows.to(device, non_blocking=True)
        tokens, parents = (part.to(device, non_blocking=True) for part in (self.tokens, self.parents))
        return TreeBatch(tokens, parents, q_rows, self.laws, self.coupled, self.scouts)

    def ancestors(self) -> torch.Tensor:
        """Say which node hangs below which: `[rows, 1 + width, 1 + width]` bool, the root first.

        Entry `[b, i, j]` is true when j is i or one of its ancestors. Padding is an ancestor of itself alone. Reachability
        by repeated squaring, so that trees on a GPU need no host read.
        """
        rows, size = self.parents.shape[0], self.width + 1
        up = torch.zeros(rows, size, size + 1, device=self.parents.device)
        columns = torch.where(self.parents >= ROOT, (self.parents + 1).clamp(0, size - 1), size)
        up[:, 1:].scatter_(2, columns.unsqueeze(2), 1.0)  # padding's edge goes to a column that is cut off
        reach = up[..., :size] + torch.eye(size, device=up.device)
        for _ in range(max(1, (size - 1).bit_length())):
            reach = (reach @ reach).clamp(max=1.0)
        return reach > 0


def _padded(rows: Sequence[Sequence[int]], width: int, value: int) -> torch.Tensor:
    padded = [[*row, *[value] * (width - len(row))] for row in rows]
    return torch.tensor(padded, dtype=torch.long).view(len(rows), width)
