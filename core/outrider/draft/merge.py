"""Merging: one tree that holds what several drafters propose for the same row."""

from collections import Counter
from collections.abc import Sequence

from outrider.draft.tree import ROOT, DraftTree, Places


def merge(trees: Sequence[DraftTree], budget: int, room: int | None = None) -> tuple[DraftTree, list[Places]]:
    """Merge trees that begin with common tokens into one.

    A node's chance is at most its parent's, so where the budget is short the deepest nodes go first, whosever they are, and
    within a level the later trees'. What is left keeps its order, the first tree's nodes first: then its favourite path still
    is the prefix that is cheapest to commit, and one tree merged with itself is itself.

    Drawn nodes become chosen ones: a law says nothing of a tree that others had a part in. That is exact under every rule,
    since no draft depends on the target's own draws. Scouts come last: those of a tree ride all together, or not
    at all where there is no room or what they hang from was dropped.

    Args:
        trees: of one row, the most trusted first.
        budget: most nodes that are verified.
        room: most nodes, scouts included; by default `budget`.

    Returns:
        The merged tree, coupled where any of `trees` is, and for each of `trees` where its nodes are in it.
    """
    nodes, found = _unite(trees)
    room = budget if room is None else room
    depths = DraftTree(tuple(token for _, token in nodes), tuple(parent for parent, _ in nodes)).depths()
    kept = sorted(sorted(range(len(nodes)), key=depths.__getitem__)[: max(0, min(budget, room))])
    place = {ROOT: ROOT} | {node: at for at, node in enumerate(kept)}
    found = [{node: place[at] for node, at in own.items() if at in place} for own in found]
    tokens, parents = [nodes[node][1] for node in kept], [place[nodes[node][0]] for node in kept]
    for tree, own in zip(trees, found, strict=True):
        own |= _ride(tree, own, len(kept), tokens, parents, room)
    coupled = bool(tokens) and any(tree.coupled for tree in trees)
    scouts = frozenset(range(len(kept), len(tokens)))
    merged = DraftTree(tuple(tokens), tuple(parents), coupled=coupled, scouts=scouts)
    return merged, [tuple(own.get(node) for node in range(len(tree))) for tree, own in zip(trees, found, strict=True)]


def _unite(trees: Sequence[DraftTree]) -> tuple[list[tuple[int, int]], list[dict[int, int]]]:
    """Return all candidates together as parent and token, and where each tree's are among them."""
    nodes: dict[tuple[int, int], int] = {}
    found = []
    for tree in trees:
        own = {ROOT: ROOT}
        for node, (token, parent) in enumerate(zip(tree.tokens, tree.parents, strict=True)):
            if node not in tree.scouts:
                own[node] = nodes.setdefault((own[parent], token), len(nodes))
        found.append(own)
    return list(nodes), found


def _ride(
    tree: DraftTree, own: dict[int, int], first: int, tokens: list[int], parents: list[int], room: int
) -> dict[int, int]:
    """Put a tree's scouts behind the merged nodes, all or none, and return where they are.

    A scout may repeat its sibling; another tree's may be the same as long as it is the same repetition.
    """
    ranks: Counter[tuple[int, int]] = Counter()
    there = {}
    for node in range(first, len(tokens)):
        key = parents[node], tokens[node]
        there[*key, ranks[key]] = node
        ranks[key] += 1
    ranks.clear()
    riding: dict[int, int] = {}
    fresh: list[tuple[int, int]] = []
    for node in sorted(tree.scouts):
        above = (own | riding).get(tree.parents[node])
        if above is None:
            return {}
        key = above, tree.tokens[node]
        place = there.get((*key, ranks[key]))
        if place is None:
            place = len(tokens) + len(fresh)
            fresh.append(key)
        ranks[key] += 1
        riding[node] = place
    if len(tokens) + len(fresh) > room:
        return {}
    parents += [parent for parent, _ in fresh]
    tokens += [token for _, token in fresh]
    return riding
