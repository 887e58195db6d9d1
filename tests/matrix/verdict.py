"""One model through outrider and through its own `generate`: is the text the same, and was a tree really verified?"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import outrider
from outrider import DraftTree, Target
from support import VOCAB, Script, Scripted, right_tree, wrong_chain

NEW = 40
PROMPTS = (12, 7, 10)


@dataclass(frozen=True)
class Verdict:
    """What became of a model.

    Args:
        outcome: `equal`, `refused` or `DIFFERENT`.
        tier: what served it, or nothing.
        note: why it was refused, or where it differs.
    """

    outcome: str
    tier: str = ""
    note: str = ""


def right_chain_after_wrong_sibling(text: Sequence[int]) -> Script:
    """A chain of coming tokens whose first has a wrong sibling before it."""

    def script(ids: Sequence[int]) -> DraftTree:
        coming = list(text[len(ids) : len(ids) + 5])
        if not coming:
            return DraftTree()
        parents = [-1, -1, *range(1, len(coming))]
        return DraftTree(((coming[0] + 1) % VOCAB, *coming), tuple(parents))

    return script


SCRIPTS: dict[str, Callable[[Sequence[int]], Script]] = {
    "wrong": lambda text: wrong_chain(text, 4),
    "right": right_chain_after_wrong_sibling,
    "branching": lambda text: right_tree(text, 3),
}


def judge(model: Any) -> Verdict:
    """Try a model at one and at three rows, under wrong, right and branching drafts."""
    try:
        target = outrider.load(model)
        return _judge(target, model)
    except (outrider.ModelError, outrider.InputError) as error:
        return Verdict("refused", note=str(error))


def _judge(target: Target, model: Any) -> Verdict:
    prompts = [_prompt(length) for length in PROMPTS]
    plain = [_plain(model, prompt) for prompt in prompts]
    start = [_start(model, prompt) for prompt in prompts]
    texts = [first + new for first, new in zip(start, plain, strict=True)]
    for name, script in SCRIPTS.items():
        for count in (1, len(prompts)):
            drafter = Scripted(target, _by_row(texts[:count], script))
            results = outrider.generate_batch(target, prompts[:count], drafter, max_new_tokens=NEW, do_sample=False)
            for row, (result, expected) in enumerate(zip(results, plain, strict=False)):
                if list(result.token_ids) != expected:
                    return Verdict("DIFFERENT", target.tier.name, f"{name} drafts, row {row} of {count}")
            if name != "wrong" and _rows_with_a_sibling(drafter) < count:
                return Verdict("refused", target.tier.name, f"{name} drafts, {count} rows: no sibling was accepted")
    return Verdict("equal", target.tier.name)


def _rows_with_a_sibling(drafter: Scripted) -> int:
    """In how many rows a node that was not the first of its siblings was accepted, in a tree of two nodes or more."""
    good = {
        one.row
        for one in drafter.outcomes
        if len(one.tree) > 1 and any(one.tree.children(one.tree.parents[node])[0] != node for node in one.path)
    }
    return len(good)


def _by_row(texts: Sequence[Sequence[int]], script: Callable[[Sequence[int]], Script]) -> Script:
    """Give every row the script of its own text."""
    scripts = [(list(text), script(text)) for text in texts]

    def chosen(ids: Sequence[int]) -> DraftTree:
        known = list(ids)
        return next((one(ids) for text, one in scripts if text[: len(known)] == known), DraftTree())

    return chosen


def _prompt(length: int) -> list[int]:
    return torch.randint(2, VOCAB, (length,), generator=torch.Generator().manual_seed(length)).tolist()


def _start(model: Any, prompt: list[int]) -> list[int]:
    return [int(model.generation_config.decoder_start_token_id)] if model.config.is_encoder_decoder else prompt


def _plain(model: Any, prompt: list[int]) -> list[int]:
    ids = torch.tensor([prompt])
    output = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False)
    new: list[int] = output[0, -NEW:].tolist()
    return new
