"""The config file: `[target]`, `[drafter]` with `[drafter.options]` or several `[[drafters]]`, and `[generation]`."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from outrider.errors import ConfigError, InputError, UnknownDrafterError
from outrider.plugins.words import DrafterChoice, choose, read_mapping
from outrider.validation import explain, place


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class TargetSection(_Section):
    """`[target]`: the model and how it is loaded."""

    model: str | None = None
    dtype: str | None = None
    device: str | None = None


class GenerationSection(_Section):
    """`[generation]`: the options of generation."""

    max_new_tokens: int | None = None
    temperature: float | int | None = None
    top_k: int | None = None
    top_p: float | int | None = None
    seed: int | None = None
    rule: str | None = None
    adaptive: bool | None = None
    chat: bool | None = None


class Config(_Section):
    """A whole config file; everything may be left out."""

    target: TargetSection = TargetSection()
    drafter: dict[str, Any] | None = None
    drafters: list[dict[str, Any]] = []
    generation: GenerationSection = GenerationSection()

    @field_validator("drafters", mode="before")
    @classmethod
    def _tables(cls, value: Any) -> Any:
        if isinstance(value, dict):
            raise InputError("write [[drafters]], a table for every drafter")
        return value

    def options(self, flags: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of generation that are set, with flags over those of the file; None is not set."""
        merged = self.generation.model_dump() | {name: value for name, value in flags.items() if value is not None}
        return {name: value for name, value in merged.items() if value is not None}

    @property
    def drafter_choice(self) -> DrafterChoice | None:
        """The drafter that `[drafter]` names."""
        return None if self.drafter is None else read_mapping(self.drafter)

    @property
    def choices(self) -> list[DrafterChoice]:
        """The drafters that `[drafter]` and `[[drafters]]` name, in their order."""
        return [read_mapping(one) for one in ([self.drafter] if self.drafter is not None else []) + self.drafters]


def load_config(path: str | Path) -> Config:
    """Read a config file.

    Raises:
        ConfigError: it can't be read, is no TOML, or holds an unknown key or a wrong value; with its line.
    """
    path = Path(path).expanduser()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"config file {path} can't be read: {reason}") from error
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        lines = text.splitlines() or [""]
        found = re.search(r"at line (\d+)", str(error))
        number = int(found[1]) if found else len(lines)
        reason = str(error).partition(" (at ")[0]
        raise ConfigError(f"{path}:{number}: {reason}, in `{lines[number - 1].strip()}`") from error
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        key = tuple(map(str, error.errors()[0]["loc"]))
        raise ConfigError(f"{path}:{_line_of(text, key)}: {explain(error, Config)}") from error
    named = [(("drafter",), config.drafter)] if config.drafter is not None else []
    named += [(("drafters", str(at)), one) for at, one in enumerate(config.drafters)]  # type: ignore[misc]
    for key, one in named:
        try:
            _check_drafter(read_mapping(one))
        except InputError as error:
            inner = ("name",) if isinstance(error, UnknownDrafterError) else ("options", *place(error))
            raise ConfigError(f"{path}:{_line_of(text, (*key, *inner))}: {error}") from error
    return config


def _check_drafter(choice: DrafterChoice) -> None:
    """Refuse a drafter that flags can't mend: they may still give options that are missing or at odds with each other."""
    try:
        choose(choice.name, choice.options)
    except InputError as error:
        fault = error.__cause__
        if not isinstance(fault, ValidationError) or (place(error) and fault.errors()[0]["type"] != "missing"):
            raise


def _line_of(text: str, key: tuple[str, ...]) -> int:
    """Return the line where a key is set, or its table begins; tomllib does not say."""
    table: tuple[str, ...] = ()
    counts: dict[tuple[str, ...], int] = {}
    best = 1
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*(\[+)([^\[\]]+)\]+\s*(#.*)?$", line)
        if header:
            here = table = _table(header[2].split("."), counts, new=len(header[1]) > 1)
        else:
            name = line.partition("=")[0].strip().strip("\"'")
            here = (*table, *name.split(".")) if "=" in line else ()
        if here and here == key[: len(here)]:
            best = number
    return best


def _table(parts: list[str], counts: dict[tuple[str, ...], int], *, new: bool) -> tuple[str, ...]:
    """Return the path of a table; where there are several of one name, with the index of the `new` one or the last."""
    path: tuple[str, ...] = ()
    for at, part in enumerate(parts, 1):
        path = (*path, part.strip().strip("\"'"))
        if new and at == len(parts):
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, str(counts[path]))
    return path
