"""Draft models that use the target's embeddings and head: what their folders hold is the layers between."""

from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from outrider import HeadsReport, InputError, TargetInfo, first_line
from outrider_drafters.tensors import list_tensors, read_json, read_tensors

_FILES: Final = ("model.safetensors",)
_MARK: Final = "shares_embeddings"


def shares_embeddings(folder: str) -> bool:
    """Whether a folder holds a draft model without embeddings of its own."""
    path = Path(folder).expanduser() / "config.json"
    return path.is_file() and read_json(path).get(_MARK) is True


def read_shared(folder: str, target: TargetInfo) -> PreTrainedModel:
    """Read a draft model and give it the target's embeddings and head.

    Raises:
        InputError: the folder is wrong, or the model was made for another target.
    """
    path = Path(folder).expanduser()
    if target.parts is None:
        raise InputError(f"{path} uses the target's embeddings, and this target shows no parts of itself")
    model: Any = _empty(path)
    if misfit := _misfit(path, model, target):
        raise InputError(misfit)
    _fill(model, path)
    parts: Any = target.parts
    model = model.to(target.device, target.dtype)
    model.set_input_embeddings(parts.embeddings.module)
    model.set_output_embeddings(parts.head.module)
    found: PreTrainedModel = model.eval()
    return found


def inspect_shared(folder: Path, target: TargetInfo | None) -> HeadsReport | None:
    """Report on a folder; None where it holds no draft model that shares embeddings.

    Raises:
        InputError: it holds one that is broken.
    """
    if not shares_embeddings(str(folder)):
        return None
    with torch.device("meta"):
        model = _empty(folder)
    _check(model, folder)
    config: Any = model.config.get_text_config()
    layers = config.num_hidden_layers
    told = read_json(folder / "config.json").get("base_model_name_or_path")
    return HeadsReport(
        drafter="draft-model",
        layout="transformers, without embeddings",
        parts=f"{layers} layer{'s' * (layers > 1)}",
        hidden_size=config.hidden_size,
        vocab_size=config.vocab_size,
        draft_vocab_size=config.vocab_size,
        features=(),
        trained_for=told if isinstance(told, str) else None,
        details={"embeddings": "the target's", "head": "the target's"},
        misfit=_misfit(folder, model, target) if target is not None else None,
    )


def read_body(folder: Path) -> tuple[nn.Module, str]:
    """Read the layers alone, and their name in the model.

    Raises:
        InputError: the folder is wrong.
    """
    model = _empty(folder)
    _fill(model, folder)
    body = getattr(model, model.base_model_prefix)
    body.set_input_embeddings(None)
    return body, model.base_model_prefix


def _empty(folder: Path) -> PreTrainedModel:
    try:
        config = AutoConfig.from_pretrained(folder)
        config.tie_word_embeddings = False
        made: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    except Exception as error:  # transformers raises what a config leads to
        raise InputError(f"{folder} holds no draft model: {first_line(error)}") from error
    return made


def _misfit(folder: Path, model: PreTrainedModel, target: TargetInfo) -> str | None:
    """Say why a target's embeddings can't serve a draft model; None where they can."""
    config: Any = model.config.get_text_config()
    if (config.hidden_size, config.vocab_size) == (target.hidden_size, target.vocab_size):
        return None
    return (
        f"{folder} uses the embeddings of a target of width {config.hidden_size} and vocabulary {config.vocab_size}, and this "
        f"one has width {target.hidden_size} and vocabulary {target.vocab_size}"
    )


def _check(model: PreTrainedModel, folder: Path) -> None:
    """Refuse a folder that does not hold a model's weights: all but embeddings and head, and nothing else."""
    ends = {id(model.get_input_embeddings()), id(model.get_output_embeddings())}
    names = {name for name, part in model.named_modules() if id(part) in ends}
    wanted = {
        name: tuple(one.shape) for name, one in model.state_dict().items() if name.rpartition(".")[0] not in names
    }
    stored = list_tensors(folder, _FILES)
    wrong = sorted(set(wanted) ^ set(stored)) or [name for name in wanted if wanted[name] != stored[name].shape]
    if wrong:
        held = stored.get(wrong[0])
        have, want = (str(list(one)) if one else "none" for one in (held and held.shape, wanted.get(wrong[0])))
        raise InputError(f"{folder / _FILES[0]}: '{wrong[0]}' has shape {have}, and by config.json it must have {want}")


def _fill(model: PreTrainedModel, folder: Path) -> None:
    _check(model, folder)
    with torch.no_grad():
        model.load_state_dict(read_tensors(folder, _FILES), strict=False)
