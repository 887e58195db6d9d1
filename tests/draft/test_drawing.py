"""Trees that are drawn fill the room that they have."""

import pytest
import torch

import outrider
from outrider import DraftView, Shape, TokenView, draw_trees
from outrider.check import check_drafter
from outrider.check.targets import REPETITIVE, tiny_target
from outrider.verify.decisions import Keyed
from support import VOCAB


@pytest.mark.parametrize(
    ("nodes", "room", "levels"), [(2, 64, [2]), (64, 2, [2]), (8, 64, [3, 3, 2]), (9, 64, [3, 3, 3]), (64, 64, [3] * 4)]
)
def test_the_last_level_takes_what_room_is_left(nodes: int, room: int, levels: list[int]) -> None:
    view = DraftView(0, TokenView([1, 2]), max_depth=4, max_nodes=room, rule="rejection", decisions=Keyed(3, 2))
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(0))
    shape = Shape(depth=8, branching=3, nodes=nodes)
    (tree,) = draw_trees([view], shape, lambda view, own: view.law(own), logits, lambda *_: logits[:, None]).unpack()
    depths = tree.depths()
    assert [depths.count(level) for level in range(1, max(depths) + 1)] == levels


def test_a_draft_of_fewer_nodes_than_branches_is_drawn_by_its_law() -> None:
    options = {"layers": 1, "branching": 3, "nodes": 2}
    asked = ["declared-law", "sibling-law", "kept-draws", "sequence-law"]
    assert {one.status for one in check_drafter("self", options, only=asked)} == {"passed"}
    found = outrider.generate(
        tiny_target(0, REPETITIVE),
        [1, 2, 3] * 4,
        "self",
        options,
        temperature=1.0,
        seed=2,
        rule="rejection",
        adaptive=False,
        max_new_tokens=30,
    )
    assert found.stats.num_accepted_draft_tokens > 0
