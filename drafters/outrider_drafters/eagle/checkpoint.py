"""Loading EAGLE heads: every tensor is used and every weight is a tensor's, or nothing is loaded."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from outrider import InputError, TargetInfo, heads_folder, not_heads_of
from outrider_drafters.eagle.config import EagleConfig, Method
from outrider_drafters.eagle.names import OPTIONAL, expected_shapes, is_ignored, spelt
from outrider_drafters.eagle.network import EagleNetwork
from outrider_drafters.eagle.reading import read_config
from outrider_drafters.eagle.source import CONFIG, WEIGHTS, Source, open_source
from outrider_drafters.tensors import is_file, listed, read_tensors, weight_file

_VOCABULARY = frozenset(["d2t", "t2d", "token_map"])


def read_eagle(
    folder: str | Path,
    target: TargetInfo,
    *,
    method: Method | None = None,
    feature_layers: Sequence[int] | None = None,
) -> tuple[EagleConfig, EagleNetwork]:
    """Read a head from a folder, in any of the published layouts.

    Args:
        folder: with `config.json` and the weights.
        target: what it will draft for.
        method: which kind of head it must be.
        feature_layers: the target's hidden states that it reads, in transformers' numbering, in place of the file's.

    Returns:
        What it is, and its network in the target's dtype and on its device.

    Raises:
        InputError: the folder holds no such head, contradicts itself, or is for another target: with file, key and figures.
    """
    path = heads_folder(folder)
    if not is_file(path / CONFIG) or weight_file(path, WEIGHTS) is None:
        raise not_heads_of(method or "eagle", path)
    source = open_source(path)
    if not source.is_head and not any(name.startswith("layers.0.") for name in source.stored):
        raise not_heads_of(method or "eagle", path)
    config = check_source(source)
    if method is not None and config.method != method:
        raise InputError(
            f"{source.folder} holds an {config.method} head; pick it with -d {config.method}, not -d {method}"
        )
    config = config.for_target(target, feature_layers)
    tensors = {name: one for name, one in _tensors(source).items() if not is_ignored(name, source.layout)}
    ids = draft_ids(source, config, tensors)
    weights = {name: one.to(target.device, target.dtype) for name, one in tensors.items() if name not in _VOCABULARY}
    with torch.device("meta"):
        network = EagleNetwork(config)
    network.load_state_dict(weights, assign=True)
    network.rotary.to(target.device)
    network.d2t_ids = None if ids is None else ids.to(target.device)
    return config, network.requires_grad_(False).eval()


def check_source(source: Source) -> EagleConfig:
    """Understand a head's config, and compare its tensors' names and shapes with it, without reading them.

    Raises:
        InputError: they contradict each other.
    """
    config = read_config(source)
    expected = expected_shapes(config)
    file = next(iter(source.stored.values())).file if source.stored else source.folder
    stored = {name: one for name, one in source.stored.items() if not is_ignored(name, source.layout)}
    missing = [
        spelt(name, source.layout, source.names.values()) for name in expected if name not in {*stored, *OPTIONAL}
    ]
    unexpected = [source.names[name] for name in stored if name not in expected]
    faults = [
        f"{what} {listed(names)}" for what, names in (("lacks", missing), ("has unexpected", unexpected)) if names
    ]
    if faults:
        raise InputError(
            f"{file} {' and '.join(faults)}, by {source.top.path} ({config.method}, {config.layout} layout)"
        )
    for name, one in stored.items():
        if name not in _VOCABULARY and not one.floating:
            raise InputError(
                f"{one.file}: {source.names[name]} is {one.dtype}, and a weight must be float16, bfloat16, float32 or float64"
            )
        if one.shape != expected[name]:
            raise InputError(
                f"{one.file}: {source.names[name]} has the shape {list(one.shape)}, and by {source.top.path} it must have "
                f"{list(expected[name])}"
            )
    if not config.own_embeddings and config.target_hidden_size != config.hidden_size:
        raise InputError(
            f"{file} lacks embed_tokens.weight, which a head of width {config.hidden_size} for a target of width "
            f"{config.target_hidden_size} (target_hidden_size) needs"
        )
    return config


def draft_ids(source: Source, config: EagleConfig, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
    """Return the target's ids `[draft vocab]` of the head's tokens; None where they are the same.

    `d2t` holds offsets: the target's id of token i is i + d2t[i], and `t2d` marks these ids. `token_map` holds ids.

    Raises:
        InputError: they are missing, or don't agree with each other and the vocabulary.
    """
    whole = config.draft_vocab_size == config.vocab_size
    name = "token_map" if config.method == "eagle" else "d2t"
    given, marks = tensors.get(name), tensors.get("t2d")
    if given is None:
        if not whole:
            raise InputError(
                f"{source.folder} lacks {name}, without which the {config.draft_vocab_size} tokens that it drafts can't be "
                f"told among the target's {config.vocab_size}"
            )
        ids = torch.arange(config.vocab_size)
    else:
        if given.is_floating_point() or given.dtype == torch.bool:
            raise InputError(f"{source.stored[name].file}: {name} is {given.dtype}, and must be whole numbers")
        ids = given.long() + (torch.arange(len(given)) if name == "d2t" else 0)
    held = "ids" if name == "token_map" else "offsets, target id minus draft id"
    file = source.stored[name].file if given is not None else source.folder
    if int(ids.min()) < 0 or int(ids.max()) >= config.vocab_size:
        wrong = int(ids.max()) if int(ids.min()) >= 0 else int(ids.min())
        raise InputError(
            f"{file}: {name} leads to id {wrong}, and the target has 0 to {config.vocab_size - 1}; it must hold {held}"
        )
    if bool((ids.diff() <= 0).any()) if name == "d2t" else len(set(ids.tolist())) < len(ids):
        raise InputError(f"{file}: {name} does not lead to distinct ids in order; it must hold {held}")
    if marks is not None and not torch.equal(marks.bool().nonzero().flatten(), ids):
        raise InputError(
            f"{file}: d2t and t2d disagree: they lead to other ids; d2t must hold {held}, t2d mark the ids"
        )
    return None if whole and torch.equal(ids, torch.arange(len(ids))) else ids


def read_vocabulary(source: Source) -> dict[str, torch.Tensor]:
    """Read the tensors that `draft_ids` compares, and no others."""
    names = {source.names[known]: known for known in _VOCABULARY & source.names.keys()}
    found = read_tensors(source.folder, WEIGHTS, names.keys()) if names else {}
    return {names[name]: one for name, one in found.items()}


def _tensors(source: Source) -> dict[str, torch.Tensor]:
    found = read_tensors(source.folder, WEIGHTS)
    return {known: found[name] for known, name in source.names.items()}
