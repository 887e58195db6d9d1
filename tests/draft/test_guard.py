from typing import Any

import pytest
import torch

import outrider
from outrider import DraftTree, TreeBatch
from support import Scripted, plain_loop, prompt_of, right_chain, tiny_target


def _generate(script: Any, **replaced: Any) -> None:
    target = tiny_target()
    drafter = Scripted(target, script)
    for name, value in replaced.items():
        setattr(drafter, name, value)
    try:
        outrider.generate(target, prompt_of(5), drafter, max_new_tokens=8)
    finally:
        assert len(drafter.ended) == 1, "the row was not ended"


def _raise(*_: Any) -> Any:
    raise RuntimeError("no idea")


@pytest.mark.parametrize("method", ["begin", "propose", "observe"])
def test_a_drafter_that_raises_is_named_and_its_row_ended(method: str) -> None:
    with pytest.raises(outrider.DrafterError, match=f"drafter 'scripted' failed in {method}: RuntimeError: no idea"):
        _generate(lambda ids: DraftTree(), **{method: _raise})


@pytest.mark.parametrize(
    ("propose", "message"),
    [
        (lambda batch: None, "expected a TreeBatch, got NoneType"),
        (lambda batch: TreeBatch.pack([]), "0 trees for 1 rows"),
        (lambda batch: TreeBatch.pack([DraftTree.chain([64])]), "token 64 is not one of the target's 64"),
        (lambda batch: TreeBatch.pack([DraftTree.chain([1] * 60)]), "a tree of 60 nodes and depth 60"),
        (lambda batch: TreeBatch.pack([DraftTree(tuple(range(62)), (-1,) * 62)] * 2), "2 trees for 1 rows"),
        (lambda batch: TreeBatch(torch.tensor([[1, 1]]), torch.tensor([[-1, -1]])), "repeats its sibling's token"),
    ],
)
def test_a_tree_that_breaks_the_contract_is_stopped(propose: Any, message: str) -> None:
    with pytest.raises(outrider.DrafterError, match=message):
        _generate(lambda ids: DraftTree(), propose=propose)


def test_without_room_the_drafter_is_not_asked() -> None:
    target = tiny_target()
    asked: list[int] = []

    def script(ids: Any) -> DraftTree:
        asked.append(len(ids))
        return DraftTree()

    outrider.generate(target, prompt_of(5), Scripted(target, script), max_new_tokens=4)
    assert asked == [6, 7]  # the first token comes from the prefill, the last has no room for a draft


def test_gradients_are_off_in_the_drafter_and_unchanged_outside() -> None:
    target = tiny_target()
    text = prompt_of(5) + plain_loop(target.model, prompt_of(5), 8)
    seen: list[bool] = []

    def script(ids: Any) -> DraftTree:
        seen.append(torch.is_grad_enabled())
        return right_chain(text)(ids)

    with (
        torch.enable_grad(),
        outrider.stream(target, prompt_of(5), Scripted(target, script), max_new_tokens=8) as steps,
    ):
        for _ in steps:
            assert torch.is_grad_enabled()
    assert seen
    assert not any(seen)


def test_a_drafter_sees_ids_that_it_cannot_change() -> None:
    target = tiny_target()

    def script(ids: Any) -> DraftTree:
        ids[0] = 1
        return DraftTree()

    with pytest.raises(outrider.DrafterError, match="does not support item assignment"):
        outrider.generate(target, prompt_of(5), Scripted(target, script), max_new_tokens=8)
