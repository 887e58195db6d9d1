"""Arguments that several subcommands read alike."""

import os
from pathlib import Path

from outrider.errors import InputError


def batch_sizes(text: str) -> tuple[int, ...]:
    """Read `--batch-size`.

    Raises:
        InputError: it is no list of whole numbers.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise InputError(f"--batch-size {text}: write whole numbers from 1 on, such as 1,2,4")
    return tuple(dict.fromkeys(map(int, parts)))


def writable(path: Path) -> Path:
    """Return where a file goes, home folders spelled out; refuses what can't be written before anything is measured for it.

    Raises:
        InputError: it is a folder, its folder is not there, or may not be written to.
    """
    found = path.expanduser()
    if not found.parent.is_dir():
        raise InputError(f"{path} can't be written: there is no folder {found.parent}")
    if found.is_dir():
        raise InputError(f"{path} can't be written: it is a folder")
    if not os.access(found if found.exists() and not found.is_file() else found.parent, os.W_OK):
        raise InputError(f"{path} can't be written: you may not write there")
    return found
