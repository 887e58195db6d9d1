"""What is checked: a drafter by any word, a class, or a function that makes one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from outrider.check.check import Make
from outrider.check.settings import settings_kept
from outrider.check.targets import tiny_target
from outrider.check.traits import Traits, traits_of
from outrider.draft.contract import Drafter, TargetInfo
from outrider.draft.training import Trains, TrainStart
from outrider.errors import InputError, OutriderError, first_line
from outrider.plugins.registry import registry
from outrider.plugins.words import DrafterWord, make_drafter, read_mapping, read_word

Checkable = DrafterWord | Callable[[TargetInfo], Drafter[Any]]
"""A drafter's name in any form, its class, or a function that makes one for a target."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A drafter that is checked.

    Args:
        name: of the drafter.
        make: makes a fresh one.
        traits: which checks it is asked.
        expected: the checks that it fails by design, each with the reason.
    """

    name: str
    make: Make
    traits: Traits
    expected: Mapping[str, str] = field(default_factory=dict)


def subject_of(drafter: Checkable, options: Mapping[str, Any] | None = None) -> Subject:
    """Return what is checked; found once for a word, a class or a function.

    Raises:
        InputError: it is no drafter, or can't be made for a tiny random target.
    """
    if options or not (isinstance(drafter, str | type) or _is_function(drafter)):
        return _find(drafter, options)
    return _known(drafter)


@lru_cache(maxsize=64)
def _known(drafter: Any) -> Subject:
    return _find(drafter, None)


def _is_function(drafter: Any) -> bool:
    return callable(drafter) and not isinstance(drafter, type | Drafter)


def _find(drafter: Any, options: Mapping[str, Any] | None) -> Subject:
    if isinstance(drafter, Drafter):
        raise InputError(f"drafter '{drafter.name}' is an object; checks make many: pass its class or a function")
    if _is_function(drafter) and options:
        raise InputError("options are for a drafter by name or class; a function gives its own")
    make = drafter if _is_function(drafter) else _maker(drafter, options)
    info = tiny_target().info
    try:
        with settings_kept():
            made = make(info)
            traits = traits_of(make) if isinstance(made, Drafter) else None
    except Exception as error:
        told = str(error).rstrip(".") if isinstance(error, OutriderError) else first_line(error)
        raise InputError(
            f"{told}. Checks run on tiny random targets ({info.vocab_size} tokens, width {info.hidden_size}, "
            f"{info.num_layers} layers); a drafter that needs something made for its target gives the options for it "
            f"by a classmethod for_check(target), or from Python by a function in place of its name"
        ) from error
    if traits is None:
        raise InputError(f"{drafter!r} makes {type(made).__name__}, which is no outrider.Drafter")
    return Subject(made.name, make, traits, dict(made.expected_failures))


def _maker(drafter: str | Mapping[str, Any] | type[Drafter[Any]], options: Mapping[str, Any] | None) -> Make:
    """Return what makes a drafter of a word or a class, with its own options for a check where none are given."""
    if isinstance(drafter, type):
        found, given = drafter, dict(options or {})
    else:
        choice = read_word(drafter) if isinstance(drafter, str) else read_mapping(drafter)
        found, given = registry().find(choice.name).drafter, choice.options | dict(options or {})

    def make(target: TargetInfo) -> Drafter[Any]:
        options = {**found.for_check(target), **given}
        if options or not isinstance(found, Trains):
            return make_drafter(found, options, target)
        return _untrained(found, target)

    return make


def _untrained(drafter: Any, target: TargetInfo) -> Drafter[Any]:
    """Return a drafter with the weights that its training would begin with."""
    with TemporaryDirectory() as folder, torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        start = TrainStart(target, "a tiny random model", torch.ones(target.vocab_size, dtype=torch.long))
        drafter.trainee(start, drafter.TrainOptions()).save(Path(folder))
        return make_drafter(drafter, {drafter.trained_as: folder}, target)
