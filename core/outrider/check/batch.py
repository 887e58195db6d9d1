"""Rows that are decoded together get what each gets alone."""

from collections.abc import Iterator, Sequence

from outrider.check.check import Case, Check, CheckFailedError, Make, hold
from outrider.check.leading import Lead, Pick
from outrider.check.targets import VOCABULARY, prompt, tiny_target
from outrider.draft.contract import DraftBatch
from outrider.draft.tree import ROOT, DraftTree

_PROMPTS = ([4, 5, 6] * 5, prompt(3, 1) * 2, prompt(17, 2))


def checks() -> Iterator[Check]:
    """Yield the checks."""
    yield Check(
        "batch-rows",
        "batch",
        "rows get the trees that they get alone, with ragged acceptance and when one of them ends early (C12)",
        _rows,
    )
    yield Check(
        "batch-order",
        "batch",
        "trees come in the order of the batch, whichever rows ask and in whatever order (C12)",
        _order,
    )


def _ragged(row: int, step: int) -> Pick:
    def pick(tree: DraftTree) -> int:
        node = ROOT
        for _ in range((row + step) % 3):
            below = tree.children(node)
            node = below[0] if below else node
        return node

    return pick


def _bonus(row: int, step: int) -> int:
    prompt_ids: Sequence[int] = _PROMPTS[row % len(_PROMPTS)]
    return prompt_ids[step % len(prompt_ids)] if step % 2 else (5 * step + row) % VOCABULARY


def _rows(make: Make) -> None:
    target = tiny_target()

    def run(case: Case) -> None:
        alone = []
        for at, ids in enumerate(_PROMPTS):
            with Lead(target, make(target.info), [ids]) as lead:
                lead.start([ids[0]])
                alone.append([lead.step([_ragged(at, step)], [_bonus(at, step)])[0] for step in range(case.count)])
        live = list(range(len(_PROMPTS)))
        with Lead(target, make(target.info), _PROMPTS) as lead:
            lead.start([ids[0] for ids in _PROMPTS])
            for step in range(case.count):
                if step == 3:
                    lead.leave(1)
                    live.remove(1)
                trees = lead.step([_ragged(at, step) for at in live], [_bonus(at, step) for at in live])
                for at, tree in zip(live, trees, strict=True):
                    if tree != alone[at][step]:
                        raise CheckFailedError(f"row {at} of {len(live)} gets another tree in step {step} than alone")

    hold(Case(tuple(_PROMPTS[0]), 6, "with two other rows"), run)


def _order(make: Make) -> None:
    expected = [_asked(make, (at,))[0] for at in range(len(_PROMPTS))]
    for order in ((0, 1, 2), (2, 1, 0), (1, 2), (2, 0)):
        if _asked(make, order) != [expected[at] for at in order]:
            raise CheckFailedError(
                f"asked for rows in the order {list(order)}, the drafter gave other trees than one by one; smallest input: "
                f"rows of {', '.join(str(len(_PROMPTS[at])) for at in order)} ids"
            )


def _asked(make: Make, order: Sequence[int]) -> list[DraftTree]:
    target = tiny_target()
    with Lead(target, make(target.info), _PROMPTS) as lead:
        lead.start([ids[0] for ids in _PROMPTS])
        views = lead.views()
        return lead.guard.propose(DraftBatch(tuple(views[at] for at in order)))[1]
