"""Context lengths at which a model's config says that something changes: windows, chunks, sparse attention.

A probe in a short context says nothing about a longer one, so a target is probed again where a text first passes one of these.
Changes of rotary frequencies are not among them: no draft and no probe reaches past one (see `compat.RopeSwitch`).
"""

import re
from collections.abc import Iterator
from typing import Any, Final

# Names of what bounds how far a token looks, in the configs of transformers' models, and of what is none.
_BOUNDS: Final = re.compile(r"window|chunk|block_size|local_attn|local_attention|compress|floor|original_max_position")
_CHOICES: Final = re.compile(r"index_topk$|index_top_k$")
_BLOCK_CHOICES: Final = re.compile(r"index_topk_blocks$")
_OTHERS: Final = re.compile(r"expert|moe|router|group|mlp|vocab|audio|vision|image|num_|layers")
_SHORTEST: Final = 2
_LONGEST: Final = 10_000_000


def thresholds(config: Any) -> tuple[int, ...]:
    """Return the lengths that a model's text config names, rising."""
    return tuple(sorted(set(_named(_values(config), _BOUNDS))))


def choices(config: Any) -> tuple[int, ...]:
    """Return the context lengths beyond which a token looks at its k best tokens or blocks only, rising.

    Equal scores are common there, and which of them are taken depends on how many tokens a forward holds, so that no draft can
    be verified exactly beyond, whatever a probe sees.
    """
    values = _values(config)
    block = values.get("index_block_size") or values.get("block_size") or 1
    blocks = {one * block for one in _named(values, _BLOCK_CHOICES)}
    return tuple(sorted(blocks.union(_named(values, _CHOICES))))


def _values(config: Any) -> dict[str, Any]:
    values: dict[str, Any] = config.to_dict() if hasattr(config, "to_dict") else vars(config)
    return values


def _named(values: dict[str, Any], names: re.Pattern[str]) -> Iterator[int]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _named(value, names)
        elif names.search(str(name)) and not _OTHERS.search(str(name)):
            for one in value if isinstance(value, list | tuple) else [value]:
                if isinstance(one, int) and not isinstance(one, bool) and _SHORTEST <= one <= _LONGEST:
                    yield one
