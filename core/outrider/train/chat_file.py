"""A file of chats that are made batch by batch: a batch is in it whole or not at all."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outrider.errors import InputError
from outrider.train.chats import Chat


@dataclass(slots=True)
class Progress:
    """How far the text is.

    Args:
        batches: that are written.
        chats: that were kept.
        tokens: of kept answers.
    """

    batches: int = 0
    chats: int = 0
    tokens: int = 0


class ChatFile:
    """A file of chats that grows by whole batches; what is there already is gone on with.

    Args:
        out: a JSONL file; beside it, `OUT.recipe.json` keeps how it is made.
        settings: how it is made.

    Raises:
        InputError: the file was made in another way, or can't be written.
    """

    def __init__(self, out: Path, settings: dict[str, Any]) -> None:
        self._path, self._settings = out, settings
        self.progress = Progress()
        self._seen: set[int] = set()

    def __enter__(self) -> "ChatFile":
        kept = self._path.with_name(self._path.name + ".recipe.json")
        try:
            if self._path.exists() and kept.exists():
                self._compare(json.loads(kept.read_text(encoding="utf-8")))
                self._read()
            elif self._path.exists():
                raise InputError(f"{self._path} is there, and not made by `data synthesize`; give another file")
            else:
                kept.write_text(json.dumps(self._settings), encoding="utf-8")
            self._file = self._path.open("ab", buffering=0)
        except OSError as error:
            raise self._failed(error) from error
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def add(self, chats: Sequence[Chat], tokens: int) -> None:
        """Append a batch, whole or not at all."""
        lines = [chat.to_json() for chat in chats]
        if lines:  # the last line of a batch says that the batch is whole
            lines[-1] |= {"batch": self.progress.batches, "tokens": tokens}
        data = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
        size = os.fstat(self._file.fileno()).st_size
        try:
            written = self._file.write(data)
            if written != len(data):
                raise OSError(28, "no space left on the device")
        except OSError as error:
            os.ftruncate(self._file.fileno(), size)
            raise self._failed(error) from error
        self._count(self.progress.batches, len(chats), tokens)

    def is_new(self, chat: Chat) -> bool:
        """Whether no chat before began in the same way; from now on one did."""
        key = _key(chat)
        fresh = key not in self._seen
        self._seen.add(key)
        return fresh

    def _count(self, batch: int, chats: int, tokens: int) -> None:
        self.progress.batches = batch + 1
        self.progress.chats += chats
        self.progress.tokens += tokens

    def _compare(self, before: dict[str, Any]) -> None:
        for name, value in self._settings.items():
            if before.get(name) != value:
                old, new = (str(one)[:60] for one in (before.get(name), value))
                raise InputError(
                    f"{self._path} was made with {name} {old}, and this is {new}: give another file, or the same settings"
                )

    def _read(self) -> None:
        """Take in the whole batches that are there; what a killed run left of another is cut off."""
        end = 0
        for batch, size, chats, tokens in _batches(self._path):
            end += size
            for chat in chats:
                self._seen.add(_key(chat))
            self._count(batch, len(chats), tokens)
        os.truncate(self._path, end)

    def _failed(self, error: OSError) -> InputError:
        return InputError(f"{self._path} can't be written: {error.strerror or error}")


def _batches(path: Path) -> Iterator[tuple[int, int, list[Chat], int]]:
    """Yield the whole batches of a file: number, bytes, chats, tokens of answers."""
    size, chats = 0, []
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            size += len(line)
            fields = json.loads(line)
            chats.append(Chat(tuple(fields["messages"]), fields.get("finished", True)))
            if "batch" in fields:
                yield fields["batch"], size, chats, fields["tokens"]
                size, chats = 0, []


def _key(chat: Chat) -> int:
    first = next(message["content"] for message in chat.messages if message["role"] == "user")
    return hash(" ".join(first.lower().split()))
