"""A model that reads along a text: what drafters with a model of their own are built on."""

from collections.abc import Sequence
from typing import Any

import torch

from outrider.draft.batch import TreeBatch
from outrider.draft.tree import DraftTree
from outrider.target.model import Target


class Follower:
    """Reads a text as it grows, and guesses beyond it; guesses that did not come true are taken back exactly.

    Every token is fed once, but for those after the last one that came true. Ids that the model does not know are read as its
    last one.

    Args:
        model: what reads, from `outrider.load`.
    """

    def __init__(self, model: Target) -> None:
        self._model = model
        self._cache: Any = model.open(1)
        self._ids: list[int] = []
        self._sure = 0
        self._last = model.info.vocab_size - 1

    def read(self, ids: Sequence[int]) -> torch.Tensor:
        """Read a text, of which all but the end is known from before.

        Args:
            ids: one or more.

        Returns:
            `[vocab]` logits after the last of them.
        """
        same = min(self._sure, len(ids))
        while same < min(len(self._ids), len(ids)) and self._ids[same] == ids[same]:
            same += 1
        kept = min(same, len(ids) - 1)
        if not self._model.tier.truncate(self._cache, kept):
            kept, self._cache = 0, self._model.open(1)
        new = list(ids[kept:])
        self._ids[kept:], self._sure = new, len(ids)
        return self._model.prefill(self._cache, [[min(token, self._last) for token in new]])[0]

    def guess(self, token: int) -> torch.Tensor:
        """Read a guess after the text and earlier guesses; returns `[vocab]` logits after it."""
        logits = self._model.forward(self._cache, [token], TreeBatch.pack([DraftTree()])).logits[0, 0]
        self._model.commit(self._cache, 0, [[]])
        self._ids.append(token)
        return logits

    def forget(self, length: int) -> None:
        """Be sure of no more than the first `length` ids of the text."""
        self._sure = min(self._sure, length)
