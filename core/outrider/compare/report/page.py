"""The page of a comparison, and its file."""

import base64
import hashlib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from outrider.compare import files as comparisons
from outrider.compare import table
from outrider.compare.pooled import with_figures
from outrider.compare.report import facts, plots
from outrider.compare.report.chart import Chart
from outrider.compare.report.headline import headline
from outrider.compare.report.tokens import packed
from outrider.compare.report.visible import visible
from outrider.compare.result import Comparison
from outrider.compare.table import fastest, grids, notes, what_of
from outrider.errors import InputError

if TYPE_CHECKING:
    from jinja2 import Environment

_WARNING: Final = "WARNING"


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page that is not of every comparison.

    Args:
        command: that the page is called by, in place of `outrider compare`.
        name: in the page's address.
        title: above it.
        note: how it is read.
        charts: what is drawn.
        said: what follows, a line each.
    """

    command: str
    name: str
    title: str
    note: str
    charts: tuple[Chart, ...]
    said: tuple[str, ...] = ()


def write_report(comparison: Comparison, path: str | Path, section: Section | None = None) -> None:
    """Write the report of a comparison; the file is there whole or as it was before.

    Args:
        comparison: what is shown.
        path: of the file.
        section: goes before all others.

    Raises:
        InputError: it can't be written, or jinja2 is missing.
    """
    path = Path(path).expanduser()
    text = page(comparison, section)
    try:
        comparisons.write(text, path)
    except OSError as error:
        raise InputError(f"the report {path} can't be written: {error.strerror or error}") from error


def page(comparison: Comparison, section: Section | None = None) -> str:
    """Return the report, one HTML document that asks for nothing else; for the arguments see `write_report`.

    Raises:
        InputError: jinja2 is missing.
    """
    templates = environment()
    if len(comparison.figures) != len(comparison.rows):
        comparison = with_figures(comparison)
    style, script = (_asset(name) for name in ("report.css", "report.js"))
    tokens, said = packed(comparison), notes(comparison)
    brings, goes, *_ = grids(comparison)
    return templates.get_template("page.html.j2").render(
        comparison=comparison,
        section=section,
        pairs=plots.pairs(comparison),
        plots=plots,
        facts=facts,
        what=what_of(comparison),
        headline=headline(comparison),
        warnings=[line.removeprefix(_WARNING).lstrip(": ") for line in said if line.startswith(_WARNING)],
        notes=[line for line in said if not line.startswith(_WARNING)],
        fastest=fastest(comparison),
        rows={row.name: (row, one) for row, one in plots.pairs(comparison)},
        brings=brings,
        goes=goes,
        table=table,
        tokens=tokens,
        style=_safe(style),
        script=_safe(script),
        style_hash=_digest(style),
        script_hash=_digest(script),
    )


def environment() -> "Environment":
    """Return what renders the page.

    Raises:
        InputError: jinja2 is missing.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise InputError("the report needs jinja2: pip install 'outrider[report]'") from error
    return Environment(
        loader=PackageLoader(__package__ or "", ""),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _finalize(value: Any) -> Any:
    """Make every text that a template prints visible before it is escaped, so that no place can forget to."""
    return visible(value) if type(value) is str else value


def _asset(name: str) -> str:
    return files(__package__ or "").joinpath(name).read_text(encoding="utf-8")


def _safe(text: str) -> Any:
    from markupsafe import Markup

    return Markup(text)


def _digest(text: str) -> str:
    """Return how a content security policy names a style or a script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
