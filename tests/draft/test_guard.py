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


class _Lying(TreeBatch):
    """A batch that is another one for the verifier than for the check."""


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
        (lambda batch: TreeBatch(torch.tensor([[1]]), torch.tensor([[-1]], dtype=torch.int16)), "all are int64"),
        (lambda batch: TreeBatch(torch.tensor([[1.0]]), torch.tensor([[-1.0]])), "all are int64"),
        (lambda batch: TreeBatch(torch.tensor([1]), torch.tensor([-1])), "all are int64"),
        (lambda batch: SystemExit(3), "expected a TreeBatch, got SystemExit"),
        (lambda batch: _Lying(torch.tensor([[1]]), torch.tensor([[-1]])), "expected a TreeBatch, got _Lying"),
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

    outrider.generate(target, prompt_of(5), Scripted(target, script), max_new_tokens=4, adaptive=False)
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


def test_leaving_the_process_is_a_drafter_s_failure_and_ctrl_c_is_not() -> None:
    def leave(batch: Any) -> Any:
        raise SystemExit(3)

    with pytest.raises(outrider.DrafterError, match="SystemExit: 3"):
        _generate(lambda ids: DraftTree(), propose=leave)

    def interrupt(batch: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _generate(lambda ids: DraftTree(), propose=interrupt)


def test_what_is_verified_is_what_was_checked() -> None:
    """A drafter that changes its tensors after giving them changes nothing."""
    target, prompt = tiny_target(), prompt_of(5)
    new = plain_loop(target.model, prompt, 12)
    kept: list[TreeBatch] = []

    class Changing(Scripted):
        def propose(self, batch: Any) -> TreeBatch:
            kept.append(super().propose(batch))
            return kept[-1]

    drafter = Changing(target, right_chain(prompt + new))
    original = target.forward

    def forward(cache: Any, roots: Any, trees: TreeBatch) -> Any:
        if kept:
            kept[-1].tokens.fill_(63)
        return original(cache, roots, trees)

    target.forward = forward  # type: ignore[method-assign]
    try:
        result = outrider.generate(target, prompt, drafter, max_new_tokens=12, adaptive=False)
    finally:
        del target.forward
    assert list(result.token_ids) == new
    assert result.stats.num_accepted_draft_tokens > 0


def test_padding_may_hold_anything() -> None:
    target, prompt = tiny_target(), prompt_of(5)
    new = plain_loop(target.model, prompt, 8)

    class Padded(Scripted):
        def propose(self, batch: Any) -> TreeBatch:
            token = new[len(batch.rows[0].ids) - 5]
            return TreeBatch(torch.tensor([[token, 77777, -7]]), torch.tensor([[-1, -2, -2]]))

    result = outrider.generate(
        target, prompt, Padded(target, lambda ids: DraftTree()), max_new_tokens=8, adaptive=False
    )
    assert list(result.token_ids) == new
    assert result.stats.num_draft_tokens == result.stats.num_accepted_draft_tokens > 0


def test_a_view_that_is_forced_open_changes_no_text() -> None:
    target, prompt = tiny_target(), prompt_of(5)

    def script(ids: Any) -> DraftTree:
        ids._ids.append(9)
        return DraftTree()

    result = outrider.generate(target, prompt, Scripted(target, script), max_new_tokens=8)
    assert list(result.token_ids) == plain_loop(target.model, prompt, 8)


def test_a_failing_end_hides_no_text_and_no_error() -> None:
    target, prompt = tiny_target(), prompt_of(5)
    drafter: Any = Scripted(target, lambda ids: DraftTree())
    drafter.end = _raise
    with pytest.warns(UserWarning, match="drafter 'scripted' failed in end"):
        assert len(outrider.generate(target, prompt, drafter, max_new_tokens=4).token_ids) == 4
    drafter.propose = _raise
    with pytest.warns(UserWarning, match="in end"), pytest.raises(outrider.DrafterError, match="failed in propose"):
        outrider.generate(target, prompt, drafter, max_new_tokens=4)


def test_coupled_trees_are_for_match_alone() -> None:
    target, prompt = tiny_target(), prompt_of(5)
    drafter = Scripted(target, lambda ids: DraftTree((1,), (-1,), coupled=True))
    outrider.generate(target, prompt, drafter, max_new_tokens=4, temperature=1.0, seed=1)
    with pytest.raises(outrider.DrafterError, match="only be verified by the rule match, not by block"):
        outrider.generate(target, prompt, drafter, max_new_tokens=4, temperature=1.0, seed=1, rule="block")
