"""The guard around a drafter: whatever it does wrong is stopped here, with its name in the error."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from outrider.draft.contract import DraftBatch, Drafter, OutcomeBatch, RowStart
from outrider.draft.tree import DraftTree, TreeBatch
from outrider.errors import DrafterError, first_line


class Guard:
    """Calls a drafter without gradients and checks what it gives.

    Raises:
        DrafterError: the drafter raised, or its trees break the contract.
    """

    def __init__(self, drafter: Drafter[Any]) -> None:
        self.drafter = drafter

    def begin(self, rows: Sequence[RowStart]) -> None:
        """Start rows."""
        with self._named("begin"):
            self.drafter.begin(rows)

    def propose(self, batch: DraftBatch) -> tuple[TreeBatch, list[DraftTree]]:
        """Return a tree for every row, as tensors and as checked values; without room nothing is asked."""
        if not any(view.max_depth for view in batch.rows):
            empty = [DraftTree()] * len(batch.rows)
            return TreeBatch.pack(empty), empty
        with self._named("propose"):
            trees: Any = self.drafter.propose(batch)
            if not isinstance(trees, TreeBatch):
                raise TypeError(f"expected a TreeBatch, got {type(trees).__name__}")
            values = trees.unpack()
            if len(values) != len(batch.rows):
                raise ValueError(f"{len(values)} trees for {len(batch.rows)} rows")
            vocab = self.drafter.target.vocab_size
            for tree, view in zip(values, batch.rows, strict=True):
                if tree.tokens and max(tree.tokens) >= vocab:
                    raise ValueError(f"token {max(tree.tokens)} is not one of the target's {vocab}")
                if len(tree) > view.max_nodes or tree.depth > view.max_depth:
                    raise ValueError(
                        f"a tree of {len(tree)} nodes and depth {tree.depth}, where the row has room for "
                        f"{view.max_nodes} and {view.max_depth}"
                    )
        return trees, values

    def observe(self, batch: OutcomeBatch) -> None:
        """Tell the drafter what was committed."""
        with self._named("observe"):
            self.drafter.observe(batch)

    def end(self, rows: Sequence[int]) -> None:
        """Let the drafter forget rows."""
        with self._named("end"):
            self.drafter.end(rows)

    @contextmanager
    def _named(self, method: str) -> Iterator[None]:
        try:
            with torch.no_grad():
                yield
        except Exception as error:
            raise DrafterError(f"drafter '{self.drafter.name}' failed in {method}: {first_line(error)}") from error
