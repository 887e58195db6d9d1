"""The tree-attention mask builder: one position table gives every mask.

A query sees a column where the model's own rule (causal, sliding, chunked) allows it at their logical positions, the
column holds a token, and that token is one of the query's ancestors or committed. The masks are built outside, by
transformers' own builder from a shadow copy of the config, and passed to `forward`; the model, its config and the
process stay as they are.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache
from transformers.masking_utils import AttentionMaskInterface

from outrider.errors import ModelError
from outrider.target import compat

Masks = torch.Tensor | dict[str, torch.Tensor]

MASK_NAME: Final = "outrider_table"
MASKED_IMPLEMENTATIONS: Final = ("sdpa", "eager")
"""Attention implementations that take a four-dimensional mask."""


@dataclass(slots=True)
class PositionTable:
    """What one forward may see.

    Args:
        queries: `[rows, Q]` int64, the logical position of every query.
        columns: `[rows, K]` int64, the logical position that every column holds, -1 for a hole.
        visible: `[rows, Q, K]` bool: the column holds a token, and it is the query's ancestor, itself or committed.
    """

    queries: torch.Tensor
    columns: torch.Tensor
    visible: torch.Tensor
    built: list[torch.Tensor] = field(default_factory=list)

    @classmethod
    def of(
        cls, held: torch.Tensor, positions: torch.Tensor, sees: torch.Tensor | None = None, spare: int = 0
    ) -> "PositionTable":
        """Lay out what new columns may see; a hole's query sees itself, since no row of a mask may be empty.

        Args:
            held: `[rows, columns]` int64, the positions in the cache, -1 for a hole.
            positions: `[rows, Q]` int64, those of the new columns.
            sees: `[rows, Q, nodes + Q]` bool, which of the cache's last columns, nodes of a tree, and of the new ones each new
                one sees; None where it is all tokens.
            spare: columns to add that hold nothing.
        """
        count = positions.shape[1]
        if sees is None:
            sees = (positions >= 0)[:, None, :] | torch.eye(count, dtype=torch.bool, device=positions.device)
        columns = torch.cat([held, positions], 1)
        committed = held[:, : columns.shape[1] - sees.shape[2]] >= 0
        visible = torch.cat([committed[:, None, :].expand(-1, count, -1), sees], 2)
        if spare > 0:
            columns = torch.nn.functional.pad(columns, (0, spare), value=-1)
            visible = torch.nn.functional.pad(visible, (0, spare), value=False)
        return cls(positions.clamp(min=0), columns.clamp(min=0), visible)

    def causal(self, window: int | None = None) -> torch.Tensor:
        """Return the mask `[rows, 1, Q, K]` bool of a causal model of one's own, with a sliding window or none."""
        back = self.queries[:, :, None] - self.columns[:, None, :]
        seen = self.visible & (back >= 0)
        return (seen if window is None else seen & (back < window))[:, None]


def _table_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,  # noqa: ARG001  positions come from the table
    kv_offset: int = 0,
    mask_function: Callable[..., torch.Tensor] | None = None,
    config: Any = None,
    device: torch.device | str = "cpu",
    **kwargs: Any,  # noqa: ARG001
) -> torch.Tensor:
    """Build one layer kind's mask `[rows, 1, Q, K]`, as transformers calls it."""
    table: PositionTable = config.outrider_table
    columns = slice(kv_offset, kv_offset + kv_length)
    row = torch.arange(batch_size, device=device)[:, None, None, None]
    head = torch.zeros(1, 1, 1, 1, dtype=torch.long, device=device)
    assert mask_function is not None  # noqa: S101  transformers always passes the model's own rule
    allowed = mask_function(row, head, table.queries[:, None, :, None], table.columns[:, None, None, columns])
    mask = (allowed & table.visible[:, None, :, columns]).expand(batch_size, 1, q_length, kv_length)
    table.built.append(mask)
    return mask


AttentionMaskInterface.register(MASK_NAME, _table_mask)


def build_masks(model: PreTrainedModel, table: PositionTable, cache: Cache) -> Masks:
    """Return the masks of one forward: a tensor, or one a layer type, whichever this model wants.

    Raises:
        ModelError: transformers did not build the masks from the table, so they would not be tree masks.
    """
    config: Any = model.config.get_text_config()
    shadow = copy.copy(config)
    shadow._attn_implementation_internal = MASK_NAME
    shadow.outrider_table = table
    like = torch.empty(*table.queries.shape, 1, dtype=model.dtype, device=table.queries.device)
    masks = compat.create_masks(model, shadow, like, cache, table.queries)
    found = masks.values() if isinstance(masks, dict) else [masks]
    if not table.built or not all(isinstance(mask, torch.Tensor) and mask.ndim == 4 for mask in found):
        kinds = sorted(set(getattr(config, "layer_types", None) or [])) or [config.model_type]
        raise ModelError(f"transformers builds no attention mask for layers of kind {', '.join(kinds)}")
    if config._attn_implementation == "eager":
        return (
            {kind: _additive(mask, model.dtype) for kind, mask in masks.items()}
            if isinstance(masks, dict)
            else (_additive(masks, model.dtype))
        )
    result: Masks = masks
    return result


def _additive(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Turn "may see" into what eager attention adds to its scores."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, torch.finfo(dtype).min)
