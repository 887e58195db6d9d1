"""The draft tree: what a drafter proposes and the verifier walks.

A chain is a tree without branches. The root is not part of the tree: it is the row's last committed token, and `ROOT`
stands for it wherever a parent is named. Every node's parent comes before it, and the order of siblings is index order.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

from outrider.draft.laws import POINT, DraftLaws

ROOT: Final = -1
Places = tuple[int | None, ...]
"""For every node of a tree its node in another, None where it has none."""


class MalformedTreeError(ValueError):
    """A tree that breaks the rules of `DraftTree`."""


@dataclass(frozen=True, slots=True)
class DraftTree:
    """Proposed tokens of one row, as parallel tuples.

    Args:
        tokens: the token id of every node.
        parents: the index of every node's parent, `ROOT` for the children of the last committed token.
        q_rows: for every node the row of `laws` that it was drawn from, `POINT` for a deterministic one; empty where all are.
        laws: the laws of the drawn nodes.
        coupled: the tokens were chosen with the target's own noise, which only the rule `match` allows.
        scouts: nodes that ride along in the target's forward for their logits and hidden states and are never verified; they
            may repeat a sibling, and only scouts hang from them.

    Raises:
        MalformedTreeError: lengths differ, a parent does not come before its child, two siblings are equal without having
            been drawn with replacement, or a drawn node's law is no law or could not have given its token.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    q_rows: tuple[int, ...] = ()
    laws: DraftLaws | None = field(default=None, compare=False)
    coupled: bool = False
    scouts: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.parents):
            raise MalformedTreeError(f"{len(self.tokens)} tokens but {len(self.parents)} parents")
        if not self.scouts <= set(range(len(self.tokens))):
            raise MalformedTreeError(f"scouts {sorted(self.scouts)} are not all among {len(self.tokens)} nodes")
        seen = set()
        for node, (token, parent) in enumerate(zip(self.tokens, self.parents, strict=True)):
            if not ROOT <= parent < node:
                raise MalformedTreeError(f"node {node} has parent {parent}: a parent is {ROOT} or an earlier node")
            if token < 0:
                raise MalformedTreeError(f"node {node} has token {token}: token ids are not negative")
            if node in self.scouts:
                continue
            if parent in self.scouts:
                raise MalformedTreeError(f"node {node} hangs from the scout {parent}, but is none")
            if (parent, token) in seen and not (self.laws and self.laws.replacement and self.q_rows[node] != POINT):
                raise MalformedTreeError(f"node {node} repeats its sibling's token {token}")
            seen.add((parent, token))
        if self.q_rows or self.laws is not None:
            self._check_laws()

    def _check_laws(self) -> None:
        laws = self.laws
        if len(self.q_rows) != len(self.tokens) or laws is None:
            raise MalformedTreeError(
                f"{len(self.q_rows)} q rows for {len(self.tokens)} nodes, with laws: {laws is not None}"
            )
        if fault := laws.fault():
            raise MalformedTreeError(fault)
        row_of: dict[int, int] = {}
        for node, (token, parent, row) in enumerate(zip(self.tokens, self.parents, self.q_rows, strict=True)):
            if row == POINT:
                continue
            if node in self.scouts:
                raise MalformedTreeError(f"scout {node} was drawn from a law, but is never verified")
            if not 0 <= row < len(laws.q):
                raise MalformedTreeError(f"node {node} has q row {row}, but there are {len(laws.q)}")
            if row_of.setdefault(parent, row) != row:
                raise MalformedTreeError(f"node {node} was drawn from another law than its sibling")
            if not laws.chance(row, token) > 0:
                raise MalformedTreeError(f"node {node} was drawn from a law that gives its token {token} no chance")

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
    def candidates(self) -> int:
        """The number of nodes that are verified."""
        return len(self.tokens) - len(self.scouts)

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

    def children(self, node: int) -> list[int]:
        """Return the children of `node` in sibling order, without scouts."""
        later = range(node + 1, len(self.tokens))
        return [index for index in later if self.parents[index] == node and index not in self.scouts]

    def child(self, node: int, token: int) -> int | None:
        """Return the child of `node` (`ROOT` for the root) that holds `token`, if there is one that is no scout."""
        for index in range(node + 1, len(self.tokens)):
            if self.parents[index] == node and self.tokens[index] == token and index not in self.scouts:
                return index
        return None

    def path(self, node: int) -> tuple[int, ...]:
        """Return the nodes from the root's child down to `node`; nothing for `ROOT`."""
        found: list[int] = []
        while node != ROOT:
            found.append(node)
            node = self.parents[node]
        return tuple(reversed(found))

    def keep(self, nodes: Sequence[int]) -> "DraftTree":
        """Return the tree of some nodes, in index order; a node is kept with all its ancestors or not at all."""
        if len(nodes) == len(self):
            return self
        place = {ROOT: ROOT} | {node: at for at, node in enumerate(nodes)}
        return DraftTree(
            tokens=tuple(self.tokens[node] for node in nodes),
            parents=tuple(place[self.parents[node]] for node in nodes),
            q_rows=tuple(self.q_rows[node] for node in nodes) if self.q_rows else (),
            laws=self.laws,
            coupled=self.coupled and bool(nodes),
            scouts=frozenset(place[node] for node in nodes if node in self.scouts),
        )

    def on_cpu(self) -> Self:
        """Return the tree with its laws on the CPU."""
        return self if self.laws is None else replace(self, laws=self.laws.on_cpu())

    def places_in(self, left: "DraftTree") -> Places:
        """Return where the nodes are in what `keep` left of this tree, its scouts all or none."""
        if self.tokens == left.tokens and self.parents == left.parents:
            return tuple(range(len(self)))
        scouts = iter(sorted(left.scouts))
        found: list[int | None] = []
        for node, (token, parent) in enumerate(zip(self.tokens, self.parents, strict=True)):
            above = ROOT if parent == ROOT else found[parent]
            if node in self.scouts:
                found.append(next(scouts, None))
            else:
                found.append(None if above is None else left.child(above, token))
        return tuple(found)
