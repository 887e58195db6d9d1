"""Writing EAGLE heads of any layout in another, tensor for tensor."""

from dataclasses import replace

import torch

from outrider import HeadsExport, HeadsTarget, InputError
from outrider_drafters.eagle.checkpoint import check_source, draft_ids
from outrider_drafters.eagle.config import EagleConfig
from outrider_drafters.eagle.names import is_ignored
from outrider_drafters.eagle.source import WEIGHTS, Source, open_source
from outrider_drafters.eagle.words import LAYOUTS, check_words, spell_layers
from outrider_drafters.eagle.writing import Named, write_eagle
from outrider_drafters.target_rows import output_rows
from outrider_drafters.tensors import read_tensors

_HEAD = "lm_head.weight"


def export_eagle(export: HeadsExport) -> None:
    """Write a head; see `outrider.WritesHeads`.

    Raises:
        InputError: the layout has no word for something that it has, or the target must be known.
    """
    source, layout = open_source(export.folder), LAYOUTS[export.layout]
    config = check_source(source)
    layers = export.target.info.num_layers if export.target else None
    # Of longrope it is read as the length up to which frequencies stay.
    positions = source.body.whole("max_position_embeddings") or config.max_positions
    config = replace(config, max_positions=positions, layer_ids=spell_layers(config, layout, layers))
    own = config.method == "eagle" and config.own_head
    if own:
        config = replace(config, own_head=False)
    check_words(config, layout)
    stored = read_tensors(source.folder, WEIGHTS)
    tensors = {known: stored[name] for known, name in source.names.items() if not is_ignored(known, source.layout)}
    if own:
        _compare_head(source, tensors, export)
    ids = draft_ids(source, config, tensors) if config.method == "eagle3" else None
    weights = {name: one for name, one in tensors.items() if name not in ("d2t", "t2d", _HEAD if own else "")}
    write_eagle(export.out, config, weights, ids, layout, _named(source, config, export.target))


def _compare_head(source: Source, tensors: dict[str, torch.Tensor], export: HeadsExport) -> None:
    """Make sure that a head's output rows are the target's, which every layout of EAGLE-1 but vLLM's leaves to it.

    Raises:
        InputError: they are not, or the target isn't known.
    """
    what = f"{source.folder}: the layout '{export.layout}' has no word for {_HEAD} of this head"
    if "token_map" in tensors:
        raise InputError(f"{what}, of some tokens only (token_map)")
    if export.target is None:
        raise InputError(f"{what}; it is left out where it is the target's own: -m MODEL tells")
    if not torch.equal(tensors[_HEAD], output_rows(export.target.load()).to(tensors[_HEAD].dtype)):
        raise InputError(f"{what}, and it is not that of {export.target.name}")


def _named(source: Source, config: EagleConfig, target: HeadsTarget | None) -> Named:
    """Return what is said of the target: what was given, else what the source says."""
    if target is not None:
        return Named(target.name, target.architectures)
    verifier = source.top.inner("speculators_config").inner("verifier").values.get("architectures")
    listed = verifier if isinstance(verifier, list) else []
    return Named(config.trained_for, tuple(one for one in listed if isinstance(one, str)))
