"""Who takes part: the rows of a comparison, each with the strategy behind it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from outrider.compare.result import Row
from outrider.compare.strategies import Drafting, Strategy, Transformers
from outrider.draft.plain import Plain
from outrider.errors import InputError
from outrider.plugins.registry import registry
from outrider.plugins.words import DrafterChoice, DrafterWord, choose, make_drafter, read_mapping, read_word
from outrider.target.model import Target

LOOKUP_TOKENS: Final = 10


@dataclass(frozen=True, slots=True)
class Entrant:
    """A row, and how its strategy is made for a target and options of generation.

    Args:
        row: what the table says.
        word: of the drafter; None for those of transformers.
        own: further arguments of transformers' `generate`.
    """

    row: Row
    word: DrafterWord | None
    own: Mapping[str, Any]

    def strategy(self, target: Target, options: Mapping[str, Any], adaptive: bool) -> Strategy:
        """Make what runs."""
        if self.word is not None:
            return Drafting(target, self.word, dict(options) | {"rule": self.row.rule, "adaptive": adaptive})
        return Transformers(target, options, self.own)


def lineup(
    words: Sequence[DrafterWord],
    *,
    rules: Sequence[str] = ("match",),
    batch_sizes: Sequence[int] = (1,),
    baseline: bool = True,
    with_hf: bool = False,
    assistant: Any = None,
    static: bool = False,
) -> list[Entrant]:
    """Return who takes part, for every batch size plain decoding first.

    Args:
        words: of the drafters.
        rules: every drafter runs under each of them.
        batch_sizes: likewise.
        baseline: whether plain decoding takes part.
        with_hf: add transformers' own `generate`, prompt lookup, and assisted generation where there is a smaller model.
        assistant: that model, or its name; by default that of the first drafter `draft-model`.
        static: add `generate` with a static cache, which transformers compiles on a GPU.

    Raises:
        UnknownDrafterError: nobody provides a drafter.
        InputError: a drafter's word or options are wrong.
    """
    drafting = [_entrant(word, rule, len(rules) > 1) for word in words for rule in rules]
    found: list[Entrant] = []
    for size in batch_sizes:
        plain = [_entrant(Plain.name, "match", False, kind="plain")] if baseline else []
        others = _transformers(drafting, size, assistant, static=static) if with_hf else []
        found += [_at(one, size, named=tuple(batch_sizes) != (1,)) for one in (*plain, *drafting, *others)]
    return _told_apart(found, baseline=baseline)


def every_drafter(target: Target) -> tuple[list[str], dict[str, str]]:
    """Return the names of all installed drafters that work for a target without options, and why others don't."""
    found: list[str] = []
    without: dict[str, str] = {}
    for record in registry().drafters():
        if record.name == Plain.name:
            continue
        try:
            make_drafter(record.name, None, target.info)
        except InputError as error:
            without[record.name] = str(error)
            continue
        except Exception:  # one that fails has a row that says so
            pass
        found.append(record.name)
    return found, without


def packages(entrants: Sequence[Entrant]) -> list[str]:
    """Return the distributions that the drafters come from."""
    known = registry()
    drafters = {one.row.drafter for one in entrants if one.row.kind == "drafter"}
    return sorted({record.distribution for record in known.drafters() if record.name in drafters})


def _entrant(word: DrafterWord, rule: str, tell_rule: bool, kind: Any = "drafter") -> Entrant:
    drafter: Any = word if not isinstance(word, str | Mapping) and not isinstance(word, type) else choose(word)[0]
    if isinstance(word, str):
        label, choice = word.strip(), read_word(word)
    elif isinstance(word, Mapping):
        choice = read_mapping(word)
        label = label_of(choice)
    else:
        label, choice = drafter.name, DrafterChoice(drafter.name)
    name = f"{label} {rule}" if tell_rule else label
    options = {key: value if _is_json(value) else type(value).__name__ for key, value in choice.options.items()}
    row = Row(
        name=name, kind=kind, drafter=drafter.name, word=label, options=options, rule=rule, batch_size=1, baseline=""
    )
    return Entrant(row, word, {})


def _transformers(drafting: Sequence[Entrant], size: int, assistant: Any, *, static: bool) -> list[Entrant]:
    ways: dict[str, dict[str, Any]] = {"generate": {}}
    if static:
        ways["generate static"] = {"cache_implementation": "static"}
    if size == 1:  # the other ways serve one text at a time
        ways["prompt lookup"] = {"prompt_lookup_num_tokens": LOOKUP_TOKENS}
        model = assistant if assistant is not None else _assistant(drafting)
        if model is not None:
            ways["assisted"] = {"assistant_model": model}
    rows = {
        name: Row(
            name=f"transformers {name}",
            kind="transformers",
            drafter=name,
            word="",
            options={key: value if _is_json(value) else type(value).__name__ for key, value in own.items()},
            rule="",
            batch_size=1,
            baseline="",
        )
        for name, own in ways.items()
    }
    return [Entrant(rows[name], None, own) for name, own in ways.items()]


def _assistant(drafting: Sequence[Entrant]) -> Any:
    for one in drafting:
        if one.row.drafter == "draft-model" and isinstance(one.word, str | Mapping):
            choice = read_word(one.word) if isinstance(one.word, str) else read_mapping(one.word)
            if "model" in choice.options:
                return choice.options["model"]
    return None


def _at(entrant: Entrant, size: int, *, named: bool) -> Entrant:
    name = f"{entrant.row.name}@{size}" if named else entrant.row.name
    return replace(entrant, row=replace(entrant.row, name=name, batch_size=size))


def _told_apart(entrants: Sequence[Entrant], *, baseline: bool) -> list[Entrant]:
    """Number rows of one name, and name the baseline of each."""
    counts: dict[str, int] = {}
    plain: dict[int, str] = {}
    found = []
    for one in entrants:
        count = counts[one.row.name] = counts.get(one.row.name, 0) + 1
        name = one.row.name if count == 1 else f"{one.row.name} ({count})"
        if baseline and one.row.kind == "plain":
            plain[one.row.batch_size] = name
        row = replace(one.row, name=name, baseline=plain.get(one.row.batch_size, ""))
        found.append(replace(one, row=row))
    return found


def label_of(choice: DrafterChoice) -> str:
    """Write a drafter and its options as after `-d`."""
    parts = [f"{key}={_word(value)}" for key, value in choice.options.items()]
    return f"{choice.name}[{','.join(parts)}]" if parts else choice.name


def _word(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value) if _is_json(value) else type(value).__name__


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True
