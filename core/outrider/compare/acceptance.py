"""How many tokens a step brings, by category of the prompts: what heads are worth, whatever the machine."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from outrider.compare.contestants import with_drafter
from outrider.compare.figures import pooled_acceptance
from outrider.compare.runner import print_run, run
from outrider.decode.stats import acceptance_by_depth
from outrider.prompt import encode
from outrider.prompt_file import NamedPrompt
from outrider.target.model import Target


def chosen(prompts: Sequence[NamedPrompt], each: int | None) -> list[NamedPrompt]:
    """Return the first prompts of every category, `each` of them, or all."""
    seen: dict[str, int] = {}
    kept = []
    for prompt in prompts:
        seen[prompt.category] = seen.get(prompt.category, 0) + 1
        if each is None or seen[prompt.category] <= each:
            kept.append(prompt)
    return kept


def cut(target: Target, prompt: NamedPrompt, longest: int) -> NamedPrompt:
    """Return a prompt whose ids, template and all, are at most `longest`: its end is left out."""
    text = prompt.text
    while (more := len(encode(target, text)) - longest) > 0:
        ids = target.tokenizer(text, add_special_tokens=False).input_ids
        text = target.tokenizer.decode(ids[: max(1, len(ids) - more)])
        if len(ids) <= 1:
            break
    return NamedPrompt(prompt.name, text, prompt.category)


def measure(
    target: Target,
    drafters: Sequence[str],
    prompts: Sequence[NamedPrompt],
    options: Mapping[str, Any],
    record: Path | None = None,
) -> Iterator[str]:
    """Generate with every drafter, and yield the lines of a table: tokens a step by category, and acceptance by depth.

    Args:
        target: who verifies.
        drafters: their words.
        prompts: that are answered.
        options: of the generation.
        record: a JSONL file that keeps the runs, to go on after an interruption.

    Raises:
        InputError: a drafter's word is wrong, or the record is of other settings.
    """
    contestants = {name: with_drafter(target, name, options) for name in drafters}
    runs = run(contestants, prompts, 1, dict(options), record, print_run)
    category = {prompt.name: prompt.category or "all" for prompt in prompts}
    names = list(dict.fromkeys(category.values()))
    yield "| drafter | tokens a step | " + " | ".join(names) + " | accepted at depth 1, 2, ... |"
    yield "|---" * (len(names) + 3) + "|"
    for name in drafters:
        mine = [one for one in runs if one.contestant == name]
        each = [pooled_acceptance([one for one in mine if category[one.prompt] == kind]) for kind in names]
        cells = " | ".join(f"{one:.2f}" if one else "-" for one in each)
        depths = " ".join(
            f"{one:.2f}" for one in acceptance_by_depth(one.stats["acceptance_histogram"] for one in mine)
        )
        yield f"| {name} | {pooled_acceptance(mine):.2f} | {cells} | {depths} |"
