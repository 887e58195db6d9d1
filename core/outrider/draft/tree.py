"""The draft tree: what a drafter proposes and the verifier walks.

A chain is a tree without branches. The root is not part of the tree: it is the row's last committed token, and `ROOT`
stands for it wherever a parent is named. Every node's parent comes before it, and the order of siblings is index order.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self

import torch

ROOT: Final = -1
PADDING: Final = -2


class MalformedTreeError(ValueError):
    """A tree that breaks the rules of `DraftTree`."""


@dataclass(frozen=True, slots=True)
class DraftTree:
    """Proposed tokens of one row, as parallel tuples.

    Args:
        tokens: the token id of every node.
        parents: the index of every node's parent, `ROOT` for the children of the last committed token.

    Raises:
        MalformedTreeError: lengths differ, a parent does not come before its child, or two siblings are equal.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.parents):
            raise MalformedTreeError(f"{len(self.tokens)} tokens but {len(self.parents)} parents")
        seen = set()
        for node, (token, parent) in enumerate(zip(self.tokens, self.parents, strict=True)):
            if not ROOT <= parent < node:
                raise MalformedTreeError(f"node {node} has parent {parent}: a parent is {ROOT} or an earlier node")
            if token < 0:
                raise MalformedTreeError(f"node {node} has token {token}: token ids are not negative")
            if (parent, token) in seen:
                raise MalformedTreeError(f"node {node} repeats its sibling's token {token}")
            seen.add((parent, token))

    @classmethod
    def chain(cls, tokens: Iterable[int]) -> Self:
        """Build a tree without branches."""
        tokens = tuple(tokens)
        return cls(tokens, tuple(range(-1, len(tokens) - 1)))

    @classmethod
    def from_paths(cls, paths: Iterable[Sequence[int]]) -> Self:
        """Merge root-to-leaf token paths; what they begin with in common becomes one branch."""
        nodes: dict[tuple[int, int], int] = {}
        for path in paths:
            node = ROOT
            for token in path:
                node = nodes.setdefault((node, token), len(nodes))
        return cls(tuple(token for _, token in nodes), tuple(parent for parent, _ in nodes))

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def depth(self) -> int:
        """The length of the longest path, the root not counted."""
        return max(self.depths(), default=0)

    def depths(self) -> list[int]:
        """Every node's depth; the root's children have depth 1."""
        found: list[int] = []
        for parent in self.parents:
            found.append(1 if parent == ROOT else found[parent] + 1)
        return found

    def child(self, node: int, token: int) -> int | None:
        """Return the child of `node` (`ROOT` for the root) that holds `token`, if there is one."""
        for index in range(node + 1, len(self.tokens)):
            if self.parents[index] == node and self.tokens[index] == token:
                return index
        return None

    def path(self, node: int) -> tuple[int, ...]:
        """Return the nodes from the root's child down to `node`; nothing for `ROOT`."""
        found: list[int] = []
        while node != ROOT:
            found.append(node)
            node = self.parents[node]
        return tuple(reversed(found))


@dataclass(frozen=True, slots=True)
class TreeBatch:
    """The trees of several rows, padded to one width, as they go into the target's forward.

    Args:
        tokens: `[rows, width]` int64.
        parents: `[rows, width]` int64, `PADDING` where a row has fewer nodes.
    """

    tokens: torch.Tensor
    parents: torch.Tensor

    @classmethod
    def pack(cls, trees: Sequence[DraftTree]) -> Self:
        """Pad the trees of several rows to the widest; tensors on the CPU."""
        width = max(map(len, trees), default=0)
        tokens = [[*tree.tokens, *[0] * (width - len(tree))] for tree in trees]
        parents = [[*tree.parents, *[PADDING] * (width - len(tree))] for tree in trees]
        shape = (len(trees), width)
        return cls(
            torch.tensor(tokens, dtype=torch.long).view(shape), torch.tensor(parents, dtype=torch.long).view(shape)
        )

    def unpack(self) -> list[DraftTree]:
        """Return every row's tree, checked. Reads from the device once.

        Raises:
            MalformedTreeError: as `DraftTree`.
        """
        trees = []
        for tokens, parents in torch.stack([self.tokens, self.parents], 1).tolist():
            size = len(parents) - parents.count(PADDING)
            trees.append(DraftTree(tuple(tokens[:size]), tuple(parents[:size])))
        return trees

    @property
    def width(self) -> int:
        """Nodes a row, padding included."""
        return self.tokens.shape[1]

    def to(self, device: torch.device) -> "TreeBatch":
        """Move the tensors to `device`."""
        return TreeBatch(self.tokens.to(device, non_blocking=True), self.parents.to(device, non_blocking=True))

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
