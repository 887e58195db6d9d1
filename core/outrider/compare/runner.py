"""The runner: contestants in turn on the same prompts, every run kept, interrupted runs taken up again.

Contestants are interleaved within a round and change order from round to round, so that a machine that slows down slows
all of them; figures are compared within a round.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from outrider.errors import InputError, first_line
from outrider.prompt_file import NamedPrompt


@dataclass(frozen=True, slots=True)
class Run:
    """One contestant on one prompt.

    Args:
        contestant: its name.
        prompt: the prompt's name.
        round: which repetition.
        token_ids: the new ids.
        seconds: wall-clock, prefill included.
        stats: whatever else the contestant counts.
    """

    contestant: str
    prompt: str
    round: int
    token_ids: tuple[int, ...]
    seconds: float
    stats: dict[str, Any]

    @property
    def rate(self) -> float:
        """New tokens a second."""
        return len(self.token_ids) / self.seconds


Outcome = tuple[Sequence[int], float, dict[str, Any]]
Contestant = Callable[[NamedPrompt], Outcome]
"""Runs a prompt; returns new ids, seconds and counts."""


def run(
    contestants: Mapping[str, Contestant],
    prompts: Sequence[NamedPrompt],
    rounds: int,
    settings: Mapping[str, Any],
    record: Path | None = None,
    report: Callable[[Run], None] = lambda _: None,
) -> list[Run]:
    """Run every contestant on every prompt, `rounds` times.

    Args:
        contestants: by name, in the order of the first round.
        prompts: with names that differ.
        rounds: number of repetitions.
        settings: what the runs depend on; a record of other settings is not taken up.
        record: a JSONL file to keep every run in as it ends; runs that it holds, of the same prompts, are not made again.
        report: hears of every run.

    Raises:
        InputError: two prompts of one name, or a record of other settings.
    """
    if len({prompt.name for prompt in prompts}) < len(prompts):
        raise InputError("two prompts have the same name")
    settings = dict(settings) | {"prompts": [[prompt.name, _digest(prompt.text)] for prompt in prompts]}
    done = {(one.contestant, one.prompt, one.round): one for one in _taken_up(record, settings)}
    names = list(contestants)
    runs = []
    for number in range(rounds):
        for prompt in prompts:
            for name in names[number % len(names) :] + names[: number % len(names)]:
                found = done.get((name, prompt.name, number))
                if found is None:
                    ids, seconds, stats = contestants[name](prompt)
                    found = Run(name, prompt.name, number, tuple(ids), seconds, stats)
                    _keep(record, asdict(found))
                runs.append(found)
                report(found)
    return runs


def _digest(text: str) -> str:
    """Tell a text from others without keeping it: prompts may be others' property."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def print_run(one: Run) -> None:
    """Say on stderr how fast a run was."""
    print(f"  {one.prompt} {one.round + 1}: {one.contestant} {one.rate:.1f} tokens/s", file=sys.stderr)  # noqa: T201


def _taken_up(record: Path | None, settings: Mapping[str, Any]) -> list[Run]:
    """Read a record's runs; a last line that was cut off by an interruption is dropped from the file."""
    if record is None:
        return []
    try:
        record.parent.mkdir(parents=True, exist_ok=True)
        lines = record.read_text(encoding="utf-8").splitlines(keepends=True) if record.exists() else []
        whole = [line for line in lines if line.endswith("\n")]
        if len(whole) < len(lines):
            record.write_text("".join(whole), encoding="utf-8")
        if not whole:
            _keep(record, {"settings": dict(settings)})
            return []
        head, *rest = [json.loads(line) for line in whole]
        if head["settings"] != json.loads(json.dumps(dict(settings))):
            raise InputError(f"{record} holds runs with other settings; name another file or remove it")
        return [Run(**{**one, "token_ids": tuple(one["token_ids"])}) for one in rest]
    except OSError as error:
        raise InputError(f"the record {record} can't be used: {first_line(error)}") from error
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{record} is no record of runs; name another file or remove it") from error


def _keep(record: Path | None, value: dict[str, Any]) -> None:
    if record is not None:
        with record.open("a", encoding="utf-8") as file:
            file.write(json.dumps(value) + "\n")
