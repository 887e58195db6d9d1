"""A drafter's logits from a table, read level by level: for tests of what grows trees."""

from collections.abc import Callable, Sequence

import torch

from outrider import ROOT, DraftTree, DraftView, Shape, TokenView
from outrider.verify.decisions import Keyed

VOCAB = 11


def logits_after(row: int, path: Sequence[int]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(hash((row, *path)) % 2**31)
    return 2 * torch.randn(VOCAB, generator=generator, dtype=torch.float64)


def law(view: DraftView, logits: torch.Tensor) -> torch.Tensor:
    return view.law(logits).double()


def view_of(row: int, depth: int = 8, nodes: int = 64, seed: int | None = None) -> DraftView:
    decisions = None if seed is None else Keyed(seed).at(4)
    return DraftView(row, TokenView([1, 2, 3, 4]), depth, nodes, decisions=decisions, warp=lambda logits: logits)


class Reader:
    """Answers guesses from the paths that they are on."""

    def __init__(self, rows: int) -> None:
        self.paths: list[list[tuple[int, ...]]] = [[] for _ in range(rows)]
        self.fed = 0

    def guess(self, tokens: torch.Tensor, parents: torch.Tensor | None) -> torch.Tensor:
        first = len(self.paths[0])
        found = []
        for row, known in enumerate(self.paths):
            below = [first - 1] * tokens.shape[1] if parents is None else parents[row].tolist()
            paths = [
                (*(() if at == ROOT else known[at]), token)
                for at, token in zip(below, tokens[row].tolist(), strict=True)
            ]
            known += paths
            found.append(torch.stack([logits_after(row, path) for path in paths]))
        self.fed += tokens.shape[1]
        return torch.stack(found)


def expanded(
    view: DraftView, shape: Shape, after: Callable[[tuple[int, ...]], torch.Tensor]
) -> dict[tuple[int, ...], float]:
    """EAGLE-2's expansion over paths, with their cumulative scores: levels of `beams` nodes with `branching` children.

    `after` gives the logits `[vocab]` after a path.
    """
    scores: dict[tuple[int, ...], float] = {}
    front: dict[tuple[int, ...], float] = {(): 0.0}
    for level in range(1, min(shape.depth, view.max_depth) + 1):
        made = {}
        for path, score in front.items():
            raw = view.law(after(path)).double().log()
            noise = view.noise(level, torch.arange(len(raw)))
            raw = raw if noise is None else (raw + noise)
            own = raw if noise is None else raw.log_softmax(-1)
            for token in raw.topk(shape.branching).indices.tolist():
                made[(*path, token)] = score + float(own[token])
        scores |= made
        front = dict(sorted(made.items(), key=lambda item: -item[1])[: shape.beams])
    return scores


def expected_paths(
    view: DraftView, shape: Shape, after: Callable[[tuple[int, ...]], torch.Tensor]
) -> set[tuple[int, ...]]:
    """The best `nodes` of all that were expanded; of equal ones the shallower."""
    scores = expanded(view, shape, after)
    best = sorted(scores, key=lambda path: (-scores[path], len(path)))
    return set(best[: min(shape.nodes, view.max_nodes)])


def paths_of(tree: DraftTree) -> set[tuple[int, ...]]:
    return {tuple(tree.tokens[one] for one in tree.path(node)) for node in range(len(tree))}
