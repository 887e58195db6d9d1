"""The record of a measurement: a JSON line for every run as it ends, so that an interrupted one goes on where it stopped."""

import json
from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Any

from outrider.errors import InputError, first_line


class Record:
    """A JSONL file: the settings, then a value a line.

    Args:
        path: of the file; None keeps nothing.
        settings: what the values depend on; a file of other settings is not taken up.

    Raises:
        InputError: the file can't be used, is no such record, or is of other settings.
    """

    def __init__(self, path: Path | None, settings: Mapping[str, Any]) -> None:
        self._path, self._keeps = path, path is not None
        self.kept: list[dict[str, Any]] = []
        """What the file held; a last line that was cut off by an interruption is dropped from it."""
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
            whole = [line for line in lines if line.endswith("\n")]
            if len(whole) < len(lines):
                path.write_text("".join(whole), encoding="utf-8")
            if not whole:
                self.keep({"settings": dict(settings)})
                return
            head, *self.kept = [json.loads(line) for line in whole]
            differs = head["settings"] != json.loads(json.dumps(dict(settings)))
        except OSError as error:
            raise InputError(f"the record {path} can't be used: {first_line(error)}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise self.unreadable() from error
        if differs:
            raise InputError(f"{path} holds runs with other settings; name another file or remove it")

    def read_only(self) -> "Record":
        """Return what it held, as a record that keeps nothing."""
        other = copy(self)
        other._keeps = False
        return other

    def unreadable(self) -> InputError:
        """Return the error that its values are not what they should be."""
        return InputError(f"{self._path} is no record of runs; name another file or remove it")

    def keep(self, value: Mapping[str, Any]) -> None:
        """Add a value to the file.

        Raises:
            OSError: it can't be written.
        """
        if self._path is not None and self._keeps:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(value) + "\n")
