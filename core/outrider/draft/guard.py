"""The guard around a drafter: whatever it does wrong is stopped here, with its name in the error."""

import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch

from outrider.draft.batch import TreeBatch
from outrider.draft.capabilities import Capabilities
from outrider.draft.contract import DraftBatch, Drafter, OutcomeBatch, RowStart
from outrider.draft.features import Needs
from outrider.draft.tree import DraftTree
from outrider.errors import DrafterError, first_line
from outrider.trace import traced

# A drafter object may serve several threads, a call at a time.
_LOCKS: Final[WeakKeyDictionary[Drafter[Any], threading.RLock]] = WeakKeyDictionary()
_MAKING: Final = threading.Lock()


def _beyond(declared: Capabilities | None, tree: DraftTree) -> str:
    """Say what a tree has that its drafter does not declare, or nothing."""
    fault = declared.beyond(tree) if declared is not None else ""
    return f"it proposed {fault}, which its capabilities do not declare" if fault else ""


class Guard:
    """Calls a drafter without gradients, one call at a time, and checks what it gives.

    Args:
        drafter: what is guarded.
        role: what errors call it; a drafter that is made of others guards them as its parts.

    Raises:
        DrafterError: the drafter raised, or its trees break the contract.
    """

    def __init__(self, drafter: Drafter[Any], role: str = "drafter") -> None:
        self.drafter = drafter
        self.name = f"{role} '{drafter.name}'"
        """What errors call it."""
        with _MAKING:
            self._lock = _LOCKS.setdefault(drafter, threading.RLock())

    def needs(self) -> Needs:
        """Return what the drafter wants of the target's forwards."""
        with self._named("needs"):
            needs: Any = self.drafter.needs()
            if type(needs) is not Needs:
                raise TypeError(f"expected Needs, got {type(needs).__name__}")
            layers = self.drafter.target.num_layers
            for what, wanted, last in (
                ("hidden states", needs.hidden, layers),
                ("keys and values", needs.keys_values, layers - 1),
            ):
                wrong = next((one for one in wanted if not (type(one) is int and 0 <= one <= last)), None)
                if wrong is not None:
                    raise ValueError(f"{what} of layer {wrong!r}: the target has them from 0 to {last}")
            return needs

    def truncate(self, row: int, length: int) -> None:
        """Let a row go on from its first `length` ids."""
        with self._named("truncate"):
            self.drafter.truncate(row, length)

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
            if type(trees) is not TreeBatch:
                raise TypeError(f"expected a TreeBatch, got {type(trees).__name__}")
            values = trees.unpack()
            if len(values) != len(batch.rows):
                raise ValueError(f"{len(values)} trees for {len(batch.rows)} rows")
            vocab = self.drafter.target.vocab_size
            for tree, view in zip(values, batch.rows, strict=True):
                if tree.tokens and max(tree.tokens) >= vocab:
                    raise ValueError(f"token {max(tree.tokens)} is not one of the target's {vocab}")
                if fault := _beyond(self.drafter.capabilities, tree):
                    raise ValueError(fault)
                if tree.coupled and view.rule != "match":
                    raise ValueError(f"a coupled tree can only be verified by the rule match, not by {view.rule}")
                if len(tree) > view.max_nodes or tree.depth > view.max_depth:
                    raise ValueError(
                        f"a tree of {len(tree)} nodes and depth {tree.depth}, where the row has room for "
                        f"{view.max_nodes} and {view.max_depth}"
                    )
            # Packed again from what was checked: the drafter may still hold the tensors that it gave.
            return TreeBatch.pack(values), values

    def observe(self, batch: OutcomeBatch) -> None:
        """Tell the drafter what was committed."""
        with self._named("observe"):
            self.drafter.observe(batch)

    def end(self, rows: Sequence[int]) -> None:
        """Let the drafter forget rows; that it fails is a warning, since the text is whole or its error is on its way."""
        try:
            with self._named("end"):
                self.drafter.end(rows)
        except DrafterError as error:
            warnings.warn(str(error), stacklevel=2)

    @contextmanager
    def _named(self, method: str) -> Iterator[None]:
        try:
            with self._lock, torch.no_grad(), traced(self.name, method):
                yield
        except KeyboardInterrupt:
            raise
        except DrafterError as error:  # a part of it, named already
            raise DrafterError(f"{self.name}: {error}") from error
        except BaseException as error:  # a drafter may raise anything, SystemExit too
            raise DrafterError(f"{self.name} failed in {method}: {first_line(error)}") from error
