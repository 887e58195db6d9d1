"""What can go wrong, each with the exit status that the command line gives it.

Every message is one line that says what is wrong, where, and what to do.
"""

import difflib
from collections.abc import Iterable
from typing import ClassVar


class OutriderError(Exception):
    """A run that failed."""

    exit_status: ClassVar[int] = 1


class InputError(OutriderError, ValueError):
    """Something that the caller gave is wrong: an option, a file, a prompt."""

    exit_status = 2


class ConfigError(InputError):
    """A config file that can't be read, or holds an unknown key or a wrong value."""


class UnknownDrafterError(InputError):
    """A drafter name that no working plugin provides."""


class ModelError(InputError):
    """A model that can't be found, loaded, or verified exactly."""


class PlainDiffersError(ModelError):
    """Plain steps are not those of `generate`, so that not even a text without drafts can be promised."""


class FetchError(InputError):
    """The embedded model could not be fetched or is not what it should be."""


class PluginError(OutriderError):
    """A plugin that could not be loaded; raised only where the caller asked to be strict."""


class GenerationError(OutriderError):
    """A logits processor or a stopping criterion failed while the text was made."""


class DrafterError(OutriderError):
    """A drafter raised, or broke its contract; the message names the drafter."""


def suggestion(word: str, known: Iterable[str]) -> str:
    """Say which of the `known` words comes nearest to `word`: `" Did you mean 'x'?"`, or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean '{near[0]}'?" if near else ""


def first_line(error: BaseException) -> str:
    """Name an error by its type and the first line of its text."""
    try:
        text = str(error).strip()
    except Exception:  # errors of plugins may fail at that too
        text = ""
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
