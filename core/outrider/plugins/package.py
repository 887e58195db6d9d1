"""A new plugin package, made from the template: the smallest drafter that works, with tests and packaging."""

import importlib.metadata
import importlib.util
import re
import shutil
from pathlib import Path
from string import Template
from typing import Final

from outrider.errors import InputError
from outrider.plugins.registry import Registry, registry

_PREFIX: Final = "outrider-"
_NAME: Final = re.compile(r"outrider-[a-z][a-z0-9]*(-[a-z0-9]+)*")
_TEMPLATE: Final = Path(__file__).parent / "template"


def package_files(distribution: str) -> dict[str, str]:
    """Return the files of a plugin package by their paths in it.

    Args:
        distribution: its name; the drafter's is what follows `outrider-`.

    Raises:
        InputError: it is no name for one.
    """
    if not _NAME.fullmatch(distribution):
        raise InputError(
            f"plugin name '{distribution}': write outrider- and the drafter's name, lower-case words with hyphens, such as "
            f"outrider-foo"
        )
    name, module = distribution.removeprefix(_PREFIX), distribution.replace("-", "_")
    title = "".join(map(str.capitalize, name.split("-")))
    words = {"distribution": distribution, "name": name, "module": module, "title": title}
    places = {"module.py": f"{module}.py", "test.py": f"tests/test_{name.replace('-', '_')}.py"}
    files = {path.name.removesuffix(".in"): path for path in sorted(_TEMPLATE.glob("*.in"))}
    return {
        places.get(place, place): Template(path.read_text(encoding="utf-8")).substitute(words)
        for place, path in files.items()
    }


def new_plugin(distribution: str, out: str | Path | None = None, known: Registry | None = None) -> Path:
    """Write a new plugin package.

    Args:
        distribution: its name, such as `outrider-foo` for a drafter `foo`.
        out: its folder, which must not exist or be empty; by default named as the package, in the current one.
        known: whose drafters' names are taken; by default those of all installed plugins.

    Returns:
        The folder.

    Raises:
        InputError: the name is no name for a plugin, or taken; the folder is not empty, or can't be written.
    """
    files = package_files(distribution)
    _check_free(distribution, known or registry())
    folder = Path(out or distribution).expanduser()
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise InputError(f"{folder} {'is not empty' if folder.is_dir() else 'is a file'}; name a new folder with --out")
    made = not folder.exists()
    try:
        for place, text in files.items():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            (folder / place).write_text(text, encoding="utf-8")
    except OSError as error:
        if made:
            shutil.rmtree(folder, ignore_errors=True)
        raise InputError(f"{folder} can't be written: {error.strerror or error}") from error
    return folder


def _check_free(distribution: str, known: Registry) -> None:
    """Refuse a name that others have: a drafter's, or that of a module which the new one would hide."""
    name, module = distribution.removeprefix(_PREFIX), distribution.replace("-", "_")
    for record in known.drafters():
        if record.name == name and record.distribution != distribution:
            raise InputError(
                f"plugin name '{distribution}': {record.origin} has a drafter '{name}'; choose another name"
            )
    try:
        importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        if importlib.util.find_spec(module) is not None:
            raise InputError(
                f"plugin name '{distribution}': there is a module {module} already; choose another name"
            ) from None
