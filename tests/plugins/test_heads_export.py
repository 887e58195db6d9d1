"""Writing heads by the drafter that knows them: what is refused before, and that a folder is there whole or not at all."""

from pathlib import Path
from typing import Any

import pytest

from outrider import DrafterError, DrafterOptions, HeadsExport, HeadsReport, InputError, RowDrafter, export_heads
from outrider.draft.contract import API
from outrider.plugins.registry import Registry
from registries import registry_of

MARK = "heads.txt"


def _drafter(name: str, *layouts: str, fault: BaseException | None = None) -> type[RowDrafter[DrafterOptions]]:
    """A drafter whose heads are a file with its name, and which fails after it has begun to write."""

    def inspect(cls: Any, folder: Path, target: Any) -> HeadsReport | None:
        file = folder / MARK
        if not file.is_file() or file.read_text() != name:
            return None
        return HeadsReport(name, "its own", "1 head", 32, 64, None, None, None, misfit=target and "too wide")

    def export(cls: Any, job: HeadsExport) -> None:
        (job.out / "first").touch()
        if fault is not None:
            raise fault
        (job.out / MARK).write_text((job.folder / MARK).read_text())

    kind: Any = type(name.title(), (RowDrafter,), {"name": name, "requires_api": API, "propose_row": lambda *_: None})
    kind.inspect_heads = classmethod(inspect)
    if layouts:
        kind.layouts, kind.export_heads = layouts, classmethod(export)
    found: type[RowDrafter[DrafterOptions]] = kind
    return found


KNOWN = registry_of(_drafter("one", "plain", "short"), _drafter("two", "wide"), _drafter("three"))


def _heads(folder: Path, name: str = "one") -> Path:
    folder.mkdir()
    (folder / MARK).write_text(name)
    return folder


def _names(folder: Path) -> list[str]:
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*"))


def test_heads_are_written_to_a_new_folder_or_an_empty_one(tmp_path: Path) -> None:
    source = _heads(tmp_path / "a")
    report = export_heads(source, "short", tmp_path / "deep" / "b", known=KNOWN)
    assert report.drafter == "one"
    (tmp_path / "c").mkdir()
    export_heads(str(source), "plain", str(tmp_path / "c"), known=KNOWN)
    assert _names(tmp_path) == [
        "a",
        f"a/{MARK}",
        "c",
        "c/first",
        f"c/{MARK}",
        "deep",
        "deep/b",
        "deep/b/first",
        f"deep/b/{MARK}",
    ]


@pytest.mark.parametrize(
    ("name", "layout", "message"),
    [
        ("one", "wide", "holds one heads, which are written as plain, short; 'wide' is a layout of two"),
        ("one", "shorts", "written as plain, short; there is no layout 'shorts'. Did you mean 'short'"),
        ("three", "wide", "holds three heads, which are not written in any layout; 'wide' is a layout of two"),
        ("four", "wide", "holds no heads that a drafter knows"),
    ],
)
def test_a_layout_that_these_heads_have_not(tmp_path: Path, name: str, layout: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        export_heads(_heads(tmp_path / "a", name), layout, tmp_path / "b", known=KNOWN)
    assert _names(tmp_path) == ["a", f"a/{MARK}"]


def test_heads_that_do_not_fit_are_not_written(tmp_path: Path) -> None:
    target: Any = type("Target", (), {"info": object()})()
    with pytest.raises(InputError, match="too wide"):
        export_heads(_heads(tmp_path / "a"), "plain", tmp_path / "b", target, KNOWN)
    assert _names(tmp_path) == ["a", f"a/{MARK}"]


@pytest.mark.parametrize(
    ("fault", "kind", "message"),
    [
        (InputError("no word for it"), InputError, "^no word for it$"),
        (ZeroDivisionError("oops"), DrafterError, "drafter 'one' failed in export_heads: ZeroDivisionError: oops"),
        (OSError(28, "No space left on device"), InputError, "b can't be written: No space left on device"),
        (KeyboardInterrupt(), KeyboardInterrupt, "^$"),
    ],
)
def test_nothing_half_written_is_left(
    tmp_path: Path, fault: BaseException, kind: type[BaseException], message: str
) -> None:
    known: Registry = registry_of(_drafter("one", "plain", fault=fault))
    with pytest.raises(kind, match=message):
        export_heads(_heads(tmp_path / "a"), "plain", tmp_path / "b", known=known)
    assert _names(tmp_path) == ["a", f"a/{MARK}"]


def test_what_is_there_stays(tmp_path: Path) -> None:
    source = _heads(tmp_path / "a")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="a is not empty; heads are written to a new folder or an empty one"):
        export_heads(source, "plain", source, known=KNOWN)
    with pytest.raises(InputError, match="file is a file"):
        export_heads(source, "plain", tmp_path / "file", known=KNOWN)
    with pytest.raises(InputError, match="no such folder"):
        export_heads(tmp_path / "nowhere", "plain", tmp_path / "b", known=KNOWN)
    with pytest.raises(InputError, match="can't be written: Not a directory"):
        export_heads(source, "plain", tmp_path / "file" / "b", known=KNOWN)
    assert _names(tmp_path) == ["a", f"a/{MARK}", "file"]
