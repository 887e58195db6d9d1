"""Which of the registered drafters a folder of heads is for, and what they say of it."""

from pathlib import Path

from outrider.draft.contract import TargetInfo
from outrider.draft.heads import HeadsReport, ReadsHeads, heads_folder
from outrider.errors import DrafterError, InputError, OutriderError, first_line
from outrider.plugins.folder import describe
from outrider.plugins.registry import Registry, registry


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
    path = heads_folder(folder)
    faults: list[OutriderError] = []
    asked: list[str] = []
    for record in (known or registry()).drafters():
        if not isinstance(record.drafter, ReadsHeads):
            continue
        asked.append(record.name)
        try:
            found = record.drafter.inspect_heads(path, target)
            if not isinstance(found, HeadsReport | None):
                raise TypeError(f"expected a HeadsReport or None, got {type(found).__name__}")
        except InputError as error:
            faults.append(error)
        except Exception as error:  # a plugin may raise anything
            faults.append(DrafterError(f"drafter '{record.name}' failed in inspect_heads: {first_line(error)}"))
        else:
            if found is not None:
                return found
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
