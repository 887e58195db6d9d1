"""What `template` is: found by its name, right by every check of the kit, and of some use."""

from typing import Any

import outrider
from outrider.check import parametrize_with_checks
from outrider.check.targets import REPETITIVE, tiny_target
from outrider_template import Template, TemplateOptions


def test_it_is_found_by_its_name() -> None:
    (record,) = [one for one in outrider.drafters() if one.name == Template.name]
    assert record.drafter is Template
    assert record.distribution == "outrider-template"


@parametrize_with_checks(Template)
def test_it_passes_the_kit(drafter: Any, check: Any) -> None:
    check(drafter)


def test_text_that_repeats_itself_is_drafted() -> None:
    target = tiny_target(0, REPETITIVE)
    result = outrider.generate(target, [1, 2, 3] * 4, Template, max_new_tokens=40, adaptive=False)
    assert result.stats.num_accepted_draft_tokens > 0


def test_a_draft_copies_and_keeps_to_its_room() -> None:
    drafter = Template(tiny_target().info, TemplateOptions(draft_tokens=3))
    view = outrider.DraftView(row=0, ids=outrider.TokenView([1, 2, 3, 4, 5, 1]), max_depth=2, max_nodes=64)
    assert drafter.propose_row(view) == outrider.DraftTree.chain([2, 3])
