"""Trees cut down to the room that their rows have: the worthiest nodes stay."""

from collections.abc import Sequence

import torch

from outrider.draft.batch import PADDING, TreeBatch
from outrider.draft.tree import ROOT


def within_budget(
    tokens: torch.Tensor,
    parents: torch.Tensor,
    scores: torch.Tensor,
    rooms: Sequence[int],
    id_map: torch.Tensor | None = None,
    *,
    coupled: bool = False,
) -> TreeBatch:
    """Keep the nodes of the best scores, in their order; reads nothing from the device.

    Args:
        tokens: `[rows, nodes]` int64.
        parents: `[rows, nodes]` int64, every parent before its children.
        scores: `[rows, nodes]`, a child's never above its parent's; of equal ones the earlier stays. Those of -inf go.
        rooms: how many nodes may stay in every row.
        id_map: the target's ids of the tokens; None where they are the same.
        coupled: as in `TreeBatch`.
    """
    rows, made = tokens.shape
    room = torch.tensor(rooms, device=tokens.device)
    # Stable, so that of equal scores the shallower stays.
    order = scores.sort(dim=1, descending=True, stable=True).indices
    rank = torch.empty_like(order).scatter_(1, order, torch.arange(made, device=order.device).expand(rows, -1))
    stays = (rank < room[:, None]) & (scores > -torch.inf)
    place = stays.cumsum(1) - 1
    width = min(made, max(rooms))
    target = torch.where(stays, place, width)  # what goes lands in a column that is cut off
    above = torch.where(parents == ROOT, ROOT, place.gather(1, parents.clamp(min=0)))
    if id_map is not None:
        tokens = id_map[tokens]
    packed = torch.zeros(rows, width + 1, dtype=torch.long, device=tokens.device).scatter_(1, target, tokens)
    hung = torch.full_like(packed, PADDING).scatter_(1, target, above)
    return TreeBatch(packed[:, :width], hung[:, :width], coupled=coupled)
