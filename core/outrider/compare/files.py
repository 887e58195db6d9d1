"""Comparisons as JSON files of a published, versioned schema."""

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from outrider.compare.result import FORMAT, VERSION, Comparison
from outrider.errors import InputError

_ADAPTER: Final = TypeAdapter(Comparison)


def schema() -> dict[str, Any]:
    """Return the JSON schema (2020-12) of a saved comparison; `docs/schema` holds the published one."""
    return published(_ADAPTER, FORMAT, VERSION)


def published(adapter: TypeAdapter[Any], name: str, version: int) -> dict[str, Any]:
    """Return the JSON schema of a format, with its name and version."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"{name}/{version}"}
    return head | adapter.json_schema()


def dumps(comparison: Comparison) -> str:
    """Return a comparison as JSON, on one line."""
    return _ADAPTER.dump_json(comparison).decode()


def save(comparison: Comparison, path: Path) -> None:
    """Write a comparison; the file is there whole or as it was before.

    Raises:
        OSError: it can't be written.
    """
    write(dumps(comparison) + "\n", path)


def write(text: str, path: Path) -> None:
    """Write a text; the file is there whole or as it was before. A link stays one, and so does a device or a pipe.

    Raises:
        OSError: it can't be written.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.write(text)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def read(path: str | Path) -> Comparison:
    """Read a saved comparison.

    Raises:
        InputError: it can't be read, is none, or is of another version of the schema.
    """
    path = Path(path).expanduser()
    try:
        text = path.read_text(encoding="utf-8")
        found: Any = json.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{path} can't be read: {reason}") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{path} is no saved comparison: {error}") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise InputError(f"{path} is no saved comparison; write one with outrider compare --save")
    if found.get("version") != VERSION:
        version = found.get("version")
        newer = isinstance(version, int) and version > VERSION
        what = "it was written by a newer one" if newer else "compare again"
        raise InputError(f"{path} has version {version!r} of the schema, and this outrider reads {VERSION}: {what}")
    try:
        comparison = _ADAPTER.validate_json(text)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        raise InputError(f"{path}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}") from error
    if wrong := _loose_end(comparison):
        raise InputError(f"{path}: {wrong}")
    return comparison


def _loose_end(found: Comparison) -> str:
    """Say what a run or a figure refers to that is not there, or which columns of a run differ in length; else nothing."""
    rows, prompts = {row.name for row in found.rows}, {prompt.index for prompt in found.prompts}
    for at, run in enumerate(found.runs):
        where = f"runs.{at}"
        if run.row not in rows:
            return f"{where}.row: there is no row {run.row!r}"
        if run.prompt not in prompts:
            return f"{where}.prompt: there is no prompt {run.prompt}"
        if not run.part < len(found.parts):
            return f"{where}.part: there is no part {run.part}"
        if run.pieces and len(run.pieces) != len(run.token_ids):
            return f"{where}.pieces: {len(run.pieces)} entries, and there are {len(run.token_ids)} tokens"
        columns = {name: len(getattr(run.steps, name)) for name in (field.name for field in fields(run.steps))}
        odd = next((name for name, length in columns.items() if length not in (0, len(run.steps))), None)
        if odd is not None:
            return f"{where}.steps.{odd}: {columns[odd]} entries, and there are {len(run.steps)} steps"
    told = [one.row for one in found.figures]
    return "" if set(told) <= rows else f"figures: there is no row {next(one for one in told if one not in rows)!r}"
