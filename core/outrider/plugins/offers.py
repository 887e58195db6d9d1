"""Heads that packages bring for some target, found by what the target is, not by its name."""

from pathlib import Path

from outrider.draft.contract import TargetInfo
from outrider.errors import InputError
from outrider.plugins.registry import Registry, registry
from outrider.target.fingerprint import Fingerprint, read_fingerprint


def find_heads(drafter: str, target: TargetInfo, known: Registry | None = None) -> Path:
    """Return the folder of a drafter's heads for a target.

    Args:
        drafter: its name.
        target: what they must be for.
        known: whose offers are looked at; by default those of all installed plugins.

    Raises:
        InputError: nobody offers any; says for which targets somebody does, and how to train some.
    """
    offers = [(one, *read_fingerprint(one.folder)) for one in (known or registry()).offers if one.drafter == drafter]
    print_ = Fingerprint.of(target) if offers else None
    for offer, _, theirs in offers:
        if print_ is not None and theirs.matches(print_):
            return offer.folder
    names = ", ".join(sorted({name for _, name, _ in offers}))
    raise InputError(
        f"drafter '{drafter}' needs what was trained for this very model, and no package offers it"
        f"{f' (there is some for {names})' if names else ''}: give a folder, {drafter}[{_option(drafter, known)}=FOLDER], or "
        f"train one with `outrider train {drafter} -m MODEL --data FILE --out FOLDER`"
    )


def _option(drafter: str, known: Registry | None) -> str:
    found: str = getattr((known or registry()).find(drafter).drafter, "trained_as", "heads")
    return found
