"""Making a target: find the model, load it, probe it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PreTrainedModel,
)

from outrider.draft.contract import TargetInfo
from outrider.errors import InputError, ModelError, first_line, suggestion
from outrider.ranks import launched
from outrider.target import compat
from outrider.target.embedded import EMBEDDED, fetch
from outrider.target.model import Target, describe
from outrider.target.probe import probe

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def load(
    model: Any,
    *,
    tokenizer: Any = None,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device | None = None,
    device_map: str | Mapping[str, Any] | None = None,
    tensor_parallel: bool = False,
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> Target:
    """Load a model as target and make sure that drafts for it can be verified exactly.

    Args:
        model: an embedded model (`smollm2`, fetched on first use), a folder, a Hub id, or a loaded model, which stays
            unchanged; of a PEFT model, the model with its adapters.
        tokenizer: used in place of the model's own.
        dtype: `float32`, `bfloat16`, ..., or `auto` for the checkpoint's own. The default is float32 on a CPU and the
            checkpoint's own elsewhere.
        device: such as `cpu` or `cuda:1`. The default is a GPU where there is one.
        device_map: spreads the layers over devices, as in `from_pretrained`; in place of `device`.
        tensor_parallel: the processes of `torchrun` or `accelerate launch` hold the model together, each a part of every
            matrix on a device of its own; all of them call what one would, and the first decides.
        revision: of a Hub id.
        trust_remote_code: run a model's own code.

    Raises:
        ModelError: the model can't be found or loaded, or fails the probe.
        InputError: `dtype` or `device` is none.
        FetchError: an embedded model can't be fetched.
    """
    model = _without_wrapper(model)
    if isinstance(model, PreTrainedModel):
        given = {
            "dtype": dtype,
            "device": device,
            "device_map": device_map,
            "revision": revision,
            "tensor_parallel": tensor_parallel or None,
        }
        if wrong := next((name for name, value in given.items() if value is not None), None):
            raise InputError(f"a loaded model keeps its {wrong}; change it before the model is passed to load")
        target = Target(model, tokenizer)
    elif not isinstance(model, str | Path):
        raise InputError(f"a {type(model).__name__} can't be a target: give a name, a folder, or a transformers model")
    else:
        if device is not None and device_map is not None:
            raise InputError("give device or device_map, not both")
        if tensor_parallel and not (device is None and device_map is None):
            raise InputError(
                "with tensor_parallel every process has a device of its own; leave device and device_map out"
            )
        hub = _hub(revision, trust_remote_code)
        spread = _spread() if tensor_parallel else {}
        if device_map is not None:
            spread["device_map"] = device_map
        target = _from_files(str(model), tokenizer, dtype, _device(device), spread, hub)
        if tensor_parallel and not target.ranks.several:
            raise ModelError(
                f"model '{model}' has no plan for tensor parallelism: run it in one process, or with device_map"
            )
    probe(target)
    return target


def _without_wrapper(model: Any) -> Any:
    """Return the transformers model inside a PEFT model, whose layers hold the adapters.

    Raises:
        InputError: the adapter changes the prompt, which is none of the model's layers.
    """
    inner = getattr(model, "get_base_model", None)
    if isinstance(model, PreTrainedModel) or inner is None:
        return model
    if getattr(getattr(model, "active_peft_config", None), "is_prompt_learning", False):
        raise InputError(
            "a PEFT model with a learned prompt is not served; merge it, or use an adapter inside the layers"
        )
    return inner()


def outline(model: str, *, revision: str | None = None, trust_remote_code: bool = False) -> TargetInfo:
    """Describe a model by its config alone: no weights are read, and nothing is run.

    Args:
        model: an embedded model, a folder, or a Hub id.
        revision: of a Hub id.
        trust_remote_code: run a model's own code.

    Raises:
        ModelError: the model can't be found, or its config describes none.
        FetchError: an embedded model can't be fetched.
    """
    hub = _hub(revision, trust_remote_code)
    where = _locate(model)
    with _telling(model), torch.device("meta"):
        config = AutoConfig.from_pretrained(where, **hub)
        trust = {"trust_remote_code": True} if trust_remote_code else {}
        built: Any = _auto(config).from_config(config, **trust)
    return replace(describe(built, None), parts=None)


def architectures(model: str, *, revision: str | None = None, trust_remote_code: bool = False) -> tuple[str, ...]:
    """Return the classes of a model, as its config names them; for the arguments and errors see `outline`."""
    with _telling(model):
        config = AutoConfig.from_pretrained(_locate(model), **_hub(revision, trust_remote_code))
    return tuple(getattr(config, "architectures", None) or ())


def _hub(revision: str | None, trust_remote_code: bool) -> dict[str, Any]:
    hub = {"revision": revision, "trust_remote_code": trust_remote_code or None}
    return {name: value for name, value in hub.items() if value is not None}


def _auto(config: Any) -> Any:
    return AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM


@contextmanager
def _telling(name: str) -> Iterator[None]:
    """Say in one line why a model can't be loaded."""
    try:
        yield
    except (OSError, ValueError, ImportError, RuntimeError, KeyError, AttributeError) as error:
        raise ModelError(f"model '{name}' can't be loaded: {first_line(error)}") from error


def _locate(name: str) -> str:
    """Return the folder or Hub id that a name stands for; an embedded model is fetched.

    Raises:
        ModelError: there is none.
        FetchError: an embedded model can't be fetched.
    """
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
    return str(path) if path.exists() else name


def _from_files(
    name: str,
    tokenizer: Any,
    dtype: str | torch.dtype | None,
    device: torch.device,
    spread: Mapping[str, Any],
    hub: Mapping[str, Any],
) -> Target:
    where, chosen = _locate(name), _dtype(dtype, device)
    with _telling(name):
        config = AutoConfig.from_pretrained(where, **hub)
        model: Any = _auto(config).from_pretrained(where, dtype=chosen, **spread, **hub)
        placed = bool(spread) or getattr(model, "is_quantized", False)
        model = (model if placed else model.to(device)).eval()
    return Target(model, tokenizer if tokenizer is not None else _tokenizer(where, hub))


def _spread() -> dict[str, Any]:
    """Return the arguments of `from_pretrained` that spread a model over the processes that were launched together.

    Raises:
        InputError: there is one alone.
    """
    if not launched():
        raise InputError("tensor_parallel needs several processes: torchrun --nproc_per_node 2 ...")
    return compat.tensor_parallel()


def _tokenizer(where: str, hub: Mapping[str, Any]) -> Any:
    """Load a model's tokenizer, or return None where it has none: prompts can be ids.

    For some models without one transformers makes a tokenizer of special tokens alone.
    """
    try:
        found = AutoTokenizer.from_pretrained(where, **hub)
    except (OSError, ValueError, ImportError, KeyError):
        return None
    return None if set(found.get_vocab().values()) <= set(found.all_special_ids) else found


def place_of(dtype: str | None, device: str | None) -> tuple[torch.dtype | None, torch.device | None]:
    """Return what the names of a dtype and a device mean; None for what is not named.

    Raises:
        InputError: the dtype is none that models are run in, or the device can't be used here.
    """
    if dtype is not None and dtype not in DTYPES:
        raise InputError(f"dtype '{dtype}' is none of {', '.join(DTYPES)}.{suggestion(dtype, list(DTYPES))}")
    if device is not None and device.startswith("meta"):
        raise InputError("device 'meta' holds no numbers; choose one that does")
    return None if dtype is None else DTYPES[dtype], None if device is None else _device(device)


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
