"""Arguments that several subcommands read alike."""

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


def check_folder(path: Path | None) -> None:
    """Refuse a file whose folder is not there, before anything is measured for it."""
    if path is not None and not path.expanduser().parent.is_dir():
        raise InputError(f"{path} can't be written: there is no folder {path.parent}")
