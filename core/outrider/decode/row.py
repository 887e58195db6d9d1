"""A row: one text in the making, and its side of a step."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import torch

from outrider.decode.request import Request
from outrider.decode.stats import Stats
from outrider.decode.stopping import FinishReason
from outrider.draft.contract import MAX_NODES, DraftView, Outcome, RowStart, TargetInfo, TokenView
from outrider.draft.tree import ROOT
from outrider.verify.match import Verdict
from outrider.verify.sampling import NodeScores

_IDS: Final = count()


@dataclass(frozen=True, slots=True)
class Evidence:
    """What emitted tokens were drawn from, as far as it was asked for; equal to what plain decoding draws from.

    Args:
        logits: `[tokens, vocab]` float32, of the model itself.
        scores: `[tokens, vocab]` float32, after the processors.
        logprobs: of every token in the law that it was drawn from.
    """

    logits: torch.Tensor | None = None
    scores: torch.Tensor | None = None
    logprobs: tuple[float, ...] | None = None

    @classmethod
    def of(cls, wanted: frozenset[str], scores: NodeScores, nodes: Sequence[int], tokens: Sequence[int]) -> "Evidence":
        """Collect what is wanted for tokens that follow these nodes."""
        if not wanted:
            return cls()
        processed = torch.stack([scores(node) for node in nodes])
        chances = processed.double().log_softmax(-1)
        return cls(
            scores.logits[[node + 1 for node in nodes]].float() if "output_logits" in wanted else None,
            processed if "output_scores" in wanted else None,
            tuple(chances[range(len(tokens)), list(tokens)].tolist()) if "output_logprobs" in wanted else None,
        )

    @classmethod
    def join(cls, parts: Sequence["Evidence"]) -> "Evidence":
        """Put the steps' evidence together."""
        logits, scores = ([getattr(part, name) for part in parts] for name in ("logits", "scores"))
        logprobs = [part.logprobs for part in parts]
        return cls(
            torch.cat(logits) if logits and logits[0] is not None else None,
            torch.cat(scores) if scores and scores[0] is not None else None,
            tuple(one for part in logprobs for one in part or ()) if logprobs and logprobs[0] is not None else None,
        )


@dataclass(frozen=True, slots=True)
class Step:
    """What one step emits; the first comes from the prefill.

    Args:
        tokens: new ids.
        from_draft: for every token, whether it was drafted and accepted; the target's own are False.
        finish_reason: why the text ends with this step, or None.
        texts: for every token, the text that it completes; empty inside a character, and without a tokenizer.
        evidence: what was asked for of what the tokens were drawn from.
    """

    tokens: tuple[int, ...]
    from_draft: tuple[bool, ...]
    finish_reason: FinishReason | None
    texts: tuple[str, ...] = ()
    evidence: Evidence = field(default=Evidence(), compare=False)


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
        sampler = self.request.sampler
        decisions = sampler.decisions.at(len(self.ids)) if sampler.decisions else None
        return DraftView(self.id, self._view, depth, MAX_NODES if depth else 0, sampler.rule, decisions)

    def first(self, scores: NodeScores, verdict: Verdict) -> tuple[Step, Outcome]:
        """Take the prefill's token."""
        return self._emit(scores, verdict)

    def emit(self, scores: NodeScores, verdict: Verdict) -> tuple[Step, Outcome]:
        """Take a step's tokens, up to where the text stops."""
        step, outcome = self._emit(scores, verdict)
        self._stats.count_step(len(scores.tree), len(outcome.path))
        return step, outcome

    def _emit(self, scores: NodeScores, verdict: Verdict) -> tuple[Step, Outcome]:
        tree = scores.tree
        tokens = (*[tree.tokens[node] for node in verdict.path], verdict.bonus)
        kept, reason = self.request.stopping.cut(self.ids, tokens)
        tokens, accepted = tokens[:kept], verdict.path[:kept]
        evidence = Evidence.of(self.request.evidence, scores, (ROOT, *verdict.path)[:kept], tokens)
        self.ids.extend(tokens)
        self._view.grow(tokens)
        self._stats.num_tokens += kept
        step = Step(tokens, tuple(index < len(accepted) for index in range(kept)), reason, evidence=evidence)
        return step, Outcome(self.id, self._view, tokens, tree, accepted)
