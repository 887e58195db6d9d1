"""A row: one text in the making, and its side of a step."""

from dataclasses import dataclass
from itertools import count
from typing import Final

import torch

from outrider.decode.request import Request
from outrider.decode.stats import Stats
from outrider.decode.stopping import FinishReason
from outrider.draft.contract import MAX_NODES, DraftView, Outcome, RowStart, TargetInfo, TokenView
from outrider.draft.tree import DraftTree
from outrider.verify.match import Verdict

_IDS: Final = count()


@dataclass(frozen=True, slots=True)
class Step:
    """What one step emits; the first comes from the prefill.

    Args:
        tokens: new ids.
        from_draft: for every token, whether it was drafted and accepted; the target's own are False.
        finish_reason: why the text ends with this step, or None.
        texts: for every token, the text that it completes; empty inside a character, and without a tokenizer.
    """

    tokens: tuple[int, ...]
    from_draft: tuple[bool, ...]
    finish_reason: FinishReason | None
    texts: tuple[str, ...] = ()


class Row:
    """The committed ids of one text, its request and what is counted of it.

    Args:
        request: prompt, sampler and stops.
        target: what drafters may know of the model.
        stats: counted into.
    """

    def __init__(self, request: Request, target: TargetInfo, stats: Stats) -> None:
        self.id = next(_IDS)
        self.request = request
        self.ids = list(request.ids)
        self._target = target
        self._view = TokenView(self.ids)
        self._stats = stats
        stats.num_prompt_tokens = len(self.ids)

    def start(self) -> RowStart:
        """Return what a drafter learns when the row begins."""
        return RowStart(self.id, self._view, self.request.seed)

    def prompt(self) -> torch.Tensor:
        """Return the committed ids as `[1, length]`."""
        return torch.tensor([self.ids], device=self._target.device)

    def root(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the last committed token and its position, `[1]` each."""
        root = torch.tensor([self.ids[-1], len(self.ids) - 1], device=self._target.device)
        return root[:1], root[1:]

    def draft_view(self) -> DraftView:
        """Return what a drafter sees, and the room that is left.

        A step emits one token beyond the draft, and no draft passes the last position that the model was made for.
        """
        depth = self.request.stopping.max_length - len(self.ids) - 1
        if self._target.max_positions is not None:
            depth = min(depth, self._target.max_positions - len(self.ids))
        depth = max(depth, 0)
        return DraftView(self.id, self._view, depth, MAX_NODES if depth else 0)

    def first(self, token: int) -> tuple[Step, Outcome]:
        """Take the prefill's token."""
        return self._emit(DraftTree(), Verdict((), token))

    def emit(self, tree: DraftTree, verdict: Verdict) -> tuple[Step, Outcome]:
        """Take a step's tokens, up to where the text stops."""
        step, outcome = self._emit(tree, verdict)
        self._stats.count_step(len(tree), len(outcome.path))
        return step, outcome

    def _emit(self, tree: DraftTree, verdict: Verdict) -> tuple[Step, Outcome]:
        tokens = (*[tree.tokens[node] for node in verdict.path], verdict.bonus)
        kept, reason = self.request.stopping.cut(self.ids, tokens)
        tokens, accepted = tokens[:kept], verdict.path[:kept]
        self.ids.extend(tokens)
        self._stats.num_tokens += kept
        step = Step(tokens, tuple(index < len(accepted) for index in range(kept)), reason)
        return step, Outcome(self.id, self._view, tokens, tree, accepted)
