"""What a match is grown into: the likeliest continuations, and of all matches the one that promises the most tokens.

SuffixDecoding (Oliaro et al. 2024, arXiv:2411.04975, section 3): a longer match may draft more, chances are products of
frequencies, and a draft's worth is the sum of its nodes' chances.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outrider import ROOT, DraftTree
from outrider_suffix.suffixes import Node, SuffixTree

Shares = Callable[[int, list[int], list[float]], list[float]]
"""Makes of a depth, tokens and their shares the shares that a draft is grown by."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How drafts grow.

    Args:
        nodes: most nodes.
        depth: longest path.
        factor: how many nodes a token of the match is good for.
        least: a node's least chance.
        tree: whether drafts branch.
    """

    nodes: int
    depth: int
    factor: float
    least: float
    tree: bool

    def budget(self, match: int) -> int:
        """Return the most nodes that a match of a length may have."""
        return min(self.nodes, int(match * self.factor))


@dataclass(frozen=True, slots=True)
class Match:
    """A string that a text ends with, where it came up before.

    Args:
        tree: where.
        node: the string's.
        length: of the string.
    """

    tree: SuffixTree
    node: Node
    length: int


@dataclass(frozen=True, slots=True)
class Draft:
    """A draft, the likeliest node first.

    Args:
        match: what it goes on from.
        tokens: of the nodes.
        parents: of the nodes, each before its children.
        chances: of the nodes to be accepted, falling.
    """

    match: Match
    tokens: list[int]
    parents: list[int]
    chances: list[float]

    @property
    def score(self) -> float:
        """How many of its tokens are expected to be accepted, at most."""
        return sum(self.chances)

    def first(self, count: int, *, coupled: bool) -> DraftTree:
        """Return the tree of its likeliest nodes."""
        return DraftTree(tuple(self.tokens[:count]), tuple(self.parents[:count]), coupled=coupled and count > 0)


def best_draft(matches: Sequence[Sequence[Match]], rule: Rule) -> Draft | None:
    """Return the draft of the highest score; of equals that of the longer match, and then of the earlier source.

    Args:
        matches: of every source, by their lengths from 1.
        rule: how drafts grow.
    """
    best: Draft | None = None
    for match in sorted((one for source in matches for one in source), key=lambda one: -one.length):
        # No chance is above 1, so that a shorter match can't be worth more than its budget.
        if best is not None and rule.budget(match.length) <= best.score:
            break
        draft = grow(match, rule)
        if draft.tokens and (best is None or draft.score > best.score):
            best = draft
    return best


def grow(match: Match, rule: Rule, shares: Shares | None = None) -> Draft:
    """Grow a draft from a match, the likeliest node next.

    Args:
        match: what is gone on from.
        rule: how far.
        shares: how the chances of a node's children are told from their frequencies; by default they are the chances.
    """
    draft = Draft(match, [], [], [])
    heap: list[tuple[float, int, int, int, Node]] = []
    made = 0

    def open_below(node: Node, parent: int, depth: int, chance: float) -> None:
        nonlocal made
        if depth > rule.depth:
            return
        tokens, known = _known(match, node, depth)
        known = known if shares is None else shares(depth, tokens, known)
        several = sorted(zip(known, tokens, strict=True), key=lambda one: -one[0])
        for share, token in several[: None if rule.tree else 1]:
            child = match.tree.child(node, token) if chance * share >= rule.least else None
            if child is not None:
                made += 1
                heapq.heappush(heap, (-chance * share, made, token, parent, child))

    depths = {ROOT: 0}
    open_below(match.node, ROOT, 1, 1.0)
    while heap and len(draft.tokens) < rule.budget(match.length):
        loss, _, token, parent, node = heapq.heappop(heap)
        at = len(draft.tokens)
        draft.tokens.append(token)
        draft.parents.append(parent)
        draft.chances.append(-loss)
        depths[at] = depths[parent] + 1
        open_below(node, at, depths[at] + 1, -loss)
    return draft


def _known(match: Match, node: Node, depth: int) -> tuple[list[int], list[float]]:
    """Return what follows a string, and its share of all that may.

    Where n tokens follow in k ways, something else is given k / length of a place beside the n: a string that always went on
    alike may be trusted the more the longer it is, and frequencies alone would call every single place sure.
    """
    following = match.tree.following(node)
    length = match.length + depth - 1
    places = sum(count for _, count in following) + len(following) / length
    return [token for token, _ in following], [count / places for _, count in following]
