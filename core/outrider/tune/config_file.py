"""The config file that `generate` and `compare` take, made of a choice."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from outrider.draft.plain import Plain
from outrider.errors import InputError
from outrider.tune.result import Tuned

_OWN = ("temperature", "top_k", "top_p", "chat")


def config_of(tuned: Tuned, given: Mapping[str, Any]) -> str:
    """Return the TOML text for the first batch size, what was found as a comment above it.

    Args:
        tuned: with its choices.
        given: what the user said of the target and of generation, by the names of the config file.

    Raises:
        InputError: an option is no value of TOML.
    """
    choice = tuned.choices[0]
    lines = [f"# outrider tune: {one.reason} (batch size {one.batch_size})" for one in tuned.choices]
    setting = choice.setting
    lines += ["", "[target]", *_pairs({name: given[name] for name in ("model", "dtype", "device") if name in given})]
    lines += ["", "[drafter]", f"name = {toml(setting.drafter if setting else Plain.name)}"]
    if setting is not None and setting.options:
        lines += ["", "[drafter.options]", *_pairs(setting.options)]
    generation = {name: given[name] for name in _OWN if name in given}
    if setting is not None:
        generation |= {"rule": setting.rule, "adaptive": setting.adaptive}
    if generation:
        lines += ["", "[generation]", *_pairs(generation)]
    return "\n".join(lines) + "\n"


def toml(value: Any) -> str:
    """Write a value.

    Raises:
        InputError: TOML has none like it.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for those outside the basic plane and the delete character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(name)} = {toml(one)}" for name, one in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(toml, value)) + "]"
    raise InputError(f"{value!r} can't be written as TOML; give the drafter by names and values")


def _pairs(values: Mapping[str, Any]) -> list[str]:
    return [f"{_key(name)} = {toml(value)}" for name, value in values.items()]


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else toml(name)
