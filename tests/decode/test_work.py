"""What steps say they verified and took, against what is counted."""

from typing import Any

import pytest

import outrider
from outrider import DraftTree
from outrider.decode.work import Work
from support import SCRIPTS, Scripted, every_drafter, plain_loop, prompt_of, tiny_target

OPTIONS: dict[str, Any] = {"max_new_tokens": 24, "do_sample": False, "adaptive": False}


def works(drafter: Any) -> tuple[list[outrider.Step], outrider.Stats]:
    with outrider.stream(tiny_target(), prompt_of(9), drafter, **OPTIONS) as steps:
        return list(steps), steps.stats


@pytest.mark.parametrize("name", [*SCRIPTS, "ngram", "lookahead", "none"])
def test_steps_add_up_to_the_statistics(name: str) -> None:
    target = tiny_target()
    text = [*prompt_of(9), *plain_loop(target.model, prompt_of(9), 24)]
    steps, stats = works(every_drafter(target, text)[name])
    assert steps[0].work is None
    told = [(step, step.work) for step in steps if step.work is not None]
    assert len(told) == stats.num_steps == len(steps) - 1
    assert sum(work.tree.candidates for _, work in told) == stats.num_draft_tokens
    assert sum(len(work.path) for _, work in told) == stats.num_accepted_draft_tokens
    assert sum(work.draft_seconds for _, work in told) == pytest.approx(stats.draft_seconds)
    assert sum(work.seconds for _, work in told) == pytest.approx(stats.seconds - stats.prefill_seconds, abs=0.01)
    for step, work in told:
        assert work.rows == 1
        assert work.target_seconds > 0
        assert work.verify_seconds >= 0
        assert work.draft_seconds + work.target_seconds + work.verify_seconds <= work.seconds
        assert [work.tree.tokens[node] for node in work.path] == list(step.tokens[: len(work.path)])
        assert sum(step.from_draft) == len(work.path)
    assert sum(work.target_seconds + work.verify_seconds for _, work in told) == pytest.approx(stats.forward_seconds)


def test_levels_that_were_decided_on_and_the_draft_s_own_first_choice() -> None:
    tree = DraftTree((5, 6, 7, 8, 9), (-1, -1, 1, 1, 2))  # 5 | 6 - 7 - 9 and 6 - 8
    scores: Any = None

    def work(*path: int) -> Work:
        return Work(tree, scores, path, False, 1, 0.0, 0.0, 0.0, 0.0)

    assert (work().asked(1), work().rejected()) == (1, (5,))
    assert (work(1).asked(2), work(1).rejected()) == (2, (7, 9))
    assert (work(1, 2, 4).asked(4), work(1, 2, 4).rejected()) == (3, ())  # nothing was left to ask
    assert work(1).asked(1) == 1  # the text ended with an accepted token
    assert Work(DraftTree(), scores, (), True, 1, 0.0, 0.0, 0.0, 0.0).asked(1) == 0


def test_rows_that_take_a_step_together_say_so() -> None:
    from outrider.decode.loop import decode
    from outrider.decode.request import read_request
    from outrider.decode.row import Row
    from outrider.draft.guard import Guard

    target = tiny_target()
    rows = [Row(read_request(target, prompt_of(4 + at), OPTIONS), outrider.Stats()) for at in range(3)]
    drafter = Scripted(target, lambda ids: DraftTree.chain([ids[-1]]))
    for emitted in list(decode(target, Guard(drafter), rows))[1:]:
        assert {step.work.rows for _, step in emitted if step.work} == {len(emitted)}
        assert len({step.work.seconds for _, step in emitted if step.work}) == 1


def test_what_a_finished_stream_holds_on_to_has_no_laws_or_logits() -> None:
    stream = outrider.stream(tiny_target(), prompt_of(9), "ngram", **OPTIONS)
    stream.result()
    assert all(step.work is None for step in stream.collected._steps)
