"""The registry: every drafter by name, with where it comes from, and why one that is asked for is not there."""

import hashlib
import importlib.util
import inspect
import re
import sys
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from outrider.draft.capabilities import Capabilities
from outrider.draft.contract import API, Drafter, DrafterOptions
from outrider.draft.plain import Plain
from outrider.errors import InputError, PluginError, UnknownDrafterError, first_line, suggestion
from outrider.plugins.loader import OWN_DISTRIBUTION, LoadedPlugin, PluginRecord, installed, load_plugins
from outrider.plugins.selection import Selection
from outrider.target.fingerprint import FILE as FINGERPRINT
from outrider.trace import traced, tracing

DrafterClass = type[Drafter[Any]]
_NAME: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
# What is warned of, and what is said to those who ask for a drafter.
_TOLD: Final = {"failed": "failed to load", "loaded": "is loaded, but", "missing": "is not installed"}
_ABSENT: Final = {"failed": "failed to load", "disabled": "is turned off"}


@dataclass(frozen=True, slots=True)
class DrafterRecord:
    """A drafter that can be picked by name.

    Args:
        name: how it is picked.
        drafter: its class.
        plugin: name of the plugin that registered it, empty for outrider's own `none`.
        distribution: the package that brought it.
        version: of that package.
    """

    name: str
    drafter: DrafterClass
    plugin: str
    distribution: str
    version: str

    @property
    def origin(self) -> str:
        """The distribution and its version."""
        return f"{self.distribution} {self.version}".strip()

    @property
    def qualified(self) -> str:
        """The name that no other package's drafter has."""
        return f"{self.distribution}/{self.name}"

    @property
    def location(self) -> str:
        """File and line of the class."""
        try:
            return f"{inspect.getsourcefile(self.drafter)}:{inspect.getsourcelines(self.drafter)[1]}"
        except (OSError, TypeError):
            return f"{self.drafter.__module__}.{self.drafter.__qualname__}"

    @property
    def summary(self) -> str:
        """First line of the class's docstring."""
        return (inspect.getdoc(self.drafter) or "").partition("\n")[0]

    @property
    def options(self) -> tuple[str, ...]:
        """Names of its options."""
        return tuple(self.drafter.Options.model_fields)


@dataclass(frozen=True, slots=True)
class HeadsOffer:
    """A folder of something trained that a plugin brings.

    Args:
        drafter: name of the drafter that uses it.
        folder: where it lies.
        plugin: name of the plugin.
    """

    drafter: str
    folder: Path
    plugin: str


class Registry:
    """The drafters of a set of plugins.

    Args:
        plugins: from the loader, the built-ins first, so that nobody else can take their names.
        strict: raise at the first plugin that does not work.

    Raises:
        PluginError: only if `strict`.
    """

    def __init__(self, plugins: Iterable[LoadedPlugin], *, strict: bool = False) -> None:
        self.plugins: list[PluginRecord] = []
        self._drafters = {Plain.name: DrafterRecord(Plain.name, Plain, "", OWN_DISTRIBUTION, "")}
        self._qualified: dict[str, DrafterRecord] = {}
        self.offers: list[HeadsOffer] = []
        for plugin in plugins:
            record = self._add(plugin)
            self.plugins.append(record)
            if record.status in ("failed", "missing") and strict:
                whose = f" of {record.origin}" if record.origin else ""
                raise PluginError(f"plugin '{record.name}'{whose} {record.status}: {record.detail}")

    def _add(self, plugin: LoadedPlugin) -> PluginRecord:
        """Let a plugin register its drafters; all of them count, or none."""
        record = plugin.record
        found: list[DrafterRecord] = []
        offered: list[HeadsOffer] = []

        def offer(drafter: str, folder: Path) -> None:
            if not (Path(folder) / FINGERPRINT).is_file():
                raise TypeError(f"offers heads for '{drafter}' in {folder}, which has no {FINGERPRINT}")
            offered.append(HeadsOffer(drafter, Path(folder), record.name))

        def register(drafter: DrafterClass) -> None:
            check_class(drafter)
            if any(drafter.name == other.name for other in found):
                raise TypeError(f"two drafters are named '{drafter.name}'")
            found.append(DrafterRecord(drafter.name, drafter, record.name, record.distribution, record.version))

        who = f"plugin '{record.name}' ({record.origin})"
        try:
            for implementation in plugin.implementations:
                with traced(who, "register_drafters"):
                    implementation.function(**dict.fromkeys(implementation.argnames, register))
            for implementation in plugin.offers:
                with traced(who, "offer_heads"):
                    implementation.function(**dict.fromkeys(implementation.argnames, offer))
            if plugin.implementations and not found:
                raise TypeError("its register_drafters registered nothing")
            taken = [self._clash(new) for new in found if new.name in self._drafters]
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a plugin may raise anything
            return replace(record, status="failed", detail=first_line(error))
        self.offers += offered
        self._qualified |= {new.qualified: new for new in found}
        self._drafters = {new.name: new for new in found} | self._drafters
        names = tuple(new.name for new in found)
        return replace(record, drafters=names, detail="; ".join(taken) or record.detail)

    def _clash(self, new: DrafterRecord) -> str:
        owner = self._drafters[new.name]
        return f"name '{new.name}' is taken by {owner.distribution}; pick it as {new.qualified}"

    def shadowed(self) -> list[DrafterRecord]:
        """Return the drafters whose name another has, which are picked by `dist/name`."""
        return [record for _, record in sorted(self._qualified.items()) if self._drafters[record.name] is not record]

    def drafters(self) -> list[DrafterRecord]:
        """Return all drafters, by name."""
        return sorted(self._drafters.values(), key=lambda record: record.name)

    def find(self, name: str) -> DrafterRecord:
        """Return the drafter that a name, a `dist/name` or a `path/to/file.py::Class` stands for.

        Raises:
            UnknownDrafterError: with the nearest name and the list, or why the plugin that has it does not work.
        """
        if "::" in name:
            return _from_file(name)
        record = self._drafters.get(name) or self._qualified.get(name)
        if record is not None:
            return record
        if name.endswith(".py"):
            raise UnknownDrafterError(f"drafter '{name}': say which class of the file, as {name}::Class")
        for plugin in self.plugins:
            if plugin.status in _ABSENT and name in (plugin.name, f"{plugin.distribution}/{plugin.name}"):
                raise UnknownDrafterError(
                    f"drafter '{name}' is provided by {plugin.origin}, which {_ABSENT[plugin.status]}: {plugin.detail}"
                )
        known = [*self._drafters, *self._qualified]
        text = f"unknown drafter '{name}'.{suggestion(name, known)} Drafters: {', '.join(sorted(self._drafters))}."
        for status in _ABSENT:
            if names := ", ".join(plugin.name for plugin in self.plugins if plugin.status == status):
                text += f" {status.capitalize()} plugins: {names} (see `outrider plugins`)."
        raise UnknownDrafterError(text)


@lru_cache(maxsize=1)
def _installed() -> Registry:
    tracing()  # a wrong value of the variable is nobody's failure to load
    return Registry(load_plugins(installed(), Selection.read()))


@lru_cache(maxsize=1)
def _warn() -> None:
    for plugin in _installed().plugins:
        if plugin.detail and plugin.status in _TOLD:
            whose = f" ({plugin.origin})" if plugin.origin else ""
            text = f"outrider plugin '{plugin.name}'{whose} {_TOLD[plugin.status]}: {plugin.detail}"
            warnings.warn(text, stacklevel=4)


def registry() -> Registry:
    """Return the drafters of all installed plugins; one that does not work is warned of once."""
    found = _installed()
    _warn()
    return found


def reload() -> None:
    """Forget which plugins are installed, so that they are looked up again."""
    _installed.cache_clear()
    _warn.cache_clear()


def check_class(drafter: Any) -> None:
    """Refuse what is no drafter for this version of the contract.

    Raises:
        InputError: with the reason.
    """
    fault = _fault(drafter)
    if fault:
        raise InputError(fault)


def _fault(drafter: Any) -> str:
    if not (isinstance(drafter, type) and issubclass(drafter, Drafter)):
        return f"{drafter!r} is no subclass of outrider.Drafter"
    label = drafter.__name__
    name, api = getattr(drafter, "name", None), getattr(drafter, "requires_api", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"{label}.name = {name!r}: a drafter's name is lower-case words with hyphens"
    if not (isinstance(api, tuple) and len(api) == 2 and all(isinstance(part, int) and part >= 0 for part in api)):
        return f"{label}.requires_api = {api!r}: state the API that it was written for, such as {API}"
    if api[0] != API[0] or api[1] > API[1]:
        have, want = ".".join(map(str, API)), ".".join(map(str, api))
        return f"{label} was written for drafter API {want}, and this outrider has {have}"
    if not (isinstance(drafter.Options, type) and issubclass(drafter.Options, DrafterOptions)):
        return f"{label}.Options is no subclass of outrider.DrafterOptions"
    if not isinstance(drafter.weighs_nodes, bool):
        return f"{label}.weighs_nodes = {drafter.weighs_nodes!r}: must be True or False"
    if not isinstance(drafter.capabilities, Capabilities | None):
        return f"{label}.capabilities = {drafter.capabilities!r}: must be outrider.Capabilities, or None"
    if inspect.isabstract(drafter):
        return f"{label} does not implement {', '.join(sorted(drafter.__abstractmethods__))}"
    return ""


def _executed(path: Path) -> Any:
    """Run a file as a module of its own; it may import what lies beside it, unless something installed has that name."""
    path = path.resolve()
    name = f"outrider_file_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec: Any = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    sys.modules[name] = module  # dataclasses and pydantic look up there what annotations mean
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _from_file(word: str) -> DrafterRecord:
    """Load a drafter that is no package: `path/to/file.py::Class`."""
    where, _, label = word.partition("::")
    path = Path(where).expanduser()
    if not path.is_file() or path.suffix != ".py":
        raise InputError(f"drafter '{word}': {path} is {'no Python file' if path.exists() else 'not there'}")
    try:
        drafter = getattr(_executed(path), label, None)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a file may raise anything, SystemExit too
        raise InputError(f"drafter '{word}' can't be loaded: {first_line(error)}") from error
    if drafter is None:
        raise InputError(f"drafter '{word}': {path} has no class {label}")
    try:
        check_class(drafter)
    except InputError as error:
        raise InputError(f"drafter '{word}': {error}") from error
    return DrafterRecord(drafter.name, drafter, "", str(path), "")
