"""What a drawn chain would have brought under other rules: expected tokens of a step, from its laws p and q.

Each figure is exact for the chain as it was drawn, before a stop cuts anything off; the mean over steps is what the rule is
expected to give on the same texts. Chains of other ways of drafting differ, so that trees and chosen tokens are not told about,
but for the first level of the likeliest tokens.
"""

from typing import Final

import torch

from outrider.draft.laws import POINT
from outrider.draft.tree import DraftTree
from outrider.verify.sampling import NodeScores

LIKELIEST: Final = (1, 4)
RULES: Final = (
    "match",
    "coupled",
    "rejection",
    "block",
    *[f"top-{count}, one level" for count in LIKELIEST],
)


def expected_tokens(tree: DraftTree, scores: NodeScores) -> dict[str, float] | None:
    """Return what each of `RULES` is expected to emit of a step, bonus included.

    Args:
        tree: what was proposed.
        scores: the target's at its nodes.

    Returns:
        None where it can't be told: the draft is no chain of drawn tokens, or a processor looks at the ids.
    """
    if not tree.tokens:
        return dict.fromkeys(RULES, 1.0)
    drawn = tree.laws is not None and not tree.scouts and POINT not in tree.q_rows
    if not drawn or tree.parents != tuple(range(-1, len(tree) - 1)) or not scores.context_free:
        return None
    p = scores.all().double().softmax(-1).cpu()[: len(tree)]
    assert tree.laws is not None  # noqa: S101  for the types: `drawn` says so
    q = torch.stack([tree.laws.row(row, p.shape[-1]) for row in tree.q_rows])
    tokens = torch.tensor(tree.tokens)[:, None]
    mine, its = p.gather(1, tokens)[:, 0], q.gather(1, tokens)[:, 0]
    found = {
        "match": _walk(mine),
        "coupled": _walk(_coupled(p, q, mine, its)),
        "rejection": _walk((mine / its).clamp(max=1)),
        "block": 1 + _block(p, q, mine / its),
    }
    best = q[0].topk(min(max(LIKELIEST), len(q[0]))).indices
    return found | {f"top-{count}, one level": 1 + float(p[0, best[:count]].sum()) for count in LIKELIEST}


def _walk(chances: torch.Tensor) -> float:
    """Return the tokens of a chain that is accepted one by one."""
    return 1 + float(chances.cumprod(0).sum())


def _coupled(p: torch.Tensor, q: torch.Tensor, mine: torch.Tensor, its: torch.Tensor) -> torch.Tensor:
    """Return the chance that the target draws the draft's token by the very noise that the draft was drawn with.

    Both draw x with the chance 1 / sum of max(p / p(x), q / q(x)) over the vocabulary; divided by q(x).
    """
    ratio = its / mine.clamp(min=torch.finfo(torch.float64).tiny)
    return torch.where(mine > 0, 1 / torch.maximum(q, p * ratio[:, None]).sum(1), 0.0)


def _block(p: torch.Tensor, q: torch.Tensor, ratios: torch.Tensor) -> float:
    """Return the accepted tokens of block verification (Sun et al. 2024, arXiv:2403.10444, algorithm 2)."""
    weight, held = 1.0, []
    for at, ratio in enumerate(ratios.tolist()):
        weight = min(weight * ratio, 1.0)
        if at + 1 < len(ratios):
            left = float((weight * p[at + 1] - q[at + 1]).clamp(min=0).sum())
            held.append(left / (left + 1 - weight) if left + 1 - weight > 0 else 1.0)
        else:
            held.append(weight)
    # It is asked from the last token on: the first that holds keeps all before it.
    expected, open_ = 0.0, 1.0
    for depth in range(len(held), 0, -1):
        expected += depth * open_ * held[depth - 1]
        open_ *= 1 - held[depth - 1]
    return expected
