"""Which drafter a caller means: a word, a mapping in vLLM's shape, a class or an object, with its options."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError

from outrider.draft.contract import Drafter, DrafterOptions, TargetInfo
from outrider.draft.led import Resting
from outrider.errors import DrafterError, InputError, OutriderError, first_line
from outrider.plugins.registry import Registry, check_class, registry
from outrider.ranks import Ranks
from outrider.trace import traced
from outrider.validation import explain

# vLLM's words for what is named otherwise here.
_METHODS: Final = {"draft_model": "draft-model"}
_KEYS: Final = {
    "num_speculative_tokens": ("draft_tokens", "depth"),
    "prompt_lookup_min": ("min_n",),
    "prompt_lookup_max": ("max_n",),
    "model": ("model", "heads"),
}
# A quoted text where a value may begin, a bracket, or a comma.
_MARK: Final = re.compile(r"""(?<![^\s=,\[{])(?:"(?:\\.|[^"\\])*"|'[^']*')|[\[\]{},]""")
_CLOSES: Final = {"[": "]", "{": "}"}

DrafterWord = str | Mapping[str, Any] | type[Drafter[Any]] | Drafter[Any]


@dataclass(frozen=True, slots=True)
class DrafterChoice:
    """A drafter's name and the options that were given for it."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)


def read_word(word: str, known: Registry | None = None) -> DrafterChoice:
    """Read `NAME` or `NAME[key=value,...]`.

    Items without a key belong to the option that the drafter's `Options.positional` names; they may be words with brackets of
    their own: `cascade[ngram,draft-model[model=PATH]]`.

    Raises:
        InputError: the brackets or an option are not well formed.
        UnknownDrafterError: there are items without a key, and nobody provides the drafter.
    """
    word = word.strip()
    name, bracket, listed = word.partition("[")
    name = name.strip()
    try:
        if not name or "]" in name:
            raise ValueError("a ']' closes nothing" if name else "its name is missing")
        if bracket and not listed.endswith("]"):
            raise ValueError("it must end with ']'")
        items = _split(listed[:-1])
    except ValueError as error:
        raise InputError(f"drafter '{word}': {error}; write NAME or NAME[key=value,...]") from error
    bare = [item for item in items if _is_bare(item)]
    options = read_options([item for item in items if item not in bare])
    if bare:
        positional = (known or registry()).find(name).drafter.Options.positional
        if positional is None:
            raise InputError(f"option '{bare[0]}': write key=value")
        if positional in options:
            raise InputError(f"option '{positional}' of drafter '{name}' is given twice: by its name and without")
        options[positional] = [_value(item) for item in bare]
    return DrafterChoice(name, options)


def _split(text: str) -> list[str]:
    """Split at the commas that lie in no brackets and no quotes.

    Raises:
        ValueError: the brackets don't pair.
    """
    items, first, closing = [], 0, list[str]()
    for mark in _MARK.finditer(text):
        if mark[0] in _CLOSES:
            closing.append(_CLOSES[mark[0]])
        elif mark[0] in _CLOSES.values():
            if not closing or closing.pop() != mark[0]:
                raise ValueError(f"a '{mark[0]}' closes nothing")
        elif mark[0] == "," and not closing:
            items.append(text[first : mark.start()])
            first = mark.end()
    if closing:
        raise ValueError(f"a '{closing[-1]}' is missing")
    return [item.strip() for item in (*items, text[first:]) if item.strip()]


def _is_bare(item: str) -> bool:
    """Whether an item has no key: a `=` inside brackets or quotes is none of its own."""
    key, equals, _ = item.partition("=")
    return not equals or any(mark in key for mark in "[{\"'")


def read_options(pairs: list[str]) -> dict[str, Any]:
    """Read `key=value` words; values are TOML where they can be, else text, or a list of such in brackets.

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
        pass
    try:
        return [_value(item) for item in _split(text[1:-1])] if text[:1] == "[" and text[-1:] == "]" else text
    except ValueError:
        return text


def read_mapping(mapping: Mapping[str, Any]) -> DrafterChoice:
    """Read `{"name": ..., "options": {...}}`, or vLLM's `{"method": ..., key: value, ...}`.

    Raises:
        InputError: it is neither.
    """
    if "method" in mapping:
        method = str(mapping["method"])
        name = _METHODS.get(method, method)
        return DrafterChoice(name, {_option_of(key, name): value for key, value in mapping.items() if key != "method"})
    extra = [key for key in mapping if key not in ("name", "options")]
    if extra or not isinstance(mapping.get("name"), str) or not isinstance(mapping.get("options", {}), Mapping):
        wrong = f"unknown key '{extra[0]}'; " if extra else ""
        raise InputError(
            f"drafter: {wrong}write name = '...' and options = {{...}} (or method = '...' and vLLM's keys)"
        )
    return DrafterChoice(mapping["name"], dict(mapping.get("options", {})))


def _option_of(key: str, name: str) -> str:
    """Return what a drafter calls what vLLM calls `key`: the first of several names that it has an option of."""
    names = _KEYS.get(key, (key,))
    try:
        known = registry().find(name).options if len(names) > 1 else ()
    except OutriderError:  # that there is no such drafter is told where it is asked for
        known = ()
    return next((one for one in names if one in known), names[0])


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
        choice = read_word(word, known) if isinstance(word, str) else read_mapping(word)
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
        with traced(f"drafter '{drafter.name}'", "is made"):
            return drafter(target, valid)
    except OutriderError:
        raise
    except Exception as error:
        raise DrafterError(f"drafter '{drafter.name}' can't be made: {first_line(error)}") from error


def make_shared(word: DrafterWord, options: Mapping[str, Any] | None, target: TargetInfo, ranks: Ranks) -> Drafter[Any]:
    """Return the drafter that a caller means, made in the first of several processes alone; see `make_drafter`."""
    made: list[Drafter[Any]] = []

    def make() -> str:
        made.append(make_drafter(word, options, target))
        return made[0].name

    name = ranks.decided(make)
    return made[0] if made else Resting(target, name)
