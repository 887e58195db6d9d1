"""The target: a causal language model as a black box with three verbs, prefill, forward and commit."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from outrider.draft.batch import TreeBatch
from outrider.draft.contract import TargetInfo
from outrider.errors import ModelError
from outrider.target import compat
from outrider.target.attention import PositionTable, build_masks
from outrider.target.cache import RowCache


class Target:
    """A model whose drafts can be verified exactly; made by `outrider.load`.

    Only public methods of the model are called, and nothing on it is changed. A target holds no state of a row, so it may
    serve many generations.

    Args:
        model: any causal language model of transformers that passed the probe.
        tokenizer: its tokenizer, or None where prompts come as ids.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: Any = None) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.info = describe(model, tokenizer)
        self._names = compat.ForwardNames.of(model)

    def __repr__(self) -> str:
        dtype = str(self.info.dtype).removeprefix("torch.")
        return f"Target({type(self.model).__name__}, {dtype} on {self.info.device})"

    def open(self, rows: int, capacity: int = 256) -> RowCache:
        """Make the empty cache of `rows` rows, with room for `capacity` columns before it grows.

        Raises:
            ModelError: the model is in training mode.
        """
        if self.model.training:
            raise ModelError(
                "the model is in training mode, where dropout makes every forward differ; call model.eval() first"
            )
        return RowCache(rows, capacity, self.info.device)

    @torch.no_grad()
    def prefill(self, cache: RowCache, ids: torch.Tensor) -> torch.Tensor:
        """Read prompts of equal length.

        Args:
            cache: an empty cache.
            ids: `[rows, length]` int64.

        Returns:
            `[rows, vocab]` logits after the last token; no others are computed where the model allows it.
        """
        positions = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        logits = self._call(cache, ids, positions, None, last_only=True)
        cache.append(positions)
        return logits[:, -1]

    @torch.no_grad()
    def forward(self, cache: RowCache, roots: torch.Tensor, lengths: torch.Tensor, trees: TreeBatch) -> torch.Tensor:
        """Score every row's root and draft tree in one forward.

        Args:
            cache: the rows' cache; gets `1 + width` columns, to be settled by `commit`.
            roots: `[rows]` int64, the last committed token of every row.
            lengths: `[rows]` int64, how many committed tokens are in the cache: the root's position.
            trees: the drafts.

        Returns:
            `[rows, 1 + width, vocab]` logits, the root's first; padding's are meaningless.
        """
        trees = trees.to(self.info.device)
        ids = torch.cat([roots[:, None], trees.tokens], 1)
        if not trees.width and cache.solid:
            # A lone root over a cache without holes is what plain decoding feeds; the model's own rule needs no mask.
            positions = lengths[:, None]
            logits = self._call(cache, ids, positions, None)
            cache.append(positions)
            return logits
        ancestors = trees.ancestors()
        positions = lengths[:, None] + ancestors.sum(-1) - 1
        columns = torch.cat([cache.positions, positions], 1)
        committed = (cache.positions >= 0)[:, None, :].expand(-1, ids.shape[1], -1)
        table = PositionTable(positions, columns, torch.cat([committed, ancestors], 2))
        masks = build_masks(self.model, table, cache.layers)
        logits = self._call(cache, ids, positions, masks)
        cache.append(positions)
        return logits

    @torch.no_grad()
    def commit(self, cache: RowCache, width: int, paths: Sequence[Sequence[int]]) -> None:
        """Keep each row's root and accepted nodes of the last forward, and drop the rest.

        Args:
            cache: the rows' cache.
            width: the width of the trees of the last forward.
            paths: the accepted nodes of every row.
        """
        cache.keep(len(cache) - 1 - width, [[0, *[node + 1 for node in path]] for path in paths])

    def _call(
        self, cache: RowCache, ids: torch.Tensor, positions: torch.Tensor, masks: Any, *, last_only: bool = False
    ) -> torch.Tensor:
        inputs: dict[str, Any] = {"attention_mask": masks, "use_cache": True, self._names.cache: cache.layers}  # type: ignore[dict-item]
        if self._names.positions:
            inputs["position_ids"] = positions
        if self._names.logits_to_keep and last_only:
            inputs["logits_to_keep"] = 1
        output: Any = self.model(ids, **inputs)
        logits: torch.Tensor = output.logits
        return logits


def describe(model: PreTrainedModel, tokenizer: Any) -> TargetInfo:
    """Read off the model what drafters may know of it."""
    config: Any = model.config.get_text_config()
    switch = compat.RopeSwitch.of(config)
    lengths = [getattr(config, "max_position_embeddings", None), switch.length if switch else None]
    embeddings: Any = model.get_input_embeddings()
    head: Any = model.get_output_embeddings()
    return TargetInfo(
        vocab_size=head.weight.shape[0] if head is not None else embeddings.weight.shape[0],
        hidden_size=config.hidden_size,
        num_layers=config.num_hidden_layers,
        max_positions=min((length for length in lengths if length), default=None),
        eos_ids=compat.eos_ids(model.generation_config) if model.generation_config else frozenset(),
        dtype=model.dtype,
        device=embeddings.weight.device,
        tokenizer=tokenizer,
    )
