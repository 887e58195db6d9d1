"""How often a text parts from plain decoding in half precision, over many prompts, and whether rounding accounts for it."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outrider.decode.explain import Explanation, explain
from outrider.generation import generate
from outrider.prompt import encode
from outrider.prompt_file import NamedPrompt
from outrider.target.model import Target


@dataclass(frozen=True, slots=True)
class Partings:
    """The explanations of many outputs, pooled."""

    found: tuple[Explanation, ...]

    @property
    def faults(self) -> int:
        """Partings that rounding can't account for."""
        return sum(len(one.faults) for one in self.found)

    def __str__(self) -> str:
        partings = [(parting, one.allowed_gap) for one in self.found for parting in one.partings]
        gaps = sorted(parting.gap for parting, _ in partings if parting.gap is not None)
        positions = sum(one.positions for one in self.found)
        moved = sorted(one.logit_difference for one in self.found)
        worst = max((parting.gap / allowed for parting, allowed in partings if parting.gap is not None), default=0.0)
        largest = f"gaps {gaps[len(gaps) // 2]:.3f} median, {gaps[-1]:.3f} largest, " if gaps else ""
        return (
            f"{len(partings)} of {positions} tokens part ({len(partings) / positions:.2%}), {largest}"
            f"at most {worst:.2f} of what rounding bridges; row count moves a logit by {moved[len(moved) // 2]:.2f} "
            f"(median of texts); {self.faults} faults"
        )


def measure(target: Target, prompts: Sequence[NamedPrompt], drafter: str, options: Mapping[str, Any]) -> Partings:
    """Generate for every prompt and explain every output.

    Args:
        target: the model.
        prompts: a text each.
        drafter: whose drafts are verified.
        options: of the generation; a seed for all.
    """
    found = []
    for number, prompt in enumerate(prompts, 1):
        ids = encode(target, prompt.text)
        result = generate(target, ids, drafter, **options)
        found.append(explain(target, ids, result.token_ids, **(dict(options) | {"seed": result.seed})))
        print(f"  {number}/{len(prompts)} {prompt.name}: {len(found[-1].partings)} part", file=sys.stderr)  # noqa: T201
    return Partings(tuple(found))
