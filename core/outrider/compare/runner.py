"""The runner: contestants in turn on the same prompts, every run kept, interrupted runs taken up again.

Contestants are interleaved within a round and change order from round to round, so that a machine that slows down slows
all of them; figures are compared within a round.
"""

import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from outrider.compare.record import Record
from outrider.errors import InputError
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
    settings = dict(settings) | {"prompts": [[prompt.name, digest(prompt.text)] for prompt in prompts]}
    file = Record(record, settings)
    try:
        known = [Run(**{**one, "token_ids": tuple(one["token_ids"])}) for one in file.kept]
    except (KeyError, TypeError) as error:
        raise file.unreadable() from error
    done = {(one.contestant, one.prompt, one.round): one for one in known}
    runs = []
    for number in range(rounds):
        for prompt in prompts:
            for name in in_turn(list(contestants), number):
                found = done.get((name, prompt.name, number))
                if found is None:
                    ids, seconds, stats = contestants[name](prompt)
                    found = Run(name, prompt.name, number, tuple(ids), seconds, stats)
                    file.keep(asdict(found))
                runs.append(found)
                report(found)
    return runs


def in_turn(names: Sequence[str], number: int) -> list[str]:
    """Return the order of a round: each begins with another."""
    first = number % max(1, len(names))
    return [*names[first:], *names[:first]]


def digest(text: str) -> str:
    """Tell a text from others without keeping it: prompts may be others' property."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def print_run(one: Run) -> None:
    """Say on stderr how fast a run was."""
    print(f"  {one.prompt} {one.round + 1}: {one.contestant} {one.rate:.1f} tokens/s", file=sys.stderr)  # noqa: T201
