"""Folders of trained heads: what drafters say of one (`outrider heads inspect`), and what they write (`heads export`)."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Protocol, runtime_checkable

from pydantic import PlainValidator

from outrider.draft.contract import TargetInfo
from outrider.errors import InputError

_HUB_ID: Final = re.compile(r"[\w-][\w.-]*/[\w.-]+")


def heads_folder(folder: Any) -> Path:
    """Return a folder that a caller names; `~` is his home.

    Raises:
        InputError: there is none.
    """
    if not isinstance(folder, str | Path) or not str(folder).strip():
        raise InputError(f"{folder!r}: give a folder of heads")
    try:
        path = Path(folder).expanduser()
        if path.is_dir():
            return path
        fault = "a file; give its folder" if path.exists() else "no such folder"
    except (OSError, RuntimeError) as error:  # no permission, no such home
        fault = f"it can't be looked at: {getattr(error, 'strerror', None) or error}"
    hub = _HUB_ID.fullmatch(str(folder)) and not Path(folder).parent.exists()
    more = "; if it is a Hub id, download it first and give its folder" if hub else ""
    raise InputError(f"'{folder}': {fault}{more}")


HeadsFolder = Annotated[str | Path, PlainValidator(heads_folder)]
"""An option's type: a folder of heads, which must be there; a wrong one is refused before the target is loaded."""


@dataclass(frozen=True, slots=True)
class HeadsReport:
    """What a folder of heads holds.

    Args:
        drafter: name of the drafter that uses them.
        layout: whose way of writing them it is, such as `speculators`.
        parts: how many heads or layers, in words: `5 heads`, `1 layer`.
        hidden_size: width of the target's hidden states that they read.
        vocab_size: tokens of the target; None where the folder doesn't tell.
        draft_vocab_size: tokens that they can draft.
        features: which hidden states of the target they read, in transformers' numbering; None where that depends on the
            target and none was given.
        trained_for: the target as the folder names it; None where it doesn't.
        details: what else is worth knowing, in words.
        misfit: why the target that was asked for can't use them; None where it can, or none was given.
        in_model: whether they lie in a whole model's own files.
    """

    drafter: str
    layout: str
    parts: str
    hidden_size: int
    vocab_size: int | None
    draft_vocab_size: int | None
    features: tuple[int, ...] | None
    trained_for: str | None
    details: Mapping[str, str] = field(default_factory=dict)
    misfit: str | None = None
    in_model: bool = False


@runtime_checkable
class ReadsHeads(Protocol):
    """What a drafter class offers that can say what a folder of its heads holds."""

    @classmethod
    def inspect_heads(cls, folder: Path, target: TargetInfo | None) -> HeadsReport | None:
        """Report on a folder without running anything; None where it holds nothing of this drafter's.

        Args:
            folder: of the heads.
            target: whose fit is asked for, without weights (its device is `meta`, and it has no parts).

        Raises:
            InputError: the folder is of this drafter's kind, and wrong: with file, key and figures.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class HeadsTarget:
    """The target that heads are exported for.

    Args:
        name: how the folder calls it.
        info: by its config alone (its device is `meta`, and it has no parts).
        architectures: classes of its model, as its config names them.
        load: loads it, and describes it with its parts; for what its config can't tell.
    """

    name: str
    info: TargetInfo
    architectures: tuple[str, ...]
    load: Callable[[], TargetInfo]


@dataclass(frozen=True, slots=True, eq=False)
class HeadsExport:
    """What is written from what.

    Args:
        folder: of the heads.
        layout: one of the drafter's.
        out: an existing, empty folder.
        target: whom they serve; None where that was not given.
    """

    folder: Path
    layout: str
    out: Path
    target: HeadsTarget | None


@runtime_checkable
class WritesHeads(Protocol):
    """What a drafter class offers that can write its heads in other layouts.

    Attributes:
        layouts: their names.
    """

    layouts: ClassVar[tuple[str, ...]]

    @classmethod
    def export_heads(cls, export: HeadsExport) -> None:
        """Write heads that `inspect_heads` knows, every tensor in its dtype.

        Raises:
            InputError: the layout has no word for something that they have, or the target must be known.
        """
        ...
