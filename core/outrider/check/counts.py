"""A drafter drafts, and what is counted of it adds up."""

from collections.abc import Iterator

from outrider.check.check import Check, CheckFailedError, Make
from outrider.check.targets import REPETITIVE, VARIED, prompt, tiny_target
from outrider.generation import generate


def checks() -> Iterator[Check]:
    """Yield the checks."""
    yield Check("counts", "basic", "it drafts at all, and steps, drafted and accepted tokens add up (C15)", _counts)


def _counts(make: Make) -> None:
    drafted = 0
    for seed, spread in ((0, REPETITIVE), (1, REPETITIVE), (2, VARIED)):
        target = tiny_target(seed, spread)
        ids = prompt(5, seed) * 3
        stats = generate(target, ids, make(target.info), max_new_tokens=40, adaptive=False).stats
        drafted += stats.num_draft_tokens
        steps, accepted = stats.num_steps, stats.num_accepted_draft_tokens
        histogram = stats.acceptance_histogram
        if sum(histogram) != stats.num_spec_steps or sum(k * n for k, n in enumerate(histogram)) != accepted:
            raise CheckFailedError(
                f"the histogram {histogram} is not of {stats.num_spec_steps} drafts with {accepted} tokens"
            )
        if stats.num_tokens != 1 + steps + accepted or not 0 <= accepted <= stats.num_draft_tokens:
            raise CheckFailedError(
                f"{stats.num_tokens} tokens of {steps} steps with {accepted} of {stats.num_draft_tokens} drafts accepted"
            )
    if not drafted:
        raise CheckFailedError(
            "it proposed nothing in three texts, two of which repeat themselves; smallest input: any prompt"
        )
