"""Draft models that use the target's embeddings and head: what their folders hold is the layers between."""

from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from outrider import InputError, TargetInfo, first_line
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
    size, theirs = model.config.get_text_config().hidden_size, target.hidden_size
    vocab = model.config.get_text_config().vocab_size
    if (size, vocab) != (theirs, target.vocab_size):
        raise InputError(
            f"{path} uses the embeddings of a target of width {size} and vocabulary {vocab}, and this one has width "
            f"{theirs} and vocabulary {target.vocab_size}"
        )
    _fill(model, path)
    parts: Any = target.parts
    model = model.to(target.device, target.dtype)
    model.set_input_embeddings(parts.embeddings.module)
    model.set_output_embeddings(parts.head.module)
    found: PreTrainedModel = model.eval()
    return found


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


def _fill(model: PreTrainedModel, folder: Path) -> None:
    """Give a model the weights of a folder: all but embeddings and head, and nothing else."""
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
    with torch.no_grad():
        model.load_state_dict(read_tensors(folder, _FILES), strict=False)
