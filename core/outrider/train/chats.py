"""Chats as training text: JSON lines, in the usual shapes."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from outrider.errors import InputError

Message = Mapping[str, str]
_ROLES: Final = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}
_SHAPE: Final = '{"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}'


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation.

    Args:
        messages: `{"role": ..., "content": ...}` in order; roles are system, user and assistant.
        finished: whether the last answer ended by itself; what follows an unfinished one is not trained on.
    """

    messages: tuple[Message, ...]
    finished: bool = True

    def to_json(self) -> dict[str, Any]:
        """Return what a line of a file holds."""
        messages = [dict(message) for message in self.messages]
        return {"messages": messages} | ({} if self.finished else {"finished": False})

    @property
    def answered(self) -> bool:
        """Whether there is an answer to train on."""
        return any(message["role"] == "assistant" and message["content"] for message in self.messages)


def read_chats(path: str | Path) -> Iterator[Chat]:
    """Read a JSONL file, a chat a line: `messages` (role, content) or ShareGPT's `conversations` (from, value).

    Raises:
        InputError: the file can't be read, or a line is no chat; with its number and what was expected.
    """
    path = Path(path).expanduser()
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield _read_line(f"{path}:{number}", line)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"data file {path} can't be read: {reason}") from error


def _read_line(where: str, line: str) -> Chat:
    try:
        value: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: no JSON: {error}") from error
    fields = value if isinstance(value, dict) else {}
    listed = fields.get("messages", fields.get("conversations"))
    if not isinstance(listed, list) or not listed:
        raise InputError(f"{where}: no chat; a line is {_SHAPE}, or ShareGPT's conversations")
    messages = tuple(_read_message(f"{where}, message {index}", one) for index, one in enumerate(listed))
    finished = fields.get("finished", True)
    if not isinstance(finished, bool):
        raise InputError(f"{where}: finished is {finished!r}, and must be true or false")
    return Chat(messages, finished)


def _read_message(where: str, value: Any) -> Message:
    fields = value if isinstance(value, dict) else {}
    role = fields.get("role", fields.get("from"))
    text = fields.get("content", fields.get("value"))
    if not isinstance(role, str) or not isinstance(text, str):
        raise InputError(f'{where}: write {{"role": ..., "content": ...}}, both of them texts')
    if role not in _ROLES:
        raise InputError(f"{where}: role '{role}' is none of {', '.join(sorted(_ROLES))}")
    return {"role": _ROLES[role], "content": text}
