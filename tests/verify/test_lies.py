"""A lying drafter can cost time or be stopped with its name; under `match` it can never change the text."""

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import outrider
from outrider import DraftTree, TreeBatch
from outrider.draft.laws import POINT, DraftLaws
from support import VOCAB, Scripted, plain_loop, prompt_of, tiny_target

PROMPT = prompt_of(6)
TOKENS = st.one_of(st.integers(0, VOCAB - 1), st.integers(-2, 90))


@st.composite
def proposals(draw: st.DrawFn) -> Any:
    """Anything that a drafter could give: mostly trees, some of them right, many malformed."""
    size = draw(st.integers(0, 9))
    parents = [
        draw(st.integers(-1, node - 1) if draw(st.integers(0, 9)) else st.integers(-4, 9)) for node in range(size)
    ]
    tokens = draw(st.lists(TOKENS, min_size=size, max_size=size))
    q_rows, laws = None, None
    if draw(st.booleans()):
        rows, width = draw(st.integers(1, 3)), draw(st.sampled_from([VOCAB, 8, 80]))
        number = st.floats(-0.125, 1.0, width=32) | st.just(float("nan")) | st.just(float("inf"))
        q = torch.tensor(draw(st.lists(st.lists(number, min_size=width, max_size=width), min_size=rows, max_size=rows)))
        if draw(st.booleans()):
            q = q.nan_to_num(0.5, 0.5, 0.5).abs() + 1e-3
            q = q / q.sum(-1, keepdim=True)
        laws = DraftLaws(q, replacement=draw(st.booleans()))
        q_rows = torch.tensor([[draw(st.integers(POINT, 3)) for _ in range(size)]]).view(1, size)
    shape = (1, size)
    return TreeBatch(torch.tensor(tokens).view(shape).long(), torch.tensor(parents).view(shape).long(), q_rows, laws)


class Lying(Scripted):
    def __init__(self, target: outrider.Target, given: list[Any]) -> None:
        super().__init__(target, lambda ids: DraftTree())
        self.given = given

    def propose(self, batch: Any) -> TreeBatch:
        tree: TreeBatch = self.given[len(batch.rows[0].ids) % len(self.given)]
        return tree


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "seed": 4}], ids=["greedy", "sampled"])
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(given_trees=st.lists(proposals(), min_size=1, max_size=5))
def test_no_lie_changes_the_text(sampling: dict[str, Any], given_trees: list[Any]) -> None:
    target = tiny_target()
    expected = outrider.generate(target, PROMPT, "none", max_new_tokens=14, **sampling).token_ids
    named = False
    try:
        found: Any = outrider.generate(
            target, PROMPT, Lying(target, given_trees), max_new_tokens=14, **sampling
        ).token_ids
    except outrider.DrafterError as error:
        found = None
        named = "drafter 'scripted'" in str(error)
    assert named if found is None else found == expected
    assert outrider.generate(target, PROMPT, "none", max_new_tokens=14, **sampling).token_ids == expected


def test_greedy_text_is_plain() -> None:
    assert list(outrider.generate(tiny_target(), PROMPT, "none", max_new_tokens=14).token_ids) == plain_loop(
        tiny_target().model, PROMPT, 14
    )


@pytest.mark.parametrize(
    ("laws", "q_row", "message"),
    [
        (DraftLaws(torch.full((1, VOCAB), 1 / VOCAB)), 1, "q row 1, but there are 1"),
        (DraftLaws(torch.full((1, VOCAB), 2 / VOCAB)), 0, "q is no law"),
        (DraftLaws(torch.full((1, VOCAB), float("nan"))), 0, "q is no law"),
        (DraftLaws(torch.eye(VOCAB)[:1]), 0, "gives its token 5 no chance"),
        (DraftLaws(torch.ones(1, 1), torch.tensor([9])), 0, "gives its token 5 no chance"),
        (DraftLaws(torch.ones(1, 1), torch.tensor([9, 8])), 0, "id_map has shape"),
        (DraftLaws(torch.ones(VOCAB)), 0, "laws as rows"),
    ],
)
def test_laws_that_are_none_are_refused_where_they_are_built(laws: DraftLaws, q_row: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DraftTree((5,), (-1,), (q_row,), laws)


def test_ids_are_mapped_into_the_target_s() -> None:
    laws = DraftLaws(torch.tensor([[0.25, 0.75]]), torch.tensor([9, 3]))
    assert laws.row(0, 12).nonzero().flatten().tolist() == [3, 9]
    assert laws.chance(0, 3) == 0.75
    assert laws.chance(0, 0) == 0.0
