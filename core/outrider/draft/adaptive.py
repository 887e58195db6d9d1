"""Adaptive drafting: as far as pays by measured costs and acceptance, and not at all where plain decoding is faster.

The expected speed of a step that drafts g deep is E(g) / (t(g) + T(n)), with E(g) = 1 + s_1 + ... + s_g from measured
acceptance, t the measured seconds of a draft, and T those of a target forward of n rows: Leviathan et al. 2022
(arXiv:2211.17192), section 3.3, with measured costs in place of constants. Choices are made before a draft from what lies
behind, never from what is being drawn, so that every rule stays lossless.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from outrider.draft.acceptance import Acceptance, Share
from outrider.draft.account import Account
from outrider.draft.contract import DraftView
from outrider.draft.cost import Costs
from outrider.draft.drafting import Drafting
from outrider.draft.pace import Pace, Plan, Taken
from outrider.draft.timings import Timings, gently_rising

_FIRST_DEPTH: Final = 4
"""Depth of the first draft, whose cost is not known yet; a drafter that fills its depth may go twice as deep next."""
_DEPTHS: Final = frozenset((*range(1, 9), 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64))
_LONGEST_WAIT: Final = 64
_CHECK_PLAIN: Final = 16
_PLAIN_SAMPLES: Final = 2
_CLEAR: Final = 2.0


def pace_for(adaptive: bool | Costs, forward: Timings, *, weighs_nodes: bool) -> Pace:
    """Return the pace that the option `adaptive` asks for.

    Args:
        adaptive: whether to adapt; costs to go by those and no clock.
        forward: what forwards of the target cost.
        weighs_nodes: see `Drafter.weighs_nodes`.
    """
    if adaptive is False:
        return Pace()
    if adaptive is True:
        forward.age()
        return Adaptive(forward, Drafting(Timings(float), None), weighs_nodes=weighs_nodes)
    drafting = Drafting(Timings.fixed(adaptive.draft, float), adaptive.catch_up)
    return Adaptive(Timings.fixed(adaptive.forward, gently_rising), drafting, weighs_nodes=weighs_nodes)


@dataclass(frozen=True, slots=True)
class Choice:
    """A depth with the tokens that are expected of it, a row, and its cost in plain steps."""

    depth: int
    tokens: float
    cost: float

    @property
    def speed(self) -> float:
        """Against plain decoding."""
        return self.tokens / self.cost


class Adaptive(Pace):
    """See `Account` for how much trying may cost.

    Args:
        forward: seconds of a target forward by its rows.
        drafting: what drafts cost.
        weighs_nodes: the drafter chooses its trees' size itself, and is turned on and off only.
    """

    def __init__(self, forward: Timings, drafting: Drafting, *, weighs_nodes: bool) -> None:
        self._forward, self._drafting, self._whole = forward, drafting, weighs_nodes
        self._acceptance, self._account = Acceptance(), Account()
        self._tokens, self._cost = Share(3.0, 3.0), Share(1.5, 3.0)  # of whole drafts: hopeful, so that they are tried
        self._empty = Share(0.0, 1.0)
        self._steps, self._limit, self._asked = 0, _FIRST_DEPTH, False
        self._since_plain, self._check, self._speed = 0, _CHECK_PLAIN, 1.0
        self._waited, self._wait, self._trying = 0, 1, False
        self._unbooked: list[Taken] = []  # made before the cost of a plain step was known

    @property
    def won(self) -> float:
        """What drafting has won so far, in plain steps."""
        return self._account.balance

    def restart(self) -> None:
        """Expect the next draft to read a prompt first."""
        self._drafting.restart()

    def plan(self, views: Sequence[DraftView]) -> Plan:
        """Cut the rows' room to the depth that is expected to be fastest, or to nothing."""
        room = max(view.max_depth for view in views)
        if not room:
            return Plan(tuple(views), 0)
        depth = self._choose(len(views), room)
        if depth == 0:
            return Plan(tuple(replace(view, max_depth=0, max_nodes=0) for view in views), 0, paused=True)
        most, cost = room if depth is None else depth, partial(_relative, self._forward, len(views))
        return Plan(tuple(replace(one, max_depth=min(one.max_depth, most), cost=cost) for one in views), depth)

    def _choose(self, rows: int, room: int) -> int | None:
        """Return the depth of the next draft, None for any, 0 for none."""
        if not self._asked:
            return None if self._whole else min(room, _FIRST_DEPTH)
        if self._wants_plain(rows):
            return 0
        best = self._best(rows, room)
        self._speed, self._trying = best.speed, best.speed <= 1.0
        at_risk = best.cost - 1.0 + self._drafting.late / self._forward.at(rows)  # a step gives one token at least
        if self._trying:
            asks = self._waited >= self._wait and at_risk <= self._account.to_try
        else:
            asks = at_risk <= self._account.to_lose
        if not asks:
            return 0
        return None if self._whole else best.depth

    def _wants_plain(self, rows: int) -> bool:
        """Say whether a plain step's cost is not known, or not known lately where that may change the choice."""
        if self._forward.frozen:
            return False
        if self._forward.measured(rows) < (1 if self._speed > _CLEAR else _PLAIN_SAMPLES):
            return True
        if self._since_plain < self._check * max(self._speed, 1.0):
            return False
        self._check = min(2 * self._check, _LONGEST_WAIT)
        return True

    def _best(self, rows: int, room: int) -> Choice:
        """Return the fastest depth; of two that are alike the shorter."""
        forward, drafting, plain = self._forward, self._drafting, self._forward.at(rows)
        empty, full = self._empty.value, 1.0 - self._empty.value
        idle = empty * (1.0 + drafting.idle / plain)
        if self._whole:
            return Choice(room, empty + full * self._tokens.value, idle + full * self._cost.value)
        deepest = max(1, min(room, self._limit))
        best, tokens, cost, expected, nodes = 0, 0.0, 1.0, 1.0, 0.0
        for depth, survival in enumerate(self._acceptance.survivals(deepest, self._steps), 1):
            expected += survival
            nodes += drafting.nodes(depth)
            if depth not in _DEPTHS and depth != deepest:
                continue
            brings = empty + full * expected
            takes = idle + full * (drafting.seconds(depth) + forward.at(rows * (1.0 + nodes))) / plain
            if brings * cost > tokens * takes * 1.0001:
                best, tokens, cost = depth, brings, takes
        return Choice(best, tokens, cost)

    def learn(self, plan: Plan, taken: Taken) -> None:
        """Take in what a step cost and brought."""
        self._steps += 1
        self._forward.add(taken.rows * (1 + taken.width), taken.forward_seconds)
        self._account.emit(taken.tokens)
        if taken.width:
            self._since_plain += 1
            self._learn_draft(plan, taken)
            return
        self._since_plain = 0
        self._waited += 1
        while self._unbooked:
            self._book(self._unbooked.pop())
        if any(view.max_depth for view in plan.views):
            self._asked = True
            self._empty.learn(1.0, self._steps)
            self._account.book(-self._drafting.learn_nothing(taken.draft_seconds) / self._forward.at(taken.rows))
        else:
            self._drafting.miss()

    def _learn_draft(self, plan: Plan, taken: Taken) -> None:
        deep = max(tree.depth for tree in taken.trees)
        depth = deep if plan.depth is None else plan.depth
        seconds = self._drafting.learn(taken.trees, depth, taken.draft_seconds)
        cost = (self._forward.at(taken.rows * (1 + taken.width)) + seconds) / self._forward.at(taken.rows)
        self._acceptance.learn(taken.accepted, depth, self._steps)
        self._empty.learn(0.0, self._steps)
        self._tokens.learn(taken.tokens, self._steps)
        self._cost.learn(cost, self._steps)
        self._account.book(-seconds / self._forward.at(taken.rows))
        if self._forward.frozen or self._forward.measured(taken.rows):
            self._book(taken)
        else:
            self._unbooked.append(taken)
        if deep >= depth:
            self._limit = max(self._limit, 2 * deep)
        self._asked, self._waited = True, 0
        failed = self._trying and taken.tokens < cost
        self._wait = min(2 * self._wait, _LONGEST_WAIT) if failed else 1

    def _book(self, taken: Taken) -> None:
        """Book what a step brought, and its forward."""
        cost = self._forward.at(taken.rows * (1 + taken.width)) / self._forward.at(taken.rows)
        self._account.book(taken.tokens - cost)


def _relative(forward: Timings, rows: int, own: int) -> float:
    """Return the cost of a forward in which every one of the rows has as many, in forwards of one each."""
    return forward.at(rows * own) / forward.at(rows)
