"""From one vocabulary to another: what a draft model of another tokenizer reads, and what its drafts are to the target.

Lossless speculative decoding for heterogeneous vocabularies (Timor et al. 2025, arXiv:2502.05202). Greedy drafts cross as text;
those that are drawn, or coupled to the target's noise, as tokens that both models have, with an honest law over them.
"""

from collections.abc import Sequence

import torch

from outrider import DraftTree, DraftView, Follower, InputError, Target, TargetInfo, TreeBatch
from outrider_drafters.vocabulary.intersection import Intersection
from outrider_drafters.vocabulary.tokenizers import vocabularies
from outrider_drafters.vocabulary.translation import Translation


class Crossing:
    """The rows' texts in the draft model's ids.

    Args:
        target: whose texts they are.
        model: the draft model.

    Raises:
        InputError: a tokenizer is missing on either side.
    """

    def __init__(self, target: TargetInfo, model: Target) -> None:
        self._vocabularies = vocabularies(target, model)
        self._rows: dict[int, Translation] = {}
        self._refusal = ""
        self._common: Intersection | None = None
        try:
            self._common = Intersection.of(*self._vocabularies).to(model.info.device)
        except InputError as error:  # it stands in the way of the ratio rules only
            self._refusal = str(error)

    def common(self, view: DraftView) -> Intersection | None:
        """Return the tokens that a row's draft is made of; None where it crosses as text.

        Raises:
            InputError: the rule needs them, and the models have next to none in common.
        """
        if view.wants_q and self._common is None:
            raise InputError(self._refusal)
        return None if view.decisions is None else self._common

    def read(self, view: DraftView, follower: Follower) -> Sequence[int]:
        """Return a row's text in the draft model's ids; nothing where it can't be drafted from now."""
        if view.row not in self._rows:
            self._rows[view.row] = Translation(*self._vocabularies)
        row = self._rows[view.row]
        follower.forget(view.row, row.follow(view.ids))
        return () if row.pending and self.common(view) is not None else row.ids

    def forget(self, row: int, length: int) -> None:
        """Go on from a row's first `length` ids."""
        if row in self._rows:
            self._rows[row].forget(length)

    def end(self, rows: Sequence[int]) -> None:
        """Drop rows."""
        for row in rows:
            self._rows.pop(row, None)

    def draft(self, views: Sequence[DraftView], logits: torch.Tensor, follower: Follower, depth: int) -> TreeBatch:
        """Draft chains of the draft model's likeliest tokens and return them as the target would write their text.

        Args:
            views: the rows.
            logits: `[rows, draft vocab]` after their texts.
            follower: reads the draft model's guesses.
            depth: how many of its tokens.
        """
        guesses = [logits.argmax(-1)]
        while len(guesses) < depth:
            guesses.append(follower.guess(guesses[-1][:, None])[:, 0].argmax(-1))
        chains = torch.stack(guesses, 1).tolist()
        found = [self._rows[view.row].propose(chain) for view, chain in zip(views, chains, strict=True)]
        return TreeBatch.pack(
            [
                DraftTree.chain(ids[: min(view.max_depth, view.max_nodes)])
                for view, ids in zip(views, found, strict=True)
            ]
        )
