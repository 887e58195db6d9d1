"""The real loop, its verdicts told: a drafter is led through any acceptances, with the features that it asks for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import torch

from outrider.decode.loop import open_cache, read_prompts, take_step
from outrider.decode.request import Request
from outrider.decode.row import Row
from outrider.decode.stats import Stats
from outrider.decode.stopping import Stopping
from outrider.draft.contract import MAX_NODES, DraftBatch, DraftDecisions, Drafter, DraftView
from outrider.draft.guard import Guard
from outrider.draft.pace import Pace, Plan
from outrider.draft.tree import ROOT, DraftTree
from outrider.target.model import PREFILL_CHUNK, Target
from outrider.verify.decisions import Keyed
from outrider.verify.match import Verdict
from outrider.verify.processors import Processors
from outrider.verify.sampling import NodeScores, Sampler

LONGEST: Final = 500
Pick = Callable[[DraftTree], int]
"""The node down to which a tree is accepted, `ROOT` for nothing."""
PLAIN: Final = Processors((), context_free=True)


def nothing(tree: DraftTree) -> int:  # noqa: ARG001
    """Accept nothing."""
    return ROOT


@dataclass(slots=True)
class Told:
    """The next verdict of a row."""

    pick: Pick = nothing
    bonus: int = 0


@dataclass(frozen=True, slots=True)
class ToldSampler(Sampler):
    """Decides as it is told."""

    told: Told = field(kw_only=True, default_factory=Told)

    def draws(self, scores: NodeScores) -> torch.Tensor | None:  # noqa: ARG002
        """Draw nothing."""
        return None

    def decide(self, scores: NodeScores, length: int, drawn: Sequence[int] | None) -> Verdict:  # noqa: ARG002
        """Accept what was told."""
        return Verdict(scores.tree.path(self.told.pick(scores.tree)), self.told.bonus)


class Asking(Pace):
    """Asks for drafts in as much room as it is told, or not at all, as adaptive decoding does in steps that don't pay."""

    def __init__(self) -> None:
        self.depth: int | None = None
        self.nodes = MAX_NODES

    def plan(self, views: Sequence[DraftView]) -> Plan:
        """See `Pace`."""
        if self.depth is None:
            return Plan(tuple(views))
        depth = self.depth
        return Plan(
            tuple(
                replace(view, max_depth=min(depth, view.max_depth), max_nodes=min(self.nodes, view.max_nodes))
                for view in views
            )
        )


class Lead:
    """Rows whose tokens are told.

    Args:
        target: the model.
        drafter: that is led.
        prompts: of the rows.
        chunk: most ids of a prompt in one forward.
        guard: in place of one that is made for `drafter`.
    """

    def __init__(
        self,
        target: Target,
        drafter: Drafter[Any],
        prompts: Sequence[Sequence[int]],
        chunk: int = PREFILL_CHUNK,
        guard: Guard | None = None,
    ) -> None:
        self.target, self.guard = target, guard or Guard(drafter)
        self.needs = self.guard.needs()
        self.told = [Told() for _ in prompts]
        self.rows = [
            Row(self._request(ids, told, chunk), Stats()) for ids, told in zip(prompts, self.told, strict=True)
        ]
        self.asking = Asking()
        self.cache: Any = None

    def _request(self, ids: Sequence[int], told: Told, chunk: int) -> Request:
        stopping = Stopping(frozenset(), LONGEST, (), self.target.info.device)
        return Request(tuple(ids), ToldSampler(PLAIN, None, told=told), stopping, seed=1, chunk=chunk)

    def start(self, tokens: Sequence[int]) -> None:
        """Begin the rows and read their prompts; `tokens` are the first of each."""
        self.guard.begin([row.start() for row in self.rows])
        self.cache = open_cache(self.target, self.rows, self.needs)
        self._tell([nothing] * len(tokens), tokens)
        read_prompts(self.target, self.guard, self.rows, self.cache, self.needs)

    def step(self, picks: Sequence[Pick], bonuses: Sequence[int], *, ask: bool = True) -> list[DraftTree]:
        """Take a step; returns the trees that were proposed."""
        self._tell(picks, bonuses)
        self.asking.depth = None if ask else 0
        seen: list[DraftTree] = []
        for told, pick in zip(self.told, picks, strict=True):
            told.pick = _seeing(pick, seen)
        take_step(self.target, self.guard, self.rows, self.cache, self.needs, self.asking)
        return seen

    def follow(self, tokens: Sequence[int]) -> None:
        """Let the only row go on with tokens of which none was drafted."""
        for token in tokens:
            self.step([nothing], [token], ask=False)

    def views(
        self,
        depth: int = 20,
        nodes: int = MAX_NODES,
        seed: int | None = None,
        rule: str = "match",
        decisions: DraftDecisions | None = None,
        warp: Callable[[torch.Tensor], torch.Tensor] = PLAIN.warp,
    ) -> list[DraftView]:
        """Return what the drafter would see of the rows."""
        made = [
            decisions or (None if seed is None else Keyed(seed + at, len(row.ids))) for at, row in enumerate(self.rows)
        ]
        return [
            DraftView(row.id, row.view, depth, nodes, rule, own, warp) for row, own in zip(self.rows, made, strict=True)
        ]

    def propose(self, **room: Any) -> DraftTree:
        """Return what the drafter proposes for the first row, without a step; see `views`."""
        return self.guard.propose(DraftBatch(tuple(self.views(**room))))[1][0]

    def leave(self, at: int) -> None:
        """End a row before the others."""
        self.guard.end([self.rows[at].id])
        staying = [place for place in range(len(self.rows)) if place != at]
        self.target.select(self.cache, staying)
        self.rows = [self.rows[place] for place in staying]
        self.told = [self.told[place] for place in staying]

    def turn(self, length: int, more: Sequence[int], first: int) -> None:
        """Let the only row begin another turn, as a session does: its first `length` ids stay, `more` follow."""
        (row,) = self.rows
        row.ids[length:] = more
        row.view.replace(length, more)
        stays = max(0, length - 1) if self.needs.hidden else length
        if not self.target.tier.truncate(self.cache, stays):
            stays, self.cache = 0, open_cache(self.target, self.rows, self.needs)
        self.guard.truncate(row.id, stays if self.needs else length)
        self._tell([nothing], [first])
        read_prompts(self.target, self.guard, self.rows, self.cache, self.needs)

    def _tell(self, picks: Sequence[Pick], bonuses: Sequence[int]) -> None:
        for told, pick, bonus in zip(self.told, picks, bonuses, strict=True):
            told.pick, told.bonus = pick, bonus

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.guard.end([row.id for row in self.rows])


def _seeing(pick: Pick, seen: list[DraftTree]) -> Pick:
    def chosen(tree: DraftTree) -> int:
        seen.append(tree)
        return pick(tree)

    return chosen
