"""The probe: which tier verifies draft trees of this model exactly? Asked of the model itself, never of a list of names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from outrider.errors import ModelError, OutriderError, PlainDiffersError, first_line
from outrider.target.exactness import (
    NODES,
    Ruler,
    check_holes,
    check_plain,
    check_repeats,
    check_together,
    check_trees,
    vocabulary,
)
from outrider.target.masked import MaskedTier
from outrider.target.model import Target
from outrider.target.paths import PathTier, ReplayTier
from outrider.target.thresholds import choices, thresholds
from outrider.target.tier import Tier
from outrider.target.trust import BEYOND, ProbeResult, Trust

TIERS: Final[tuple[type[Tier[Any]], ...]] = (MaskedTier, PathTier, ReplayTier)
"""Tried in this order: the first that is exact serves."""

_CONTEXT: Final = 9
_TO_CROSS: Final = 512
_ROOM: Final = 2 * (NODES + 1)
_HOLES: Final = 16
_MOST_HOLES: Final = 16_384
_GENERATED_HERE: Final = 3
_ATTENTION_KINDS: Final = {"full_attention", "sliding_attention", "chunked_attention"}
_LEAST_VOCABULARY: Final = 5


def check_supported(target: Target) -> None:
    """Refuse what is known before any forward.

    Raises:
        ModelError: with the reason and what would work.
    """
    model = target.model
    kind = type(model).__name__
    if target.tier.caller.names.cache is None:
        raise ModelError(f"{kind}.forward takes no key-value cache by name, so nothing drafted could be kept")
    if target.info.vocab_size < _LEAST_VOCABULARY:
        raise ModelError(
            f"{kind} has {target.info.vocab_size} tokens; at least {_LEAST_VOCABULARY} are needed to probe it"
        )
    if model.generation_config is None:
        raise ModelError(f"{kind} has no generation_config, so what plain decoding means for it is not known")


def probe(target: Target) -> ProbeResult:
    """Find the first tier that is exact on this model, and let it serve the target.

    Raises:
        ModelError: there is none, with the test that each failed.
    """
    check_supported(target)
    target.open(1)  # refuses a model in training mode
    config = target.model.config.get_text_config(decoder=True)
    longest = min((one for one in (target.info.max_positions, *choices(config)) if one), default=None)
    named = [one for one in thresholds(config) if longest is None or one < longest]
    # Past twice a window, so that what sliding layers drop is missed by nobody.
    contexts = [_CONTEXT, *(one + BEYOND for one in named), *(2 * one + BEYOND for one in named)]
    context = max(
        one for one in contexts if one <= min(_TO_CROSS + BEYOND, (longest or _TO_CROSS) - _ROOM) or one == _CONTEXT
    )
    found = _first_exact(target, context, named)
    limit = min(choices(config), default=None)
    pending = [one for one in named if one + BEYOND > context]
    if found.tier is None and named and context > _CONTEXT and named[0] >= _CONTEXT + _ROOM:
        # What is not exact beyond a window may be exact within it.
        found, limit, pending = _first_exact(target, _CONTEXT, named), min(named[0], limit or named[0]), []
        if found.tier is not None:
            _check_plain_beyond(target, _ids(target, context))
    if found.tier is None:
        by_reason: dict[str, list[str]] = {}
        for name, reason in found.refused.items():
            by_reason.setdefault(reason, []).append(name)
        reasons = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in by_reason.items())
        raise ModelError(f"{type(target.model).__name__} can't be verified exactly ({reasons})")
    target.trust = Trust(pending, check_here, limit)
    target.probed = ProbeResult(found.tier, found.error, found.context, found.refused)
    return target.probed


def check_here(target: Target, committed: Sequence[int]) -> None:
    """Verify a small tree after a context that may be long, with as few forwards over all of it as it takes.

    Raises:
        PlainDiffersError: not even plain steps are those of `generate` here.
        ModelError: as `check_trees`.
    """
    ruler = Ruler.of(target, committed[:_CONTEXT])  # where nothing is in doubt yet
    check_plain(target, committed, ruler, count=_GENERATED_HERE)
    check_trees(target, committed, ruler, steps=1, most=1)


@dataclass(frozen=True, slots=True)
class _Found:
    tier: str | None
    error: float | None
    context: int
    refused: Mapping[str, str]


def _first_exact(target: Target, context: int, named: Sequence[int]) -> _Found:
    """Try the tiers after a context of this length; the first that is exact stays with the target."""
    ids = _ids(target, context)
    refused: dict[str, str] = {}
    holes = min(max((one + BEYOND for one in named), default=_HOLES), _MOST_HOLES)
    for kind in TIERS:
        target.tier = tier = kind(target.tier.caller, target.info.device)
        try:
            if reason := tier.refusal():
                raise ModelError(reason)
            check_repeats(target, ids[:_CONTEXT])
            ruler = Ruler.of(target, ids[:_CONTEXT])
            error = check_trees(target, ids, ruler)
            check_plain(target, ids, ruler)
            check_holes(target, ids[:_CONTEXT], ruler, holes)
            check_together(target, ids[:_CONTEXT], ruler)
            return _Found(kind.name, error, context, refused)
        except OutriderError as error:
            refused[kind.name] = str(error)
        except Exception as error:
            refused[kind.name] = f"its forward failed{_strange_layers(target)}: {first_line(error)}"
    return _Found(None, None, context, refused)


def _check_plain_beyond(target: Target, ids: Sequence[int]) -> None:
    """Refuse a model whose texts can't be had even plainly, where trees are not exact anyway."""
    try:
        check_plain(target, ids, Ruler.of(target, ids[:_CONTEXT]))
    except PlainDiffersError as error:
        raise ModelError(
            f"{type(target.model).__name__} can't be served in contexts of {len(ids)} tokens: {error}"
        ) from error
    except ModelError:
        return


def _ids(target: Target, count: int) -> list[int]:
    ids: list[int] = torch.randint(0, vocabulary(target), (count,), generator=torch.Generator().manual_seed(0)).tolist()
    return ids


def _strange_layers(target: Target) -> str:
    config = target.model.config.get_text_config(decoder=True)
    kinds = sorted(set(getattr(config, "layer_types", None) or ()) - _ATTENTION_KINDS)
    return f", with layers of kind {', '.join(kinds)}" if kinds else ""
