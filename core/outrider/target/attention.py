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
