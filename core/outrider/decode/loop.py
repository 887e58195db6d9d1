"""The decode loop: draft, one target forward, verify, cut, commit."""

from collections.abc import Iterator
from typing import Final

from outrider.decode.request import Request
from outrider.decode.row import Row, Step
from outrider.decode.stats import Stats
from outrider.draft.contract import MAX_NODES, DraftBatch, OutcomeBatch
from outrider.draft.guard import Guard
from outrider.draft.tree import DraftTree
from outrider.target.model import Target

_RESERVED_TOKENS: Final = 1024


def decode(target: Target, drafter: Guard, request: Request, stats: Stats) -> Iterator[Step]:
    """Decode one row, a step at a time; the text is that of plain decoding, whatever the drafter proposes.

    Args:
        target: the model.
        drafter: what proposes.
        request: prompt, sampler and stops.
        stats: counted into; the time between steps, which is the caller's, is not.
    """
    row, sampler, keep = Row(request, target.info, stats), request.sampler, bool(request.evidence)
    cache = target.open(1, min(request.stopping.max_length, len(row.ids) + _RESERVED_TOKENS) + MAX_NODES)
    try:
        with stats.timing("seconds"), stats.timing("prefill_seconds"):
            drafter.begin([row.start()])
            logits = target.prefill(cache, row.prompt())
            scores = sampler.scores(logits, DraftTree(), row.ids, keep=keep)
            step, outcome = row.first(scores, sampler.verify(scores, len(row.ids)))
            drafter.observe(OutcomeBatch((outcome,)))
        yield step
        while step.finish_reason is None:
            with stats.timing("seconds"):
                with stats.timing("draft_seconds"):
                    trees, (tree,) = drafter.propose(DraftBatch((row.draft_view(),)))
                with stats.timing("forward_seconds"):
                    logits = target.forward(cache, *row.root(), trees)
                    scores = sampler.scores(logits[0], tree, row.ids, keep=keep)
                    verdict = sampler.verify(scores, len(row.ids))
                step, outcome = row.emit(scores, verdict)
                # The last token is the next step's root, and a root is not in the cache yet.
                target.commit(cache, trees.width, [outcome.path[: len(step.tokens) - 1]])
                drafter.observe(OutcomeBatch((outcome,)))
            yield step
    finally:
        drafter.end([row.id])
