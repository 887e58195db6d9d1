"""Calling the model: one forward, spelt as this model's `forward` wants it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from outrider.errors import ModelError
from outrider.target import compat

_NO_MORE_THAN_ROUNDING: Final = 0.05


@dataclass(frozen=True, slots=True)
class Scored:
    """What a forward gave.

    Args:
        logits: `[rows, queries, vocab]`.
        hidden: for every layer that was asked for `[rows, queries, hidden]`; ids as in `Needs.hidden`.
    """

    logits: torch.Tensor
    hidden: Mapping[int, torch.Tensor] = field(default_factory=dict)


class Caller:
    """Calls a model's public `forward` and nothing else.

    Args:
        model: the target.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.names = compat.ForwardNames.of(model)

    @torch.no_grad()
    def __call__(
        self,
        cache: Cache,
        ids: torch.Tensor,
        positions: torch.Tensor,
        masks: Any = None,
        *,
        last_only: bool = False,
        wanted: frozenset[int] = frozenset(),
        context: Mapping[str, Any] | None = None,
    ) -> Scored:
        """Run the model.

        Args:
            cache: keys, values and states; grows by the ids.
            ids: `[rows, queries]` int64.
            positions: `[rows, queries]` int64.
            masks: what `forward` takes as attention mask; None for the model's own rule.
            last_only: only the last query's logits, where the model can leave out the others.
            wanted: layers whose hidden states are returned.
            context: further arguments, such as an encoder's output.
        """
        names = self.names
        inputs: dict[str, Any] = {names.ids: ids, "use_cache": True, names.cache: cache}  # type: ignore[dict-item]
        if masks is not None:
            inputs["attention_mask"] = masks
        if names.positions:
            inputs["position_ids"] = positions
        if names.logits_to_keep and last_only:
            inputs["logits_to_keep"] = 1
        if wanted:
            inputs["output_hidden_states"] = True
        output: Any = self.model(**inputs, **(context or {}))
        states = compat.hidden_states(output) if wanted else ()
        if any(states[layer].ndim != ids.ndim + 1 for layer in wanted):
            raise ModelError(
                f"{type(self.model).__name__}'s hidden states are not one vector a token, so there are no features"
            )
        return Scored(
            output.logits[:, -1:] if last_only else output.logits, {layer: states[layer] for layer in sorted(wanted)}
        )

    @torch.no_grad()
    def padding_matters(self, ids: torch.Tensor, pad: int) -> bool:
        """Say whether a text of this model changes when it is padded on the left; `ids` `[length]` begin with padding.

        Where positions are passed they say where a text begins, and padding is nowhere.
        """
        if self.names.positions:
            return False
        mask = torch.ones_like(ids)[None]
        mask[:, :pad] = 0
        padded: Any = self.model(**{self.names.ids: ids[None], "attention_mask": mask})
        bare: Any = self.model(**{self.names.ids: ids[None, pad:]})
        error = (padded.logits[0, -1] - bare.logits[0, -1]).abs().max() / bare.logits[0, -1].std()
        return not bool(error < _NO_MORE_THAN_ROUNDING)

    @torch.no_grad()
    def alone(self, ids: torch.Tensor, context: Mapping[str, Any], last: int) -> torch.Tensor:
        """Run a whole text `[1, tokens]` without a cache; returns the last ids' logits `[last, vocab]`."""
        inputs: dict[str, Any] = {self.names.ids: ids, "use_cache": False}
        if self.names.positions:  # as `generate` passes them; some models begin elsewhere by themselves
            inputs["position_ids"] = torch.arange(ids.shape[1], device=ids.device)[None]
        if self.names.logits_to_keep:
            inputs["logits_to_keep"] = last
        output: Any = self.model(**inputs, **context)
        if not isinstance(getattr(output, "logits", None), torch.Tensor):
            raise ModelError(
                f"the forward of {type(self.model).__name__} returns a {type(output).__name__} without logits"
            )
        logits: torch.Tensor = output.logits[0, -last:]
        return logits
