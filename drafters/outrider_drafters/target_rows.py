"""The target's own output rows, for heads that use them and layouts that want them written out."""

from typing import Any

import torch

from outrider import InputError, TargetInfo


def output_rows(target: TargetInfo, ids: torch.Tensor | None = None) -> torch.Tensor:
    """Return the rows `[tokens, hidden]` by which a target makes its logits, on the CPU in its dtype.

    Args:
        target: with its parts.
        ids: `[tokens]` int64, which of them; None for all.

    Raises:
        InputError: it makes its logits by more than rows.
    """
    if target.parts is None:
        raise InputError("the target shows no parts of itself, and its output rows are needed")
    head: Any = target.parts.head
    weight = getattr(head.module, "weight", None)
    more = {
        "no plain rows": weight is None or weight.ndim != 2 or not weight.is_floating_point(),
        "a bias": getattr(head.module, "bias", None) is not None,
        f"a factor of {head.factor:g}": head.factor != 1.0,
        "a soft cap": head.cap is not None,
    }
    found = [what for what, there in more.items() if there]
    if weight is None or found:
        raise InputError(f"the target's head has {' and '.join(found)}, for which no layout of heads has a word")
    rows: torch.Tensor = weight.detach()
    return (rows if ids is None else rows[ids.to(rows.device)]).cpu()
