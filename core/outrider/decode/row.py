"""A row: one text in the making, and its side of a step."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import torch

from outrider.decode.evidence import Evidence
from outrider.decode.request import Request
from outrider.decode.stats import Stats
from outrider.decode.stopping import FinishReason
from outrider.decode.work import Work
from outrider.draft.contract import MAX_NODES, DraftView, Outcome, RowStart, TokenView
from outrider.draft.features import Features
from outrider.draft.tree import ROOT, DraftTree
from outrider.verify.match import Verdict
from outrider.verify.sampling import NodeScores

_IDS: Final = count()


@dataclass(frozen=True, slots=True)
class Step:
    """What one step emits; the first comes from the prefill.

    Args:
        tokens: new ids.
        from_draft: for every token, whether it was drafted and accepted; the target's own are False.
        finish_reason: why the text ends with this step, or None.
        texts: for every token, the text that it completes; empty inside a character, and without a tokenizer.
        evidence: what was asked for of what the tokens were drawn from.
        work: what was verified and how long it took; None for the prefill.
    """

    tokens: tuple[int, ...]
    from_draft: tuple[bool, ...]
    finish_reason: FinishReason | None
    texts: tuple[str, ...] = ()
    evidence: Evidence = field(default=Evidence(), compare=False)
    work: Work | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a step.

    Args:
        verdict: what the rule keeps.
        kept: how many of its tokens stay in the text.
        finish_reason: why the text ends with them, or None.
    """

    verdict: Verdict
    kept: int
    finish_reason: FinishReason | None


class Row:
    """The committed ids of one text, its request and what is counted of it.

    Args:
        request: prompt, sampler and stops.
        stats: counted into.
    """

    def __init__(self, request: Request, stats: Stats) -> None:
        self.id = next(_IDS)
        self.request = request
        self.ids = list(request.ids)
        self.stats = stats
        self.view = TokenView(self.ids)
        self._seen: list[torch.Tensor] = []
        stats.num_prompt_tokens = len(self.ids)

    def resume(self, request: Request, stats: Stats) -> int:
        """Go on with another turn, whose prompt may begin like the text so far; returns how many ids of it stay."""
        pairs = zip(self.ids, request.ids, strict=False)
        same = next(
            (index for index, pair in enumerate(pairs) if pair[0] != pair[1]), min(len(self.ids), len(request.ids))
        )
        self.request, self.stats = request, stats
        self.ids = list(request.ids)
        self.view.replace(same, self.ids[same:])
        stats.num_prompt_tokens = len(self.ids)
        return same

    def start(self) -> RowStart:
        """Return what a drafter learns when the row begins."""
        return RowStart(self.id, self.view, self.request.seed, self.request.source)

    def draft_view(self, room: int | None) -> DraftView:
        """Return what a drafter sees, and the room that is left; a step emits one token beyond the draft.

        Args:
            room: how many ids the target lets be drafted here; None for no bound.
        """
        depth = self.request.stopping.longest - len(self.ids) - 1
        depth = max(0, depth if room is None else min(depth, room))
        sampler = self.request.sampler
        decisions = sampler.decisions.at(len(self.ids)) if sampler.decisions else None
        nodes = (MAX_NODES if room is None else min(MAX_NODES, room)) if depth else 0
        return DraftView(self.id, self.view, depth, nodes, sampler.rule, decisions, sampler.processors.warp)

    def scores(self, logits: torch.Tensor, tree: DraftTree) -> NodeScores:
        """Return the scores at a tree's nodes from the forward's logits `[1 + nodes or more, vocab]`."""
        logits = logits[: 1 + len(tree)]
        return self.request.sampler.scores(logits, tree, self.ids, keep=bool(self.request.evidence))

    def cut(self, scores: NodeScores, verdict: Verdict) -> Decision:
        """Say where the text stops among the tokens that a verdict gives."""
        tokens = verdict.tokens(scores.tree)
        kept, reason = self.request.stopping.cut(self.ids, tokens, self._shown(scores, (ROOT, *verdict.path)))
        return Decision(verdict, kept, reason)

    def take(self, scores: NodeScores, decision: Decision) -> tuple[Step, tuple[int, ...]]:
        """Take over a step's tokens, up to where the text stops; returns the nodes that were accepted with them."""
        verdict, kept, reason = decision.verdict, decision.kept, decision.finish_reason
        tokens, accepted = verdict.tokens(scores.tree)[:kept], verdict.path[:kept]
        evidence = Evidence.of(self.request.evidence, scores, (ROOT, *verdict.path)[:kept], tokens)
        self.ids.extend(tokens)
        self.view.grow(tokens)
        self.stats.num_tokens += kept
        self._seen = self._seen[: len(self.ids) - len(self.request.ids)]
        drafted = tuple(index < len(accepted) for index in range(kept))
        return Step(tokens, drafted, reason, evidence=evidence), accepted

    def _shown(self, scores: NodeScores, nodes: Sequence[int]) -> tuple[torch.Tensor, ...] | None:
        """Return the scores of all new tokens, which `generate` shows its criteria where they are put out."""
        if not (self.request.stopping.criteria and "output_scores" in self.request.evidence):
            return None
        self._seen = [*self._seen, *[scores(node)[None] for node in nodes]]
        return tuple(self._seen)

    def outcome(self, step: Step, tree: DraftTree, path: tuple[int, ...], features: Features | None) -> Outcome:
        """Return what the drafter hears of a step."""
        return Outcome(self.id, self.view, step.tokens, tree, path, features)
