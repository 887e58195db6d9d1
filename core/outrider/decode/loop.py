"""The decode loop: draft, one target forward, verify, cut, commit."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from time import perf_counter
from typing import Final

import torch

from outrider.decode.request import Request
from outrider.decode.stats import Stats
from outrider.decode.stopping import FinishReason
from outrider.draft.contract import MAX_NODES, DraftBatch, DraftView, Outcome, OutcomeBatch, RowStart, TokenView
from outrider.draft.guard import Guard
from outrider.draft.tree import DraftTree
from outrider.target.model import Target
from outrider.verify.match import match

_ROW_IDS: Final = count()


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


def decode(target: Target, drafter: Guard, request: Request, stats: Stats) -> Iterator[Step]:
    """Decode one row, a step at a time; the text is that of plain decoding, whatever the drafter proposes.

    Args:
        target: the model.
        drafter: what proposes.
        request: prompt, sampler and stops.
        stats: counted into; the time between steps, which belongs to the caller, is not.
    """
    clock = perf_counter()
    ids, row, device = list(request.ids), next(_ROW_IDS), target.info.device
    view = TokenView(ids)
    stats.num_prompt_tokens = len(ids)
    cache = target.open(1, min(request.stopping.max_length, len(ids) + _RESERVE) + MAX_NODES)
    try:
        drafter.begin([RowStart(row, view, request.seed)])
        logits = target.prefill(cache, torch.tensor([ids], device=device))
        tokens, tree, path = (request.sampler.first(logits[0], ids),), DraftTree(), ()
        stats.prefill_seconds = perf_counter() - clock
        while True:
            kept, reason = request.stopping.cut(ids, tokens)
            tokens, accepted = tokens[:kept], path[:kept]
            if len(ids) > len(request.ids):  # the prefill has nothing to settle
                target.commit(cache, len(tree), [path[: kept - 1]])
                stats.count_step(len(tree), len(accepted))
            ids.extend(tokens)
            stats.num_tokens += kept
            drafter.observe(OutcomeBatch((Outcome(row, view, tokens, tree, accepted),)))
            stats.seconds += perf_counter() - clock
            yield Step(tokens, tuple(index < len(accepted) for index in range(kept)), reason)
            if reason:
                return

            clock = perf_counter()
            trees, (tree,) = drafter.propose(DraftBatch((_draft_view(target, request, row, view),)))
            drafted = perf_counter()
            root, length = torch.tensor([ids[-1]], device=device), torch.tensor([len(ids) - 1], device=device)
            logits = target.forward(cache, root, trees, length)
            draw = request.sampler.draws(logits[0], tree, ids)
            stats.draft_seconds += drafted - clock
            stats.forward_seconds += perf_counter() - drafted
            verdict = match(tree, draw)
            path = verdict.path
            tokens = (*[tree.tokens[node] for node in path], verdict.bonus)
    finally:
        drafter.end([row])


_RESERVE: Final = 1024


def _draft_view(target: Target, request: Request, row: int, ids: TokenView) -> DraftView:
    """Say how much room a row has: a step emits one token beyond the draft, and no draft passes the last position."""
    depth = request.stopping.max_length - len(ids) - 1
    if target.info.max_positions is not None:
        depth = min(depth, target.info.max_positions - len(ids))
    depth = max(depth, 0)
    return DraftView(row, ids, depth, MAX_NODES if depth else 0)
