"""Making a target: find the model, load it, probe it."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from outrider.errors import InputError, ModelError, first_line, suggestion
from outrider.target.embedded import EMBEDDED, fetch
from outrider.target.model import Target
from outrider.target.probe import probe

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def load(
    model: str | Path | PreTrainedModel,
    *,
    tokenizer: Any = None,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device | None = None,
) -> Target:
    """Load a model as target and make sure that drafts for it can be verified exactly.

    Args:
        model: an embedded model (`smollm2`, fetched on first use), a folder, a Hub id, or a loaded model, which stays
            unchanged.
        tokenizer: used in place of the model's own.
        dtype: `float32`, `bfloat16`, ..., or `auto` for the checkpoint's own. The default is float32 on a CPU and the
            checkpoint's own elsewhere.
        device: such as `cpu` or `cuda:1`. The default is a GPU where there is one.

    Raises:
        ModelError: the model can't be found or loaded, or fails the probe.
        InputError: `dtype` or `device` is none.
        FetchError: an embedded model can't be fetched.
    """
    if isinstance(model, PreTrainedModel):
        if dtype is not None or device is not None:
            raise InputError("a loaded model keeps its dtype and device; move it before it is passed to load")
        target = Target(model, tokenizer)
    elif not isinstance(model, str | Path):
        raise InputError(f"a {type(model).__name__} can't be a target: give a name, a folder, or a transformers model")
    else:
        target = _from_files(str(model), tokenizer, dtype, _device(device))
    probe(target)
    return target


def _from_files(name: str, tokenizer: Any, dtype: str | torch.dtype | None, device: torch.device) -> Target:
    where = str(fetch(name)) if name in EMBEDDED else name
    if not name.strip():
        raise ModelError(f"which model? an embedded one ({', '.join(EMBEDDED)}), a folder, or a Hub id")
    path = Path(where).expanduser()
    if path.is_file():
        raise ModelError(f"model '{name}' is a file; give the folder that holds config.json and the weights")
    if not path.exists() and (name.startswith((".", "/", "~")) or name.count("/") != 1):
        raise ModelError(
            f"model '{name}': no such folder, and neither an embedded model ({', '.join(EMBEDDED)}) nor a Hub id (owner/name)."
            + suggestion(name, EMBEDDED)
        )
    where, chosen = str(path) if path.exists() else name, _dtype(dtype, device)
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(where, dtype=chosen)
        model = model.to(device).eval()
    except (OSError, ValueError, ImportError, RuntimeError, KeyError) as error:
        raise ModelError(f"model '{name}' can't be loaded: {first_line(error)}") from error
    return Target(model, tokenizer if tokenizer is not None else _tokenizer(where))


def _tokenizer(where: str) -> Any:
    """Load a model's tokenizer, or return None where it has none: prompts can be ids."""
    try:
        return AutoTokenizer.from_pretrained(where)
    except (OSError, ValueError, ImportError, KeyError):
        return None


def _dtype(dtype: str | torch.dtype | None, device: torch.device) -> str | torch.dtype:
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype is None:
        return torch.float32 if device.type == "cpu" else "auto"
    if dtype != "auto" and dtype not in DTYPES:
        raise InputError(f"dtype '{dtype}' is none of {', '.join(DTYPES)}, auto.{suggestion(dtype, [*DTYPES, 'auto'])}")
    return DTYPES.get(dtype, dtype)


def _device(device: str | torch.device | None) -> torch.device:
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError) as error:
        reason = (str(error).splitlines() or ["unknown"])[0]
        raise InputError(f"device '{device}' can't be used: {reason}") from error
    return found
