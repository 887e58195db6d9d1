"""Measured acceptance by depth: drafts of the heads as they are, through the verifier, on held-out text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from outrider.decode.stats import Stats, acceptance_by_depth
from outrider.generation import generate
from outrider.plugins.words import DrafterWord
from outrider.prompt import Prompt
from outrider.target.model import Target


@dataclass(frozen=True, slots=True)
class Acceptance:
    """How far drafts were accepted.

    Args:
        mean_acceptance_length: tokens emitted by steps / steps, all prompts together.
        by_depth: entry d is the share of the steps with a draft that had at least d + 1 tokens accepted.
        steps: target forwards.
    """

    mean_acceptance_length: float
    by_depth: tuple[float, ...]
    steps: int


def measure(
    target: Target, drafter: DrafterWord, options: dict[str, Any], prompts: Sequence[Prompt], new_tokens: int
) -> Acceptance:
    """Generate greedily with a drafter, always drafting as far as its options say.

    Args:
        target: who verifies.
        drafter: its name.
        options: its options.
        prompts: at least one.
        new_tokens: longest text.

    Raises:
        InputError: the drafter's options are wrong.
    """
    every: list[Stats] = [
        generate(target, prompt, drafter, options, max_new_tokens=new_tokens, temperature=0, adaptive=False).stats
        for prompt in prompts
    ]
    return pooled(every)


def pooled(every: Sequence[Stats]) -> Acceptance:
    """Put several generations' figures together."""
    steps = sum(one.num_steps for one in every)
    tokens = sum(one.num_tokens - 1 for one in every)
    depths = acceptance_by_depth(one.acceptance_histogram for one in every)
    return Acceptance(tokens / max(1, steps), depths, steps)
