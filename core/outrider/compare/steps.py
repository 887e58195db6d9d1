"""What steps bring and what they cost: drafters and rules side by side, in one interleaved run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from outrider.compare.contestants import with_drafter
from outrider.compare.figures import pooled_acceptance
from outrider.compare.runner import Run, run
from outrider.decode.explain import explain
from outrider.draft.plain import Plain
from outrider.prompt import encode
from outrider.prompt_file import NamedPrompt
from outrider.target.model import Target

HEADER: Final = (
    "| drafter | rule | tokens a step | accepted of drafted | cost of a step | speed | with prefill | texts |",
    "|---|---|---|---|---|---|---|---|",
)


@dataclass(frozen=True, slots=True)
class Setting:
    """A drafter and the rule that verifies it.

    Args:
        drafter: how it is picked, with its options.
        rule: one of `match`, `rejection`, `block`.
    """

    drafter: str
    rule: str = "match"

    @property
    def name(self) -> str:
        """How its runs are told apart."""
        return f"{self.drafter} {self.rule}"


def measure(
    target: Target,
    settings: Sequence[Setting],
    prompts: Sequence[NamedPrompt],
    options: Mapping[str, Any],
    rounds: int,
    record: Path | None = None,
) -> Iterator[str]:
    """Run plain decoding and every setting in turn; yield the rows of a table in Markdown.

    Tokens a step are the mean acceptance length, pooled over all prompts. The cost of a step and the speed are over plain
    decoding's, of the time after the prefill; the speed is also given with it. Texts are plain decoding's own, or
    every parting is explained.

    Args:
        target: the model.
        settings: what is compared.
        prompts: with names that differ.
        options: of generation, for all.
        rounds: interleaved repetitions.
        record: as in the runner.
    """
    every = [Setting(Plain.name), *settings]
    contestants = {one.name: with_drafter(target, one.drafter, dict(options) | {"rule": one.rule}) for one in every}
    keys: dict[str, Any] = {name: value for name, value in options.items() if isinstance(value, int | float | str)}
    runs = run(contestants, prompts, rounds, keys | {"settings": list(contestants), "target": repr(target)}, record)
    plain = [one for one in runs if one.contestant == every[0].name]
    yield from HEADER
    for setting in every:
        own = [one for one in runs if one.contestant == setting.name]
        cost = _seconds_a_step(own) / _seconds_a_step(plain)
        speed = _rate(own) / _rate(plain)
        share = _share(own)
        yield (
            f"| `{setting.drafter}` | {setting.rule} | {pooled_acceptance(own) or 0:.2f} | "
            f"{'' if share is None else f'{share:.0%}'} | {cost:.2f} | {speed:.2f}x | "
            f"{_whole_rate(own) / _whole_rate(plain):.2f}x | {_verdict(target, prompts, own, plain, options)} |"
        )


def _decode_seconds(runs: Sequence[Run]) -> float:
    seconds: float = sum(one.stats["seconds"] - one.stats["prefill_seconds"] for one in runs)
    return seconds


def _seconds_a_step(runs: Sequence[Run]) -> float:
    steps: int = sum(one.stats["num_steps"] for one in runs)
    return _decode_seconds(runs) / max(steps, 1)


def _rate(runs: Sequence[Run]) -> float:
    tokens: int = sum(one.stats["num_tokens"] - 1 for one in runs)
    return tokens / _decode_seconds(runs)


def _whole_rate(runs: Sequence[Run]) -> float:
    tokens: int = sum(one.stats["num_tokens"] for one in runs)
    seconds: float = sum(one.stats["seconds"] for one in runs)
    return tokens / seconds


def _verdict(
    target: Target,
    prompts: Sequence[NamedPrompt],
    runs: Sequence[Run],
    plain: Sequence[Run],
    options: Mapping[str, Any],
) -> str:
    """Say whether texts are plain decoding's, and whether rounding accounts for those that are not."""
    texts = {prompt.name: prompt.text for prompt in prompts}
    wanted = {(one.prompt, one.round): one.token_ids for one in plain}
    parted = [one for one in runs if one.token_ids != wanted[one.prompt, one.round]]
    if not parted:
        return "identical"
    settings = {name: value for name, value in options.items() if name != "adaptive"}
    found = [explain(target, encode(target, texts[one.prompt]), one.token_ids, **settings) for one in parted]
    faults = sum(len(one.faults) for one in found)
    return f"{len(parted)} of {len(runs)} part, {f'{faults} FAULTS' if faults else 'all near ties'}"


def _share(runs: Sequence[Run]) -> float | None:
    drafted: int = sum(one.stats["num_draft_tokens"] for one in runs)
    accepted: int = sum(one.stats["num_accepted_draft_tokens"] for one in runs)
    return accepted / drafted if drafted else None
