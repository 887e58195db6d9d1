"""An EAGLE head beside its target: the network, with the target's embeddings and head where it has none of its own."""

from typing import Any

import torch

from outrider import InputError, ModelError, PositionTable, RowCache, TargetInfo, place_of
from outrider_drafters.eagle.checkpoint import read_eagle
from outrider_drafters.eagle.config import EagleConfig, Method
from outrider_drafters.eagle.network import EagleNetwork
from outrider_drafters.eagle.source import CONFIG


class EagleLayer:
    """Runs a head's network on a cache.

    Args:
        target: whose features it reads.
        config: of the head.
        network: its network, on its own device.
    """

    def __init__(self, target: TargetInfo, config: EagleConfig, network: EagleNetwork) -> None:
        self._parts, self._config, self._network = target.parts, config, network
        self.feature_layers = config.feature_layers
        self.id_map = network.d2t_ids
        self.max_positions = config.max_positions
        self.limit = f"{config.positions_key} in {config.folder / CONFIG} is {config.max_positions}"
        self.draft_vocab = config.draft_vocab_size
        weight: Any = network.fc.weight
        self.device: torch.device = weight.device
        self._dtype: torch.dtype = weight.dtype

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """Return embeddings `[..., width]` of target ids."""
        own = self._network.embed_tokens
        found: torch.Tensor = own(ids) if own is not None else self._parts.embeddings(ids)  # type: ignore[union-attr]
        return found.to(self.device, self._dtype)

    def fuse(self, features: torch.Tensor) -> torch.Tensor:
        """Make of the target's features `[..., features]` what the layer reads, `[..., hidden]`."""
        return self._network.fuse(features.to(self.device, self._dtype))

    def run(
        self, embeds: torch.Tensor, hidden: torch.Tensor, table: PositionTable, cache: RowCache
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the layers on new columns; returns what is fed back and what logits are made of, `[rows, count, hidden]`."""
        config = self._config
        masks = {window: table.causal(window) for window in {None, config.sliding_window}}

        def attend(layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            keys, values = cache.layers.update(key, value, layer)
            mask = masks[config.sliding_window if layer in config.sliding_layers else None]
            return torch.nn.functional.scaled_dot_product_attention(
                query, keys, values, attn_mask=mask, enable_gqa=config.num_kv_heads < config.num_heads
            )

        found: tuple[torch.Tensor, torch.Tensor] = self._network(embeds, hidden, table.queries, attend)
        return found

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Return logits `[..., draft vocab]`."""
        own = self._network.logits(states)
        return own if own is not None else self._parts.head(states).to(self.device)  # type: ignore[union-attr]


def load_layer(method: Method, target: TargetInfo, options: Any) -> EagleLayer:
    """Read a head and put it where it is wanted.

    Raises:
        InputError: the folder holds no such head, or it is for another target.
    """
    if target.parts is None:
        raise InputError(f"drafter '{method}': the target shows no parts of itself, so it has no features")
    config, network = read_eagle(options.heads, target, method=method, feature_layers=options.layers)
    if options.dtype or options.device:
        dtype, device = place_of(options.dtype, options.device)
        network = network.to(device=device, dtype=dtype)
    layer = EagleLayer(target, config, network)
    try:  # where the head uses the target's embeddings or its head, they must be usable
        layer.logits(layer.embed(torch.zeros(1, 1, dtype=torch.long, device=layer.device)))
    except ModelError as error:
        raise InputError(f"drafter '{method}': {error}") from error
    return layer
