"""A file of prompts: JSON lines, a prompt each."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outrider.errors import InputError


@dataclass(frozen=True, slots=True)
class NamedPrompt:
    """A prompt, the name that tables show, and the category that it is counted in."""

    name: str
    text: str
    category: str = ""


def read_prompts(path: str | Path) -> tuple[NamedPrompt, ...]:
    """Read a JSONL file: a line a prompt, `{"prompt": "...", "name": "..."}` or Spec-Bench's `turns`, the first of them.

    Either may have a `category`.

    Raises:
        InputError: the file can't be read, a line is no such object, or there is none; with the line.
    """
    path = Path(path).expanduser()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"prompts file {path} can't be read: {error}") from error
    found = tuple(_read_line(f"{path}:{number}", line) for number, line in enumerate(lines, 1) if line.strip())
    if not found:
        raise InputError(f"prompts file {path} holds no prompt")
    return found


def _read_line(where: str, line: str) -> NamedPrompt:
    try:
        value: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: no JSON: {error}") from error
    fields = value if isinstance(value, dict) else {}
    turns = fields.get("turns") or [fields.get("prompt")]
    text = turns[0] if isinstance(turns, list) else None
    if not isinstance(text, str) or not text:
        raise InputError(f'{where}: write {{"prompt": "..."}}')
    number = where.rpartition(":")[2]
    name = str(fields.get("name") or fields.get("question_id") or number)
    return NamedPrompt(name, text, str(fields.get("category") or ""))
