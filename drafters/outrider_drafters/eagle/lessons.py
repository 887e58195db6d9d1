"""The attention of EAGLE-3's training-time test (Li et al. 2025, arXiv:2503.01840, section 3.2).

At its step s the head goes on from its own outputs. A query then sees what step 0 made of the target's features up to its
own place, and of the later steps what lies on its own path: one key a step.
"""

import torch

from outrider_drafters.eagle.config import EagleConfig


class Lessons:
    """Keys and values of a batch, step by step.

    Args:
        config: of the head.
    """

    def __init__(self, config: EagleConfig) -> None:
        self._config = config
        self._first: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._own: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {}

    def attend(self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Compute attention of the current step; see `Attend`.

        Steps get shorter: query t of step s goes on from query t of the step before, whatever follows it.
        """
        config = self._config
        window = config.sliding_window if layer in config.sliding_layers else None
        if layer not in self._first:
            self._first[layer] = (key, value)
            self._own[layer] = []
            mask = None if window is None else _causal(query.shape[2], query.device, window)
            return torch.nn.functional.scaled_dot_product_attention(
                query,
                key,
                value,
                attn_mask=mask,
                is_causal=mask is None,
                enable_gqa=config.num_kv_heads < config.num_heads,
            )
        self._own[layer].append((key, value))
        return self._later(layer, query, window)

    def _later(self, layer: int, query: torch.Tensor, window: int | None) -> torch.Tensor:
        rows, heads, count, size = query.shape
        keys, values = self._first[layer]
        groups = keys.shape[1]
        own = [(key[:, :, :count], value[:, :, :count]) for key, value in self._own[layer]]
        asked = query.view(rows, groups, heads // groups, count, size) * size**-0.5
        scores = asked @ keys[:, :, None, :count].transpose(-1, -2)
        depth = len(own)
        seen = _causal(count, query.device, None if window is None else window - depth)
        scores = scores.masked_fill(~seen, -torch.inf)
        near = torch.stack([(asked * key[:, :, None]).sum(-1) for key, _ in own], -1)
        weights = torch.cat([scores, near], -1).softmax(-1)
        found = weights[..., :count] @ values[:, :, None, :count]
        for at, (_, value) in enumerate(own):
            found = found + weights[..., count + at, None] * value[:, :, None]
        return found.reshape(rows, heads, count, size)


def _causal(count: int, device: torch.device, window: int | None) -> torch.Tensor:
    """Return `[count, count]` bool: what is seen of the places up to one's own, within a window."""
    back = torch.arange(count, device=device)[:, None] - torch.arange(count, device=device)
    return (back >= 0) if window is None else (back >= 0) & (back < window)
