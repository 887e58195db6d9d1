"""Which of the registered drafters a folder of heads is for, and what they say of it."""

from pathlib import Path

from outrider.draft.contract import TargetInfo
from outrider.draft.heads import HeadsReport, ReadsHeads
from outrider.errors import DrafterError, InputError, OutriderError, first_line
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
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise InputError(f"heads '{folder}': {'a file; give its folder' if path.exists() else 'no such folder'}")
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
    raise InputError(f"{path} holds no heads that a drafter knows; asked: {', '.join(asked) or 'none reads any'}")
