"""What a target can do, as `outrider inspect` shows it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outrider.errors import first_line
from outrider.target import compat
from outrider.target.masked import MaskedTier
from outrider.target.model import Target
from outrider.target.tier import Opening, Tier


@dataclass(frozen=True, slots=True)
class Inspection:
    """What was found out about a model.

    Args:
        model: its class.
        model_type: its type's name in transformers.
        parameters: how many.
        dtype: of the weights.
        device: where it takes its input.
        attention: the attention implementation.
        tier: which way of serving it is exact.
        how: what that tier does.
        refused: why the tiers before it can't serve.
        error: largest error of a tree node that the probe saw, in standard deviations of the logits; None in half precision.
        verified_context: length of the context that the probe used.
        verified_later: context lengths where trees are verified again when a text first passes them.
        drafts_up_to: longest context in which drafts are verified; beyond it every step is a plain one.
        rope_switch: where the model changes its rotary frequencies, and how.
        batches: how several rows are decoded.
        caches: which caches of a caller can be taken over.
        features: whether drafters can have hidden states.
    """

    model: str
    model_type: str
    parameters: int
    dtype: str
    device: str
    attention: str
    tier: str
    how: str
    refused: Mapping[str, str]
    error: float | None
    verified_context: int
    verified_later: tuple[int, ...]
    drafts_up_to: int | None
    rope_switch: str | None
    batches: str
    caches: str
    features: str


def inspect(target: Target) -> Inspection:
    """Say what a loaded target can do; runs one more forward."""
    model, probed = target.model, target.probed
    config: Any = model.config.get_text_config(decoder=True)
    switch = compat.RopeSwitch.of(config)
    masked = isinstance(target.tier, MaskedTier)
    return Inspection(
        model=type(model).__name__,
        model_type=model.config.model_type,
        parameters=sum(one.numel() for one in model.parameters()),
        dtype=str(target.info.dtype).removeprefix("torch."),
        device=str(target.info.device),
        attention=str(config._attn_implementation),
        tier=target.tier.name,
        how=target.tier.how,
        refused=dict(probed.refused) if probed else {},
        error=probed.error if probed else None,
        verified_context=probed.context if probed else 0,
        verified_later=target.trust.pending,
        drafts_up_to=min((one for one in (target.info.max_positions, target.trust.limit) if one), default=None),
        rope_switch=f"{switch.kind} at {switch.length}" if switch else None,
        batches="all rows in one forward" if masked else "one row after another",
        caches=_caches(target.tier),
        features=_features(target),
    )


def _caches(tier: Tier[Any]) -> str:
    if isinstance(tier, MaskedTier):
        return "dynamic, sliding and static ones of one row; static of its own"
    return "dynamic ones of one row"


def _features(target: Target) -> str:
    """Ask the model for hidden states."""
    layers = frozenset(range(target.info.num_layers + 1))
    ids = [0, 1, 2]
    try:
        context = compat.encode(target.model, ids)
        cache = target.open(1, Opening(8, layers, contexts=[context]))
        seen: list[int] = []
        target.prefill(cache, [ids], lambda pieces: seen.extend(len(piece.scored.hidden) for piece in pieces))
    except Exception as error:
        return f"none: {first_line(error)}"
    return f"hidden states of layers 0 to {target.info.num_layers}, logits"
