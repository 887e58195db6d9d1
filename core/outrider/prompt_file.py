"""Files of prompts: JSON lines in the usual shapes, a JSON list of such, or text, a line a prompt."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from outrider.errors import InputError

_SHAPES: Final = (
    'write {"prompt": "..."}, {"turns": ["...", ...]}, {"messages": [{"role": "user", "content": "..."}, ...]}, '
    'or {"conversations": [{"from": "human", "value": "..."}, ...]}'
)
_SYSTEM: Final = ("system", "developer")
_USER: Final = ("user", "human")
_MODEL: Final = ("assistant", "gpt", "chatgpt", "model", "bing", "bard")
_LINES: Final = (".txt", ".text", ".md")


@dataclass(frozen=True, slots=True)
class NamedPrompt:
    """A prompt, the name that tables show, and the category that it is counted in.

    Args:
        name: as tables show it.
        text: what the user says first.
        category: empty for none.
        later: what the user says in further turns, after the model's own answers.
        system: the system prompt; empty for none.
    """

    name: str
    text: str
    category: str = ""
    later: tuple[str, ...] = ()
    system: str = ""

    @property
    def turns(self) -> tuple[str, ...]:
        """All that the user says."""
        return (self.text, *self.later)

    @property
    def opening(self) -> str | list[dict[str, str]]:
        """The first turn, as `outrider.generate` takes it."""
        if not self.system:
            return self.text
        return [{"role": "system", "content": self.system}, {"role": "user", "content": self.text}]


def read_prompts(path: str | Path) -> tuple[NamedPrompt, ...]:
    """Read a file of prompts.

    A line of a JSONL file, or an item of a `.json` file's list, is `{"prompt": "...", "name": "..."}`, Spec-Bench's `turns`,
    `messages`, or ShareGPT's `conversations`; any may have a `category`. Answers in it are left out, since the model gives its
    own. In `.txt` and `.md` files a line is a prompt.

    Raises:
        InputError: the file can't be read, something in it is no prompt, or there is none; with the line.
    """
    path = Path(path).expanduser()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"prompts file {path} can't be read: {error}") from error
    if path.suffix == ".json":
        found = [_read_value(f"{path}: item {at}", one, str(at)) for at, one in enumerate(_items(path, text), 1)]
    else:
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        if path.suffix in _LINES:
            found = [NamedPrompt(str(number), line.strip()) for number, line in lines]
        else:
            found = [_read_line(f"{path}:{number}", line, str(number)) for number, line in lines]
    if not found:
        raise InputError(f"prompts file {path} holds no prompt")
    return tuple(found)


def _items(path: Path, text: str) -> list[Any]:
    try:
        values: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}: no JSON: {error.msg}; JSON lines belong in a .jsonl file") from error
    if not isinstance(values, list):
        raise InputError(f"{path}: expected a list of prompts; {_SHAPES}")
    return values


def _read_line(where: str, line: str, number: str) -> NamedPrompt:
    try:
        value: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: no JSON: {error}; {_SHAPES}") from error
    return _read_value(where, value, number)


def _read_value(where: str, value: Any, number: str) -> NamedPrompt:
    fields = value if isinstance(value, dict) else {}
    said = fields.get("messages") or fields.get("conversations")
    if said is not None:
        system, turns = _read_messages(where, said)
    else:
        system, turns = "", fields.get("turns") or [fields.get("prompt")]
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn for turn in turns):
        raise InputError(f"{where}: {_SHAPES}")
    names = (fields.get(key) for key in ("name", "question_id", "id"))
    name = next((str(one) for one in names if one not in (None, "")), number)
    return NamedPrompt(name, turns[0], str(fields.get("category") or ""), tuple(turns[1:]), system)


def _read_messages(where: str, messages: Any) -> tuple[str, Sequence[str]]:
    """Return the system prompt and what the user says."""
    system, turns = "", list[str]()
    for at, one in enumerate(messages if isinstance(messages, list) else [None], 1):
        fields = one if isinstance(one, dict) else {}
        role, text = fields.get("role", fields.get("from")), fields.get("content", fields.get("value"))
        if not isinstance(text, str):
            raise InputError(f"{where}: message {at} has no text; {_SHAPES}")
        if role in _USER:
            turns.append(text)
        elif role in _SYSTEM and not system and not turns:
            system = text
        elif role not in _MODEL:
            raise InputError(
                f"{where}: message {at} has the role {role!r}: user and assistant come after at most one system"
            )
    return system, turns
