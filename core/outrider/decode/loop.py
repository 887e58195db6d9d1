"""The decode loop: draft, one target forward, verify, cut, commit."""

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any, Final

from outrider.decode.row import Decision, Row, Step
from outrider.decode.stats import Stats, timing
from outrider.decode.work import Forward, Work
from outrider.draft.adaptive import pace_for
from outrider.draft.contract import MAX_NODES, DraftBatch, Outcome, OutcomeBatch
from outrider.draft.features import Features, Needs
from outrider.draft.guard import Guard
from outrider.draft.led import LedPace
from outrider.draft.pace import Pace, Taken
from outrider.draft.tree import DraftTree
from outrider.target.call import Scored
from outrider.target.model import Target
from outrider.target.tier import Opening, Piece
from outrider.verify.sampling import NodeScores, verify_rows

RESERVED_TOKENS: Final = 1024
Emitted = list[tuple[Row, Step]]


def decode(target: Target, drafter: Guard, rows: Sequence[Row], given: Any = None) -> Generator[Emitted, None, None]:
    """Decode rows together, a step at a time; every text is that of plain decoding, whatever the drafter proposes.

    Args:
        target: the model.
        drafter: what proposes.
        rows: a text each; those that stop leave.
        given: transformers' cache of a single row, with what it holds of the row's ids; gets the rest at the end.

    Yields:
        What every row that was still going has emitted. The time between steps, which is the caller's, is not counted.
    """
    live, needs = list(rows), drafter.needs()
    if len(live) > 1 and target.parts_rows(max(row.request.stopping.longest for row in live)):
        for row in live:
            yield from decode(target, drafter, [row])
        return
    try:
        with timing(_stats(live), "seconds"), timing(_stats(live), "prefill_seconds"):
            drafter.begin([row.start() for row in live])
            cache = open_cache(target, live, needs, whole=given is not None)
            if given is not None:
                target.tier.adopt(cache, given)
            emitted = read_prompts(target, drafter, live, cache, needs)
        pace = pace_of(target, drafter, live)
        yield emitted
        while staying := [at for at, (_, step) in enumerate(emitted) if step.finish_reason is None]:
            if len(staying) < len(live):
                drafter.end([row.id for at, row in enumerate(live) if at not in staying])
                target.select(cache, staying)
                live = [live[at] for at in staying]
            emitted = take_step(target, drafter, live, cache, needs, pace)
            yield emitted
        if given is not None:
            target.tier.release(cache, given)
    finally:
        drafter.end([row.id for row in live])


def pace_of(target: Target, drafter: Guard, rows: Sequence[Row]) -> Pace:
    """Return what decides how far rows that are decoded together draft."""
    adaptive = rows[0].request.adaptive
    pace = pace_for(adaptive, target.costs, weighs_nodes=drafter.drafter.weighs_nodes)
    return LedPace(pace, target.ranks) if target.ranks.several and adaptive is not False else pace


def open_cache(target: Target, rows: Sequence[Row], needs: Needs, *, whole: bool = False) -> Any:
    """Make the cache of some rows, with room for their texts."""
    requests = [row.request for row in rows]
    longest = max(min(one.stopping.longest, len(one.ids) + RESERVED_TOKENS) for one in requests)
    static = requests[0].static
    capacity = (max(one.stopping.longest for one in requests) if static else longest) + MAX_NODES + 1
    return target.open(
        len(rows), Opening(capacity, needs.hidden, needs.keys_values, [one.context for one in requests], static, whole)
    )


def read_prompts(target: Target, drafter: Guard, rows: Sequence[Row], cache: Any, needs: Needs) -> Emitted:
    """Read what the cache does not hold of the rows' ids; every row's first token comes from that."""
    heard: list[Piece] = []

    def hear(pieces: list[Piece]) -> None:
        """Pass a chunk's features on, so that no more than a chunk is kept; each row's last comes with its first token."""
        if needs:
            done = [piece for piece in heard if any(piece.row == other.row for other in pieces)]
            if done:
                drafter.observe(OutcomeBatch(tuple(_read(rows[one.row], one) for one in done)))
            heard[:] = [*(piece for piece in heard if piece not in done), *pieces]

    unread = [row.ids[length:] for row, length in zip(rows, target.tier.lengths(cache), strict=True)]
    logits = target.prefill(cache, unread, hear, rows[0].request.chunk)
    scores = [row.scores(logits[index : index + 1], DraftTree()) for index, row in enumerate(rows)]
    decided = _verify(target, rows, scores)
    steps = [row.take(one, decision)[0] for row, one, decision in zip(rows, scores, decided, strict=True)]
    last = {piece.row: _piece_features(piece) for piece in heard}
    emitted = list(zip(rows, steps, strict=True))
    outcomes = [row.outcome(step, DraftTree(), (), last.get(at)) for at, (row, step) in enumerate(emitted)]
    drafter.observe(OutcomeBatch(tuple(outcomes)))
    return emitted


def take_step(target: Target, drafter: Guard, rows: Sequence[Row], cache: Any, needs: Needs, pace: Pace) -> Emitted:
    """Draft, verify and commit once for all rows."""
    with timing(_stats(rows), "seconds") as whole:
        emitted, works = _step(target, drafter, rows, cache, needs, pace)
    return [
        (row, replace(step, work=replace(work, seconds=whole.seconds)))
        for (row, step), work in zip(emitted, works, strict=True)
    ]


def _step(
    target: Target, drafter: Guard, rows: Sequence[Row], cache: Any, needs: Needs, pace: Pace
) -> tuple[Emitted, list[Work]]:
    columns = target.tier.columns(cache)
    plan = pace.plan([row.draft_view(target.room(row.ids, columns)) for row in rows])
    with timing(_stats(rows), "draft_seconds") as drafting:
        batch, trees = drafter.propose(DraftBatch(plan.views))
    with timing(_stats(rows), "forward_seconds") as scoring:
        forward = Forward(target.info.device)
        scored = target.forward(cache, [row.ids[-1] for row in rows], batch)
        forward.over()
        scores = [row.scores(scored.logits[at], trees[at]) for at, row in enumerate(rows)]
        decided = _verify(target, rows, scores)
    taken = [row.take(scores[at], decided[at]) for at, row in enumerate(rows)]
    for row, tree, (_, path) in zip(rows, trees, taken, strict=True):
        row.stats.count_step(tree.candidates, len(path))
    # The last token is the next step's root, and a root is not in the cache yet.
    paths = [path[: len(step.tokens) - 1] for step, path in taken]
    shared = target.tier.shared(cache, batch.width, paths) if needs.keys_values else [{}] * len(rows)
    target.commit(cache, batch.width, paths)
    outcomes: list[Outcome] = []
    for at, (row, (step, path)) in enumerate(zip(rows, taken, strict=True)):
        features = _step_features(scored, at, trees[at], paths[at], needs) if needs else None
        if features:
            features = replace(features, first=len(row.ids) - len(step.tokens) - 1, keys_values=shared[at])
        outcomes.append(row.outcome(step, trees[at], path, features))
    drafter.observe(OutcomeBatch(tuple(outcomes)))
    accepted, counts = [len(one.verdict.path) for one in decided], [len(step.tokens) for step, _ in taken]
    pace.learn(plan, Taken(trees, accepted, counts, drafting.seconds, scoring.seconds))
    for row in rows:
        row.stats.count_pace(pace.won, paused=plan.paused)
    parts = drafting.seconds, forward.seconds, max(0.0, scoring.seconds - forward.seconds)
    works = [
        Work(trees[at], scores[at], path, plan.paused, len(rows), 0.0, *parts) for at, (_, path) in enumerate(taken)
    ]
    return [(row, step) for row, (step, _) in zip(rows, taken, strict=True)], works


def _verify(target: Target, rows: Sequence[Row], scores: Sequence[NodeScores]) -> list[Decision]:
    """Decide what is kept of every row's tree, and where its text stops."""

    def decide() -> list[Decision]:
        verdicts = verify_rows(
            [(row.request.sampler, one, len(row.ids)) for row, one in zip(rows, scores, strict=True)]
        )
        return [row.cut(one, verdict) for row, one, verdict in zip(rows, scores, verdicts, strict=True)]

    return target.ranks.decided(decide)


def _stats(rows: Sequence[Row]) -> list[Stats]:
    return [row.stats for row in rows]


def _read(row: Row, piece: Piece) -> Outcome:
    return Outcome(row.id, row.view, (), DraftTree(), (), _piece_features(piece))


def _piece_features(piece: Piece) -> Features:
    states = {layer: states[0] for layer, states in piece.scored.hidden.items()}
    kept = tuple(range(piece.tokens))
    return Features(states, kept, piece.scored.logits[0], piece.first, piece.keys_values)


def _step_features(scored: Scored, at: int, tree: DraftTree, path: Sequence[int], needs: Needs) -> Features:
    nodes = 1 + len(tree)
    states = {layer: states[at, :nodes] for layer, states in scored.hidden.items()}
    logits = scored.logits[at, :nodes] if needs.logits else None
    return Features(states, (0, *[node + 1 for node in path]), logits)
