"""The best few settings and plain decoding in one interleaved run: predictions are checked, and the choice is made by this."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from outrider.compare.conversations import Asking, conversations
from outrider.compare.lineup import Entrant, lineup
from outrider.compare.measure import Measurement, Progress
from outrider.compare.pooled import with_figures
from outrider.compare.result import Comparison, ForwardCost, Settings
from outrider.compare.strategies import Strategy
from outrider.compare.verdicts import explained
from outrider.prompt_file import NamedPrompt
from outrider.target.model import Target
from outrider.tune.settings import Setting


@dataclass(frozen=True, slots=True)
class _Adaptive(Entrant):
    """A row that drafts as far as pays, beside others that draft as far as their options say."""

    def strategy(self, target: Target, options: Mapping[str, Any], adaptive: bool) -> Strategy:  # noqa: ARG002
        """Make what runs."""
        return Entrant.strategy(self, target, options, True)


def entrants(settings: Sequence[Setting]) -> tuple[list[Entrant], dict[Setting | int, str]]:
    """Return the rows for some settings, and for every batch size plain decoding before them.

    Returns:
        The rows, and their names by setting; those of plain decoding by batch size.
    """
    sizes = list(dict.fromkeys(one.batch_size for one in settings))
    found: list[Entrant] = []
    names: dict[Any, str] = {}
    for size in sizes:
        end = f"@{size}" if len(sizes) > 1 or size > 1 else ""
        for one in [None, *[one for one in settings if one.batch_size == size]]:
            if one is None:
                made, name = lineup([], batch_sizes=(size,))[0], f"none{end}"
                names[size] = name
            else:
                made = lineup([one.word], rules=(one.rule,), batch_sizes=(size,), baseline=False)[0]
                name = names[_key(one)] = f"{one.label}{end}"
            row = replace(made.row, name=name, baseline=names[size])
            kind = _Adaptive if one is not None and one.adaptive else Entrant
            found.append(kind(row, made.word, made.own))
    return found, names


def name_of(names: Mapping[Any, str], setting: Setting) -> str:
    """Return the name of a setting's row."""
    return names[_key(setting)]


def unique(settings: Sequence[Setting]) -> list[Setting]:
    """Leave out settings that are there already, such as where a drafter is named twice."""
    found: dict[tuple[str, int], Setting] = {}
    for one in settings:
        found.setdefault(_key(one), one)
    return list(found.values())


def _key(setting: Setting) -> tuple[str, int]:
    return setting.label, setting.batch_size


def compare(
    target: Target,
    settings: Sequence[Setting],
    prompts: Sequence[NamedPrompt],
    asked: Settings,
    costs: tuple[ForwardCost, ...],
    hear: Callable[[Progress], None] = lambda _: None,
) -> tuple[Comparison, Mapping[Any, str], BaseException | None]:
    """Measure settings beside plain decoding, interleaved.

    Args:
        target: the model.
        settings: which.
        prompts: of single turns.
        asked: how; batch sizes are taken from the settings.
        costs: the machine's cost curve.
        hear: told of every run.

    Returns:
        The comparison with its figures, its rows' names by setting and batch size, and what ended it early.
    """
    rows, names = entrants(settings)
    asked = replace(asked, batch_sizes=tuple(dict.fromkeys(one.batch_size for one in settings)), adaptive=False)
    measurement = Measurement(target, rows, prompts, asked, hear=hear, costs=costs)
    found = measurement.run()
    asking = Asking(target, chat=asked.chat, seed=asked.seed, texts=False)
    return with_figures(explained(found, target, asking, conversations(prompts))), names, measurement.stopped
