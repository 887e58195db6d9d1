"""Which drafter a caller means: a word, a mapping in vLLM's shape, a class or an object, with its options."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError

from outrider.draft.contract import Drafter, DrafterOptions, TargetInfo
from outrider.errors import DrafterError, InputError, OutriderError, first_line
from outrider.plugins.registry import Registry, check_class, registry
from outrider.validation import explain

# vLLM's words for what is named otherwise here.
_METHODS: Final = {"draft_model": "draft-model"}
_KEYS: Final = {"num_speculative_tokens": "draft_tokens", "prompt_lookup_min": "min_n", "prompt_lookup_max": "max_n"}
_WORD: Final = re.compile(r"(?P<name>[^\[\]]+)(\[(?P<options>.*)\])?", re.DOTALL)

DrafterWord = str | Mapping[str, Any] | type[Drafter[Any]] | Drafter[Any]


@dataclass(frozen=True, slots=True)
class DrafterChoice:
    """A drafter's name and the options that were given for it."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)


def read_word(word: str) -> DrafterChoice:
    """Read `NAME` or `NAME[key=value,...]`.

    Raises:
        InputError: the brackets or an option are not well formed.
    """
    match = _WORD.fullmatch(word.strip())
    if not match:
        raise InputError(f"drafter '{word}': write NAME or NAME[key=value,...]")
    listed = match["options"]
    pairs = [pair for pair in re.split(r",(?![^\[]*\])", listed) if pair.strip()] if listed else []
    return DrafterChoice(match["name"].strip(), read_options(pairs))


def read_options(pairs: list[str]) -> dict[str, Any]:
    """Read `key=value` words; values are TOML where they can be, else text.

    Raises:
        InputError: a word without `=`, or a key given twice.
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not key:
            raise InputError(f"option '{pair}': write key=value")
        if key in options:
            raise InputError(f"option '{key}' is given twice")
        options[key] = _value(value)
    return options


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def read_mapping(mapping: Mapping[str, Any]) -> DrafterChoice:
    """Read `{"name": ..., "options": {...}}`, or vLLM's `{"method": ..., key: value, ...}`.

    Raises:
        InputError: it is neither.
    """
    if "method" in mapping:
        method = str(mapping["method"])
        options = {_KEYS.get(key, key): value for key, value in mapping.items() if key != "method"}
        return DrafterChoice(_METHODS.get(method, method), options)
    extra = [key for key in mapping if key not in ("name", "options")]
    if extra or not isinstance(mapping.get("name"), str) or not isinstance(mapping.get("options", {}), Mapping):
        wrong = f"unknown key '{extra[0]}'; " if extra else ""
        raise InputError(
            f"drafter: {wrong}write name = '...' and options = {{...}} (or method = '...' and vLLM's keys)"
        )
    return DrafterChoice(mapping["name"], dict(mapping.get("options", {})))


def choose(
    word: DrafterWord, options: Mapping[str, Any] | None = None, known: Registry | None = None
) -> tuple[type[Drafter[Any]], DrafterOptions]:
    """Return the class that a word, a mapping or a class means, and its validated options.

    Args:
        word: a name in any form, a mapping, or a class.
        options: options beside those in `word`.
        known: where names are looked up; by default among all installed plugins.

    Raises:
        UnknownDrafterError: nobody provides it.
        InputError: an unknown option or a bad value.
    """
    given = _as_options(options)
    if not isinstance(word, str | Mapping) and not (isinstance(word, type) and issubclass(word, Drafter)):
        raise InputError(f"a drafter is a name, a mapping, a Drafter class or object, not {word!r}")
    if isinstance(word, type):
        check_class(word)
        drafter = word
    else:
        choice = read_word(word) if isinstance(word, str) else read_mapping(word)
        twice = set(given).intersection(choice.options)
        if twice:
            raise InputError(f"option '{min(twice)}' of drafter '{choice.name}' is given twice")
        given = choice.options | given
        drafter = (known or registry()).find(choice.name).drafter
    try:
        return drafter, drafter.Options.model_validate(given)
    except ValidationError as error:
        raise InputError(f"drafter '{drafter.name}': {explain(error, drafter.Options, 'option')}") from error


def _as_options(options: Any) -> dict[str, Any]:
    if options is not None and not isinstance(options, Mapping):
        raise InputError(f"drafter_options = {options!r}: must be a mapping of option names to values")
    return dict(options or {})


def make_drafter(
    word: DrafterWord, options: Mapping[str, Any] | None, target: TargetInfo, known: Registry | None = None
) -> Drafter[Any]:
    """Return the drafter that a caller means, ready to serve the target; an object is used as it is.

    Raises:
        UnknownDrafterError: nobody provides it.
        InputError: an unknown option, a bad value, or an object that was made for another target.
        DrafterError: the drafter can't be made.
    """
    if isinstance(word, Drafter):
        if options:
            raise InputError(f"drafter '{word.name}' is an object already; its options can't be given again")
        if word.target != target:
            raise InputError(f"drafter '{word.name}' was made for another target")
        return word
    drafter, valid = choose(word, options, known)
    try:
        return drafter(target, valid)
    except OutriderError:
        raise
    except Exception as error:
        raise DrafterError(f"drafter '{drafter.name}' can't be made: {first_line(error)}") from error
