"""What is decoded on a target that one process holds, or several together; run by torchrun: FOLDER OUT."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from transformers import StoppingCriteria

import outrider
from outrider import DrafterError, DraftLaws, DraftTree, InputError
from outrider.draft.contract import API, DrafterOptions, DraftView, RowDrafter
from outrider.target.model import Target
from support import SCRIPTS, Scripted

PROMPT = [5, 6, 7, 5, 6, 7, 5, 6]
NEW = 24


class Dice(RowDrafter[DrafterOptions]):
    """Draws siblings that may be equal from one law."""

    name: ClassVar[str] = "dice"
    requires_api: ClassVar[tuple[int, int]] = API

    def propose_row(self, view: DraftView) -> DraftTree:
        if not (view.max_depth and view.wants_q):
            return DraftTree()
        size = self.target.vocab_size
        law = torch.ones(1, size, dtype=torch.float64) / size
        tokens = view.draw(law[0], 3, 0)
        return DraftTree(tuple(tokens), (-1,) * 3, (0,) * 3, DraftLaws(law, replacement=True))


class Raises(RowDrafter[DrafterOptions]):
    """Fails in the first process only."""

    name: ClassVar[str] = "raises"
    requires_api: ClassVar[tuple[int, int]] = API

    def propose_row(self, view: DraftView) -> DraftTree:
        if os.environ.get("RANK", "0") == "0":
            raise OSError("no such luck")
        return DraftTree()


class FirstStops(StoppingCriteria):
    """Stops a text in the first process, as a clock might."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        return torch.tensor([self.target.ranks.first and input_ids.shape[1] >= len(PROMPT) + 9])


def told(result: outrider.Result) -> list[Any]:
    """What must be the same, however many processes there are."""
    return [list(result.token_ids), result.finish_reason, result.stats.num_tokens]


def decoded(target: Target, names: Sequence[str]) -> dict[str, Any]:
    """Decode with every drafter, in every way."""
    found: dict[str, Any] = {}
    plain = outrider.generate(target, PROMPT, "none", temperature=0, max_new_tokens=NEW).token_ids
    for name in names:
        for heat in (0.0, 1.0):
            try:
                one = outrider.generate(target, PROMPT, name, temperature=heat, seed=3, max_new_tokens=NEW)
            except InputError:
                continue
            found[f"{name} {heat}"] = told(one)
    script = SCRIPTS["right tree" if target.ranks.first else "wrong tree"]([*PROMPT, *plain])
    led = outrider.generate(target, PROMPT, Scripted(target, script), temperature=0, max_new_tokens=NEW, adaptive=False)
    found["the first's trees"] = [*told(led), led.stats.num_accepted_draft_tokens]
    for rule in ("rejection", "block"):
        drawn = outrider.generate(
            target, PROMPT, Dice, temperature=1.0, seed=5, rule=rule, max_new_tokens=NEW, adaptive=False
        )
        found[rule] = [*told(drawn), drawn.stats.num_accepted_draft_tokens]
    rows = outrider.generate_batch(
        target, [PROMPT, PROMPT[:3], [9]], "ngram", temperature=1.0, seed=2, max_new_tokens=NEW
    )
    found["batch"] = [told(one) for one in rows]
    with outrider.session(target, "ngram", temperature=0, max_new_tokens=8) as session:
        found["session"] = [told(session.generate(PROMPT)), told(session.generate([1, 2]))]
    stopped = outrider.generate(
        target, PROMPT, "ngram", temperature=0, max_new_tokens=NEW, stopping_criteria=[FirstStops(target)]
    )
    found["stopped"] = told(stopped)
    try:
        outrider.generate(target, PROMPT, Raises, temperature=0, max_new_tokens=NEW, adaptive=False)
    except DrafterError as error:
        found["raised"] = str(error)
    return found


def unseeded(target: Target) -> list[int]:
    """A text whose seed nobody gave."""
    return list(outrider.generate(target, PROMPT, "ngram", temperature=1.0, max_new_tokens=NEW).token_ids)


if __name__ == "__main__":
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    shared = outrider.load(folder, dtype="float64", tensor_parallel=True)
    parts: Any = shared.model.named_parameters()
    heads = {tuple(part.to_local().shape) for name, part in parts if "k_proj" in name}
    texts = {
        "texts": decoded(shared, [one.name for one in outrider.drafters()]),
        "unseeded": unseeded(shared),
        "heads": sorted(heads),
    }
    (out / f"{os.environ['RANK']}.json").write_text(json.dumps(texts), encoding="utf-8")
