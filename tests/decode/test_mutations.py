"""Faults that decoders have had, patched into the real code: the equality tests must notice each."""

from typing import Any

import pytest
import torch

import outrider
from outrider.decode.stopping import Stopping
from outrider.draft.batch import TreeBatch
from outrider.target.cache import RowLayer
from outrider.verify.sampling import NodeScores
from support import Scripted, partly_right_tree, prompt_of, tiny_target, transformers_generate


def _bonus_of_the_row_before(self: NodeScores, node: int) -> torch.Tensor:
    return self.logits[max(node, 0)].float()


def _prefix_without_the_path(self: NodeScores, node: int) -> torch.Tensor:
    return torch.tensor([[*self._committed]])


def _looks_at_the_last_token_alone(self: Stopping, ids: Any, tokens: Any, scores: Any = None) -> tuple[int, Any]:
    if tokens[-1] in self.eos_ids:
        return len(tokens), "eos"
    room = self.max_length - len(ids)
    return min(len(tokens), room), "length" if len(tokens) >= room else None


def _siblings_see_each_other(self: TreeBatch) -> torch.Tensor:
    return torch.ones(1, self.width + 1, self.width + 1, dtype=torch.bool).tril()


def _keeps_the_first_rows(self: RowLayer, columns: torch.Tensor, start: int) -> None:
    return None


def _last_of_equals(self: NodeScores, node: int) -> torch.Tensor:
    scores = self.logits[node + 1].float()
    return scores + 1e-3 * torch.arange(len(scores))


MUTANTS: list[tuple[Any, str, Any, dict[str, Any]]] = [
    (NodeScores, "__call__", _bonus_of_the_row_before, {"repetition_penalty": 1.0001}),
    (NodeScores, "__call__", _last_of_equals, {"repetition_penalty": 1.0001}),
    (NodeScores, "_prefix", _prefix_without_the_path, {"repetition_penalty": 1.7}),
    (NodeScores, "_prefix", _prefix_without_the_path, {"no_repeat_ngram_size": 2}),
    (Stopping, "cut", _looks_at_the_last_token_alone, {"eos_token_id": list(range(0, 64, 5)), "pad_token_id": 0}),
    (TreeBatch, "ancestors", _siblings_see_each_other, {}),
    (RowLayer, "move", _keeps_the_first_rows, {}),
]


def _differences(options: dict[str, Any]) -> int:
    found = 0
    for seed in range(8):
        target, prompt = tiny_target(seed, 0.1), prompt_of(8, seed)
        settings: dict[str, Any] = {"max_new_tokens": 30, **options}
        expected = transformers_generate(target.model, prompt, **settings)
        drafter = Scripted(target, partly_right_tree(prompt + expected))
        found += list(outrider.generate(target, prompt, drafter, **settings, adaptive=False).token_ids) != expected
    return found


@pytest.mark.parametrize(
    ("owner", "name", "mutant", "options"), MUTANTS, ids=lambda value: getattr(value, "__name__", None)
)
def test_a_mutated_decoder_is_caught(
    owner: Any, name: str, mutant: Any, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _differences(options) == 0
    monkeypatch.setattr(owner, name, mutant)
    assert _differences(options) > 0
