"""Growing draft trees by score, a level at a time, for several rows at once.

EAGLE-2's dynamic tree (Li et al. 2024, arXiv:2406.16858, section 4): at every level the nodes of the best cumulative scores go
on, and in the end the best under the node budget are kept. The score is cumulative log q where the target decodes greedily.
Where it draws, trees are coupled: a token's score is log q + noise, with the very noise that the target will draw with, and
cumulative are log_softmax(sharpness (log q + noise)), an estimate of the chance that the token is the target's draw.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from outrider.draft.batch import TreeBatch
from outrider.draft.budget import within_budget
from outrider.draft.contract import DraftView
from outrider.draft.tree import ROOT

Law = Callable[[DraftView, torch.Tensor], torch.Tensor]
"""Makes of a view and logits `[count, draft vocab]` the laws q `[count, draft vocab]`, each row's sum 1."""

Guess = Callable[[torch.Tensor, torch.Tensor | None], torch.Tensor]
"""Reads tokens `[rows, count]` below `parents` as `Follower.guess` does; returns `[rows, count, draft vocab]` logits, or
`[rows, 1, draft vocab]` where the same go for all."""


def raw_scores(
    view: DraftView, law: torch.Tensor, depth: int, id_map: torch.Tensor | None, *, coupled: bool
) -> tuple[torch.Tensor, bool]:
    """Return what tokens of a depth are chosen by, and whether that holds the target's noise.

    Args:
        view: the row.
        law: `[count, draft vocab]` float64.
        depth: of the nodes that are chosen, 1 for the root's children.
        id_map: as in `Expansion`.
        coupled: whether the noise is used where it is offered.

    Returns:
        `[count, draft vocab]` float64, log q + noise, or log q.
    """
    scores = law.log()
    ids = torch.arange(scores.shape[-1], device=scores.device) if id_map is None else id_map
    noise = view.noise(depth, ids) if coupled else None
    return (scores, False) if noise is None else (scores + noise, True)


@dataclass(frozen=True, slots=True)
class Shape:
    """How a tree grows.

    Args:
        depth: longest path.
        branching: children of every node that goes on.
        beams: nodes of a level that go on.
        nodes: most nodes that are kept.
        confidence: paths end where the product of the laws' largest chances falls below it.
        coupled: whether the target's noise is used where it is offered; else tokens are the likeliest.
    """

    depth: int
    branching: int = 1
    beams: int = 1
    nodes: int = 64
    confidence: float = 0.0
    coupled: bool = True


class Sharpness:
    """How sharply log q + noise tells the target's draw: the factor in the softmax of coupled scores, learned from draws.

    The gradient of the draws' log-likelihood, over the variance of the scores (Newton's step), with a small rate.
    """

    _RATE: Final = 0.05

    def __init__(self) -> None:
        self._value: torch.Tensor | None = None

    def factor(self, like: torch.Tensor) -> torch.Tensor:
        """Return the factor as a scalar on the device of `like`; 1 before anything was learned."""
        if self._value is None:
            self._value = torch.ones((), dtype=torch.float64, device=like.device)
        return self._value.to(like.device)

    def learn(self, scores: torch.Tensor, token: int, id_map: torch.Tensor | None = None) -> None:
        """Take in what the target drew; a token that the drafter does not know teaches nothing.

        Args:
            scores: `[draft vocab]` float64, log q + noise of its draw's position.
            token: the draw.
            id_map: as in `Expansion`.
        """
        if id_map is not None:
            columns = (id_map == token).nonzero().flatten().tolist()
            token = columns[0] if columns else len(scores)
        if token >= len(scores):
            return
        factor = self.factor(scores)
        chances = (factor * scores).softmax(-1)
        finite = scores.clamp(min=-1e4)  # a filtered token's is -inf, and its chance 0
        mean = (chances * finite).sum()
        variance = (chances * (finite - mean).square()).sum()
        step = self._RATE * (finite[token] - mean) / (1.0 + variance)
        step = step.nan_to_num(0.0, 0.0, 0.0).clamp(-0.1, 0.1)  # numbers that are none teach nothing
        self._value = (factor + step).clamp(0.1, 4.0)


class Expansion:
    """Grows the trees of some rows.

    Args:
        views: the rows.
        shape: how the trees grow, within each row's `max_depth` and `max_nodes`.
        law: makes laws of the drafter's logits.
        sharpness: of coupled scores.
        id_map: `[draft vocab]` int64, the target's id of every draft id; None where they are the same.
    """

    def __init__(
        self,
        views: Sequence[DraftView],
        shape: Shape,
        law: Law,
        sharpness: Sharpness,
        id_map: torch.Tensor | None = None,
    ) -> None:
        self._views, self._shape, self._law, self._sharpness, self._id_map = views, shape, law, sharpness, id_map
        self._depth = min(shape.depth, max(view.max_depth for view in views))
        self.first: torch.Tensor | None = None
        """`[rows, draft vocab]` float64, log q + noise of the first level; None where nothing is coupled."""

    def grow(self, logits: torch.Tensor, guess: Guess) -> TreeBatch:
        """Grow the trees.

        Args:
            logits: `[rows, draft vocab]` after the texts.
            guess: reads a level's nodes.
        """
        shape = self._shape
        rows, device = len(logits), logits.device
        levels: list[tuple[torch.Tensor, ...]] = []
        front = _Front.root(rows, logits[:, None])
        made = fed = 0
        for level in range(1, self._depth + 1):
            tokens, scores, chances = self._children(level, front)
            parents = front.nodes[..., None].expand_as(tokens)
            levels.append(tuple(part.flatten(1) for part in (tokens, parents, scores)))
            if level == self._depth or (shape.confidence and not bool((scores > -torch.inf).any())):
                break
            count = min(shape.beams, levels[-1][0].shape[1])
            best = levels[-1][2].topk(count).indices
            below = front.fed.gather(1, best // tokens.shape[2])
            chosen = levels[-1][0].gather(1, best)
            front = _Front(
                guess(chosen, below if count > 1 else None),
                nodes=made + best,
                scores=levels[-1][2].gather(1, best),
                chances=chances.gather(1, best // tokens.shape[2]),
                fed=torch.arange(fed, fed + count, device=device).expand(rows, -1),
            )
            made, fed = made + levels[-1][0].shape[1], fed + count
        tokens, parents, scores = (torch.cat(parts, 1) for parts in zip(*levels, strict=True))
        rooms = [min(shape.nodes, view.max_nodes) for view in self._views]
        return within_budget(tokens, parents, scores, rooms, self._id_map, coupled=self.first is not None)

    def _children(self, level: int, front: "_Front") -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return tokens and cumulative scores `[rows, front, branching]`, and the front's cumulative chances."""
        greedy = all(view.decisions is None for view in self._views)
        tokens, values, surest = self._likeliest(front.logits) if greedy else self._chosen(level, front.logits)
        chances = front.chances + surest.log()
        if self._shape.confidence:
            unsure = chances < torch.tensor(self._shape.confidence, device=chances.device).log()
            values = values.masked_fill(unsure[..., None], -torch.inf)
        shallow = torch.tensor([level <= view.max_depth for view in self._views], device=values.device)
        scores = front.scores[..., None] + values.masked_fill(~shallow[:, None, None], -torch.inf)
        return tokens.expand(scores.shape), scores, chances

    def _likeliest(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return tokens, log q, and the largest q; greedy rows have no filters, so all are looked at in one go."""
        law = self._law(self._views[0], logits.flatten(0, 1)).view(*logits.shape[:2], -1)
        values, tokens = law.topk(min(self._shape.branching, law.shape[-1]))
        return tokens, values.double().log(), values[..., 0].double()

    def _chosen(self, level: int, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return tokens, scores with the noise where it is offered, and the largest q, row by row."""
        chosen, noisy = [], []
        for view, own in zip(self._views, logits, strict=True):
            law = self._law(view, own).double()
            raw, drawn = raw_scores(view, law, level, self._id_map, coupled=self._shape.coupled)
            noisy += [raw[0]] if drawn else []
            values, tokens = raw.topk(min(self._shape.branching, raw.shape[-1]))
            if drawn:
                sharp = self._sharpness.factor(raw) * raw
                values = self._sharpness.factor(raw) * values - sharp.logsumexp(-1, keepdim=True)
            chosen.append((tokens, values, law.amax(-1)))
        if level == 1 and noisy:
            self.first = torch.stack(noisy)
        tokens, values, surest = (torch.stack(part) for part in zip(*chosen, strict=True))
        return tokens, values, surest


@dataclass(frozen=True, slots=True)
class _Front:
    """The nodes that go on: `[rows, front]`, and their logits `[rows, front, draft vocab]`."""

    logits: torch.Tensor
    nodes: torch.Tensor
    scores: torch.Tensor
    chances: torch.Tensor
    fed: torch.Tensor

    @classmethod
    def root(cls, rows: int, logits: torch.Tensor) -> "_Front":
        """Begin at the root."""
        roots = torch.full((rows, 1), ROOT, device=logits.device)
        zeros = torch.zeros(rows, 1, dtype=torch.float64, device=logits.device)
        return cls(logits, roots, zeros, zeros, roots)
