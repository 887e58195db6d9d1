"""What a match is made into: as many nodes of its continuations as are worth their cost."""

from collections.abc import Sequence

from outrider import DraftTree, StepCost, best_size
from outrider_drafters.ngram.belief import MatchBelief
from outrider_drafters.ngram.index import Match


def draft(match: Match, paths: Sequence[Sequence[int]], belief: MatchBelief, room: int, cost: StepCost) -> DraftTree:
    """Return the likeliest nodes, as chains from the root.

    Args:
        match: what was found.
        paths: how each of its places goes on; no two begin alike.
        belief: how likely that is.
        room: most nodes.
        cost: of a target forward by its rows.
    """
    nodes = [
        (-chance, rank, step)
        for rank, path in enumerate(paths)
        for step, chance in enumerate(belief.chances(match, rank, len(path)))
    ]
    nodes = sorted(nodes)[:room]
    size = best_size([-chance for chance, _, _ in nodes], cost)
    # Chances fall along a path, so the nodes that are kept of it are its first.
    kept = [sum(rank == chosen for _, chosen, _ in nodes[:size]) for rank in range(len(paths))]
    return DraftTree.from_paths(path[:count] for path, count in zip(paths, kept, strict=True))
