"""What a comparison is: settings, machine, prompts, rows, runs and figures, as they are saved.

Everything that figures are worked out from is in the runs, so that whoever has a saved comparison can count again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from pydantic import ConfigDict

from outrider.compare.estimates import CategoryFigures, Estimate, Figures, Verdict
from outrider.compare.parts import Calibration, ForwardCost, Noise, Part
from outrider.compare.runs import Parting, Prompt, Row, Run, Steps

__all__ = [
    "FORMAT",
    "VERSION",
    "Calibration",
    "CategoryFigures",
    "Comparison",
    "Estimate",
    "Figures",
    "ForwardCost",
    "Noise",
    "Part",
    "Parting",
    "Prompt",
    "Row",
    "Run",
    "Settings",
    "Steps",
    "Verdict",
]

FORMAT: Final = "outrider.compare"
VERSION: Final = 1
_STRICT: Final = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a comparison was asked for.

    Args:
        model: its name, folder or id.
        dtype: of the target's weights.
        device: where the target ran.
        generation: options of generation, for all rows; where they say nothing the model's generation config does.
        sampled: whether texts are drawn, as a result; else decoding is greedy.
        seed: from which every prompt's own is derived.
        repeats: how often every row ran every prompt.
        batch_sizes: at which rows ran.
        adaptive: whether drafts went as far as pays; False for as far as the drafter's options say.
        longest: to how many tokens prompts were cut; None for not.
        chat: whether prompts went through the chat template.
        acceptance_only: whether nothing but counts is meant: no baseline, no repeats.
        shard: which part of the prompts, as `i/n`; None for all of them.
        command: the command line, or empty.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    model: str
    dtype: str
    device: str
    generation: Mapping[str, Any]
    sampled: bool
    seed: int
    repeats: int
    batch_sizes: tuple[int, ...] = (1,)
    adaptive: bool = True
    longest: int | None = None
    chat: bool = False
    acceptance_only: bool = False
    shard: str | None = None
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A whole comparison.

    Args:
        format: always `outrider.compare`.
        version: of this schema.
        settings: what was asked for.
        parts: on which machine, how quiet, how fast; one, or one for every merged shard.
        prompts: in their order.
        rows: in the order of the table; the first is plain decoding, unless only acceptance was asked for.
        runs: all that were made.
        figures: of every row, in their order; worked out from the runs.
        complete: whether every row ran every prompt as often as asked, failed rows apart.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    format: Literal["outrider.compare"] = FORMAT
    version: Literal[1] = VERSION
    settings: Settings
    parts: tuple[Part, ...]
    prompts: tuple[Prompt, ...]
    rows: tuple[Row, ...]
    runs: tuple[Run, ...]
    figures: tuple[Figures, ...] = ()
    complete: bool = True

    def of(self, row: str) -> list[Run]:
        """Return the runs of a row."""
        return [one for one in self.runs if one.row == row]
