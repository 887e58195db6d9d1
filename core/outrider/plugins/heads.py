"""Which of the registered drafters a folder of heads is for, and what they say or write of it."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from outrider.draft.contract import TargetInfo
from outrider.draft.heads import HeadsExport, HeadsReport, HeadsTarget, ReadsHeads, WritesHeads, heads_folder
from outrider.errors import DrafterError, InputError, OutriderError, first_line, suggestion
from outrider.plugins.folder import describe
from outrider.plugins.registry import DrafterRecord, Registry, registry
from outrider.trace import traced


def inspect_heads(folder: str | Path, target: TargetInfo | None = None, known: Registry | None = None) -> HeadsReport:
    """Ask every drafter that reads heads what a folder holds; the first that knows it answers.

    Args:
        folder: of the heads.
        target: what they have to fit, or None.
        known: whose drafters are asked; the installed ones by default.

    Raises:
        InputError: there is no such folder, no drafter knows it, or one does and it is wrong.
        DrafterError: no drafter knows it, and one failed in saying so.
    """
    return _ask(heads_folder(folder), target, known or registry())[1]


def export_heads(
    folder: str | Path,
    layout: str,
    out: str | Path,
    target: HeadsTarget | None = None,
    known: Registry | None = None,
) -> HeadsReport:
    """Write a folder of heads in another layout, by the drafter that knows it.

    Args:
        folder: of the heads.
        layout: one of the drafter's.
        out: a folder that doesn't exist, or an empty one; it is there whole or not at all.
        target: whom they have to fit, or None.
        known: whose drafters are asked; the installed ones by default.

    Returns:
        What the new folder holds.

    Raises:
        InputError: as `inspect_heads`, or the heads don't fit the target, can't be written so, or the folder is not empty.
        DrafterError: the drafter failed at it.
    """
    source, drafters = heads_folder(folder), known or registry()
    place = _empty(out)
    record, found = _ask(source, target.info if target else None, drafters)
    if found.misfit:
        raise InputError(found.misfit)
    writes = record.drafter
    if not isinstance(writes, WritesHeads) or layout not in writes.layouts:
        raise InputError(_other_layout(source, layout, record, drafters))
    beside = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        beside.mkdir(parents=True)
        _call(record.name, lambda: writes.export_heads(HeadsExport(source, layout, beside, target)))
        written = _ask(beside, target.info if target else None, drafters)[1]
        beside.replace(place)
    except OSError as error:
        raise InputError(f"{place} can't be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return written


def _empty(out: str | Path) -> Path:
    place = Path(out).expanduser().resolve()
    if place.exists() and not (place.is_dir() and not any(place.iterdir())):
        what = "is not empty" if place.is_dir() else "is a file"
        raise InputError(f"{place} {what}; heads are written to a new folder or an empty one")
    return place


def _ask(path: Path, target: TargetInfo | None, known: Registry) -> tuple[DrafterRecord, HeadsReport]:
    """Return the first drafter that knows a folder, and what it says."""
    faults: list[OutriderError] = []
    asked: list[str] = []
    for record in known.drafters():
        drafter = record.drafter
        if not isinstance(drafter, ReadsHeads):
            continue
        asked.append(record.name)
        try:
            with traced(f"drafter '{record.name}'", "inspect_heads"):
                found = drafter.inspect_heads(path, target)
            if not isinstance(found, HeadsReport | None):
                raise TypeError(f"expected a HeadsReport or None, got {type(found).__name__}")
        except InputError as error:
            faults.append(error)
        except Exception as error:  # a plugin may raise anything
            faults.append(DrafterError(f"drafter '{record.name}' failed in inspect_heads: {first_line(error)}"))
        else:
            if found is not None:
                return record, found
    if faults:
        raise faults[0]
    known_by = ", ".join(asked) or "none reads any"
    raise InputError(f"{path} holds no heads that a drafter knows; asked: {known_by}. {describe(path)}")


def not_heads_of(drafter: str, folder: Path) -> InputError:
    """Return the error that a folder holds no heads of a drafter: whose they are, or what else it holds."""
    try:
        found = inspect_heads(folder)
    except OutriderError as error:
        return InputError(str(error))
    return InputError(
        f"{folder} holds heads of {found.drafter} ({found.layout}: {found.parts}); pick -d {found.drafter}, not -d {drafter}"
    )


def _call(name: str, export: Callable[[], None]) -> None:
    try:
        with traced(f"drafter '{name}'", "export_heads"):
            export()
    except (OutriderError, OSError):
        raise
    except Exception as error:  # a plugin may raise anything
        raise DrafterError(f"drafter '{name}' failed in export_heads: {first_line(error)}") from error


def _other_layout(source: Path, layout: str, record: DrafterRecord, known: Registry) -> str:
    """Say which layouts there are for some heads, and whose the one is that was asked for."""
    writing: dict[str, tuple[str, ...]] = {}
    for one in known.drafters():
        drafter: object = one.drafter
        if isinstance(drafter, WritesHeads):
            writing[one.name] = drafter.layouts
    own = writing.get(record.name, ())
    others = [name for name, layouts in writing.items() if layout in layouts]
    whose = f"'{layout}' is a layout of {' and '.join(others)}" if others else f"there is no layout '{layout}'"
    mine = f"written as {', '.join(own)}" if own else "not written in any layout"
    return f"{source} holds {record.name} heads, which are {mine}; {whose}.{'' if others else suggestion(layout, own)}"
