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
        q_rows: `[rows, width]` int64, the rows of `laws` that nodes were drawn from, `POINT` elsewhere; None where none was.
        laws: the laws of all rows' drawn nodes.
        coupled: as in `DraftTree`, for all rows.
        scouts: `[rows, width]` bool, as in `DraftTree`; None where there is none.
    """

    tokens: torch.Tensor
    parents: torch.Tensor
    q_rows: torch.Tensor | None = None
    laws: DraftLaws | None = None
    coupled: bool = False
    scouts: torch.Tensor | None = None

    @classmethod
    def pack(cls, trees: Sequence[DraftTree]) -> Self:
        """Pad the trees of several rows to the widest; tensors on the CPU.

        Raises:
            MalformedTreeError: the rows' laws differ in `id_map` or `replacement`, or only some rows are coupled.
        """
        width = max(map(len, trees), default=0)
        if len({tree.coupled for tree in trees if len(tree)}) > 1:
            raise MalformedTreeError("some rows are coupled and some are not")
        laws, offsets = _join_laws(trees)
        q_rows = None
        if laws is not None:
            moved = [
                [row if row == POINT else row + offset for row in tree.q_rows or (POINT,) * len(tree)]
                for tree, offset in zip(trees, offsets, strict=True)
            ]
            q_rows = _padded(moved, width, POINT)
        tokens = _padded([tree.tokens for tree in trees], width, 0)
        parents = _padded([tree.parents for tree in trees], width, PADDING)
        scouts = None
        if any(tree.scouts for tree in trees):
            scouts = torch.tensor([[node in tree.scouts for node in range(width)] for tree in trees])
        return cls(tokens, parents, q_rows, laws, any(tree.coupled for tree in trees), scouts)

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
        trees = []
        for tokens, parents, marks, *drawn in torch.stack([parts[0], parts[1], flags, *parts[2:]], 1).tolist():
            size = len(parents) - parents.count(PADDING)
            q_rows = tuple(drawn[0][:size]) if drawn else ()
            laws = self.laws if any(row != POINT for row in q_rows) else None
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
        tokens, parents = spread(self.tokens, 0), spread(self.parents, PADDING)
        return TreeBatch(tokens, parents, q_rows, self.laws, self.coupled, scouts)

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


def _join_laws(trees: Sequence[DraftTree]) -> tuple[DraftLaws | None, list[int]]:
    """Stack the rows' laws; returns where each row's begin."""
    found = [tree.laws for tree in trees if tree.laws is not None]
    if not found:
        return None, [0] * len(trees)
    first = found[0]
    if any(laws.id_map is not first.id_map or laws.replacement != first.replacement for laws in found):
        raise MalformedTreeError("the rows' laws differ in id_map or replacement")
    offsets, total = [], 0
    for tree in trees:
        offsets.append(total)
        total += len(tree.laws.q) if tree.laws is not None else 0
    return DraftLaws(torch.cat([laws.q for laws in found]), first.id_map, first.replacement), offsets
