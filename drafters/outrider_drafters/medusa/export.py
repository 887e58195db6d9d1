"""Writing Medusa's heads of any layout in another, tensor for tensor."""

from dataclasses import replace
from typing import Final

import torch

from outrider import HeadsExport, HeadsTarget, InputError
from outrider_drafters.medusa.checkpoint import FILES, Found
from outrider_drafters.medusa.writing import FASTER, VLLM, Written, one_output, write_medusa
from outrider_drafters.target_rows import output_rows
from outrider_drafters.tensors import read_tensors

_MAP: Final = "token_map"
_OUTPUT: Final = "lm_heads.0.weight"


def export_medusa(export: HeadsExport) -> None:
    """Write heads; see `outrider.WritesHeads`.

    Output layers that are the target's own rows are written for vLLM, which has no heads without, and left out for the first
    implementation, whose "version 2" takes them from the target; which needs the target.

    Raises:
        InputError: the target must be known, or the layout has no word for something.
    """
    found = Found.of(export.folder)
    if found is None:
        raise InputError(f"{export.folder} holds no Medusa heads")
    heads = _read(found, export.target)
    try:
        if export.layout == VLLM and not heads.shape.outputs:
            heads = _with_rows(heads, export.target)
        elif export.layout == FASTER and export.target is not None and one_output(heads):
            heads = _without_rows(heads, export.target)
        write_medusa(export.out, heads, export.layout)
    except InputError as error:
        raise InputError(f"{export.folder}: {error}") from error


def _read(found: Found, target: HeadsTarget | None) -> Written:
    found.check_names()
    hidden, whole, draft = found.widths
    if target is not None:
        hidden, whole = target.info.hidden_size, target.info.vocab_size
    shape = found.shape(hidden, whole or draft or 0)
    found.token_map(whole)
    names = dict(found.renamed(shape))
    stored = read_tensors(found.folder, FILES, {found.stored[name] for name in (*names, _MAP) if name in found.stored})
    weights = {own: stored[found.stored[name]] for name, own in names.items()}
    named = found.config.values.get("base_model_name_or_path")
    name = target.name if target is not None else named if isinstance(named, str) else None
    return Written(shape, weights, stored.get(found.stored.get(_MAP, "")), whole, name)


def _with_rows(heads: Written, target: HeadsTarget | None) -> Written:
    """Return heads with the target's rows as their output layer."""
    if target is None:
        raise InputError(
            "these heads use the target's own output rows, which vLLM wants in the file; -m MODEL has them"
        )
    rows = output_rows(target.load(), None if heads.token_map is None else heads.token_map.long())
    shape = replace(heads.shape, outputs=1, vocab=len(rows))
    return replace(heads, shape=shape, weights={**heads.weights, _OUTPUT: rows})


def _without_rows(heads: Written, target: HeadsTarget) -> Written:
    """Return heads without their output layers where these are the target's own rows, and as they are where not."""
    own = heads.weights[_OUTPUT]
    rows = output_rows(target.load(), None if heads.token_map is None else heads.token_map.long())
    if not (torch.equal(own, rows.to(own.dtype)) and torch.equal(rows, own.to(rows.dtype))):
        return heads
    weights = {name: one for name, one in heads.weights.items() if not name.startswith("lm_heads.")}
    return replace(heads, shape=replace(heads.shape, outputs=0), weights=weights)
