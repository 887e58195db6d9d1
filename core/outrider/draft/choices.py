"""Trees of a fixed shape, given by ranks: the choices of Medusa (Cai et al. 2024, arXiv:2401.10774, tree attention).

A path [r1, r2, ...] is the node that takes the candidate of rank r1 below the root, of rank r2 below that, and so on; ranks
count from 0, the likeliest.
"""

import heapq
import json
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, Self

import torch

from outrider.draft.batch import TreeBatch
from outrider.draft.budget import within_budget
from outrider.draft.contract import DraftView
from outrider.draft.tree import ROOT
from outrider.errors import InputError

Ranks = tuple[int, ...]

Candidates = Callable[[int, torch.Tensor | None], torch.Tensor]
"""Gives for a depth, 1 for the root's children, and the draft ids `[rows, count]` above (None for the root) the candidates
`[rows, count, ranks]`, the likeliest first and -1 where there are fewer; `[rows, 1, ranks]` where the same go for all."""


@dataclass(frozen=True, slots=True)
class Choices:
    """A tree's shape.

    Args:
        paths: all nodes, the worthiest first, which is the order in which they stay where there is less room; every prefix of
            a path comes before it.

    Raises:
        InputError: a path is empty, given twice, holds a negative rank, or does not come after its prefix.
    """

    paths: tuple[Ranks, ...]

    def __post_init__(self) -> None:
        seen: set[Ranks] = {()}
        for path in self.paths:
            wrong = next((rank for rank in path if type(rank) is not int or rank < 0), None)
            if wrong is not None:
                raise InputError(f"tree: path {list(path)} holds {wrong!r}; ranks are whole numbers from 0")
            if path in seen:
                raise InputError(
                    f"tree: path {list(path)} is {'given twice' if path else 'the root, which is no node'}"
                )
            if path[:-1] not in seen:
                raise InputError(f"tree: path {list(path)} needs its prefix {list(path[:-1])} before it")
            seen.add(path)

    @classmethod
    def of(cls, paths: Iterable[Sequence[int]]) -> Self:
        """Take paths in any order that puts the worthier first; a prefix that comes too late moves before its path."""
        listed = [tuple(path) for path in paths]
        first: dict[Ranks, int] = {}
        for place, path in enumerate(listed):
            for length in range(1, len(path) + 1):
                first.setdefault(path[:length], place)
        return cls(tuple(sorted(listed, key=lambda path: (first.get(path, -1), len(path)))))

    @classmethod
    def read(cls, file: str | Path) -> Self:
        """Read a list of paths: JSON, TOML (`choices = [[0], [0, 0]]`), or text with a path a line.

        Raises:
            InputError: the file can't be read, or its paths are no tree.
        """
        try:
            return cls.of(_listed(Path(file)))
        except (OSError, ValueError, TypeError) as error:
            text = getattr(error, "strerror", None) or str(error)
            raise InputError(
                f"tree {file}: {text.removeprefix('tree: ')}; it holds a list of paths of ranks"
            ) from error

    @classmethod
    def derived(cls, accuracies: Sequence[Sequence[float]], nodes: int) -> Self:
        """Return the tree of the most accepted tokens, where every depth's candidates are right independently.

        A node is accepted with the product of its ranks' accuracies, which is never more than its parent's, so that the
        best nodes taken one after another are the best tree of their number.

        Args:
            accuracies: for every depth and rank the chance that this candidate is right, given that all above are.
            nodes: most nodes.

        Raises:
            InputError: an accuracy is no chance.
        """
        if not all(0 <= chance <= 1 for ranks in accuracies for chance in ranks):
            raise InputError("tree: accuracies are chances, from 0 to 1")
        heap: list[tuple[float, int, Ranks]] = [(-1.0, 0, ())]
        paths: list[Ranks] = []
        while heap and len(paths) <= nodes:
            value, depth, path = heapq.heappop(heap)
            paths.append(path)
            for rank, chance in enumerate(accuracies[depth]) if depth < len(accuracies) else ():
                if chance > 0:
                    heapq.heappush(heap, (value * chance, depth + 1, (*path, rank)))
        return cls(tuple(paths[1:]))

    @classmethod
    def counted(cls, children: Mapping[Ranks, int], accuracies: Sequence[Sequence[float]]) -> Self:
        """Return the tree in which every node has the first ranks, as many as `children` says, by worth under accuracies."""
        paths = [(*above, rank) for above, count in children.items() for rank in range(count)]
        return cls(tuple(sorted(paths, key=lambda path: (-_worth(path, accuracies), len(path), path))))

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def depth(self) -> int:
        """Return the length of the longest path."""
        return max(map(len, self.paths), default=0)

    @property
    def ranks(self) -> int:
        """Return how many candidates are looked at below a node."""
        return 1 + max((rank for path in self.paths for rank in path), default=-1)

    @property
    def histogram(self) -> dict[int, int]:
        """Return how many nodes every depth has."""
        return dict(sorted(Counter(map(len, self.paths)).items()))

    @property
    def leaves(self) -> int:
        """Return how many nodes have no children."""
        return len(self.paths) - len({path[:-1] for path in self.paths} - {()})

    def expected(self, accuracies: Sequence[Sequence[float]]) -> float:
        """Return how many draft tokens a step accepts on average; `accuracies` as in `derived`."""
        return sum(_worth(path, accuracies) for path in self.paths)

    def within(self, depth: int, nodes: int) -> "Choices":
        """Return what is left with less room: the worthiest nodes."""
        return self if depth >= self.depth and nodes >= len(self) else _within(self, depth, nodes)

    def trees(
        self,
        views: Sequence[DraftView],
        candidates: Candidates,
        device: torch.device,
        id_map: torch.Tensor | None = None,
        *,
        coupled: bool = False,
    ) -> TreeBatch:
        """Return the rows' trees of this shape, as far as their room and their candidates go; reads nothing from the device.

        Siblings come in the order of their ranks.

        Args:
            views: the rows.
            candidates: gives the tokens, level by level.
            device: of the candidates.
            id_map: the target's ids of the candidates; None where they are the same.
            coupled: whether they were chosen with the target's noise.
        """
        rooms = [view.max_nodes if view.max_depth else 0 for view in views]
        shape = self.within(max(view.max_depth for view in views), max(rooms))
        plan = _plan(shape, device)
        rooms = [min(room, len(shape)) for room in rooms]
        tokens, gone = [torch.zeros(len(views), 1, dtype=torch.long, device=device)], []
        lost = torch.zeros(len(views), 1, dtype=torch.bool, device=device)
        for depth, (above, ranks) in enumerate(plan.levels, 1):
            found = candidates(depth, tokens[-1] if depth > 1 else None)
            level = found.expand(-1, tokens[-1].shape[1], -1)[:, above, ranks]
            deep = torch.tensor([depth > view.max_depth for view in views], device=device)
            lost = lost[:, above] | (level < 0) | deep[:, None]
            tokens.append(level.clamp(min=0))
            gone.append(lost)
        if not gone:
            return within_budget(tokens[0], tokens[0] + ROOT, tokens[0], [0] * len(views))
        scores = plan.worth.masked_fill(torch.cat(gone, 1)[:, plan.order], -torch.inf)
        laid = torch.cat(tokens[1:], 1)[:, plan.order]
        return within_budget(laid, plan.parents.expand_as(laid), scores, rooms, id_map, coupled=coupled)


@dataclass(frozen=True, slots=True)
class _Plan:
    """A shape as tensors.

    Args:
        levels: for every depth its nodes' places in the level above, and their ranks.
        order: the nodes' places among the levels, in the tree's order: depth first, which lays the likeliest path in front, so
            that keeping it moves nothing.
        parents: in the tree's order.
        worth: in the tree's order; the worthier stays.
    """

    levels: list[tuple[torch.Tensor, torch.Tensor]]
    order: torch.Tensor
    parents: torch.Tensor
    worth: torch.Tensor


@lru_cache(maxsize=128)
def _plan(choices: Choices, device: torch.device) -> _Plan:
    by_depth = [sorted(path for path in choices.paths if len(path) == depth) for depth in range(choices.depth + 1)]
    by_depth[0] = [()]
    levels = []
    for above, level in pairwise(by_depth):
        place = {path: at for at, path in enumerate(above)}
        both = [place[path[:-1]] for path in level], [path[-1] for path in level]
        levels.append((torch.tensor(both[0], device=device), torch.tensor(both[1], device=device)))
    laid = sorted(choices.paths)
    among = {path: at for at, path in enumerate(path for level in by_depth[1:] for path in level)}
    node = {(): ROOT} | {path: at for at, path in enumerate(laid)}
    worth = {path: -float(at) for at, path in enumerate(choices.paths)}
    return _Plan(
        levels,
        torch.tensor([among[path] for path in laid], dtype=torch.long, device=device),
        torch.tensor([node[path[:-1]] for path in laid], dtype=torch.long, device=device),
        torch.tensor([worth[path] for path in laid], device=device),
    )


@lru_cache(maxsize=256)
def _within(choices: Choices, depth: int, nodes: int) -> Choices:
    return Choices(tuple(path for path in choices.paths if len(path) <= depth)[:nodes])


def _worth(path: Ranks, accuracies: Sequence[Sequence[float]]) -> float:
    known = (accuracies[depth] if depth < len(accuracies) else () for depth in range(len(path)))
    return prod(chances[rank] if rank < len(chances) else 0.0 for rank, chances in zip(path, known, strict=True))


def _listed(file: Path) -> list[list[int]]:
    text = file.read_text(encoding="utf-8")
    if file.suffix not in (".json", ".toml"):
        lines = (line.partition("#")[0].replace(",", " ").split() for line in text.splitlines())
        return [[int(rank) for rank in line] for line in lines if line]
    found: Any = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    found = found.get("choices") if isinstance(found, dict) else found
    if not isinstance(found, list) or not found or not all(isinstance(path, list) for path in found):
        raise InputError("tree: it holds no list of lists")
    return found
