"""The lossless verdict: texts that are plain decoding's, or every parting explained."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from outrider.compare.conversations import Asking, Conversation
from outrider.compare.result import Comparison, Parting, Row, Verdict
from outrider.decode.explain import explain
from outrider.errors import OutriderError
from outrider.target.model import Target


def reference(comparison: Comparison) -> dict[int, tuple[int, ...]]:
    """Return plain decoding's text of every prompt, in batches of the first size."""
    plain = next((row.name for row in comparison.rows if row.kind == "plain"), None)
    return {one.prompt: one.token_ids for one in reversed(comparison.of(plain or ""))}


def incomparable(row: Row, *, sampled: bool) -> str:
    """Say why a row's texts are not plain decoding's own by any right; empty where they are to be the same."""
    if sampled and row.kind == "transformers":
        return "transformers draws with other random numbers"
    if sampled and row.rule not in ("match", ""):
        return f"under the rule {row.rule} the draft decides which text of the model's law comes out"
    return ""


def explained(comparison: Comparison, target: Target, asking: Asking, said: Sequence[Conversation]) -> Comparison:
    """Return the comparison with every text's partings from plain decoding.

    A text is asked about once, however often it came out.

    Args:
        comparison: as it was measured.
        target: the model.
        asking: puts prompts into ids.
        said: the conversations.
    """
    plain, settings = reference(comparison), comparison.settings
    rows = {row.name: row for row in comparison.rows}
    known: dict[tuple[int, tuple[int, ...]], tuple[Parting, ...] | None] = {}
    prompts = _Prompts(comparison, asking, said)
    found = []
    for run in comparison.runs:
        row = rows[run.row]
        if run.prompt not in plain or incomparable(row, sampled=comparison.settings.sampled):
            found.append(run)
            continue
        key = run.prompt, run.token_ids
        if run.token_ids == plain[run.prompt]:
            known[key] = ()
        elif key not in known:
            ids, options = prompts.ids(run.prompt), settings.generation
            known[key] = _partings(target, ids, run.token_ids, run.seed, options) or _partings(
                target, ids, plain[run.prompt], run.seed, options
            )  # in a batch it can be the other text that parts
        found.append(replace(run, partings=known[key]))
    return replace(comparison, runs=tuple(found))


def verdict(comparison: Comparison, row: Row) -> Verdict:
    """Return whether a row's texts are plain decoding's, from its runs' partings."""
    runs, plain = comparison.of(row.name), reference(comparison)
    if not plain:
        return Verdict(kind="not compared", detail="there is no plain decoding to compare with")
    if reason := incomparable(row, sampled=comparison.settings.sampled):
        return Verdict(kind="not compared", detail=reason)
    looked = [one for one in runs if one.prompt in plain]
    if not looked:
        return Verdict(kind="not compared", detail="it has no text")
    parted = [one for one in looked if one.token_ids != plain[one.prompt]]
    unexplained = sum(not one.partings for one in parted)
    partings = [parting for one in parted for parting in one.partings or ()]
    faults = sum(one.verdict == "fault" for one in partings) + unexplained
    kind: Any = "fault" if faults else "near ties" if parted else "identical"
    return Verdict(
        kind=kind,
        texts=len(looked),
        parted=len(parted),
        near_ties=len(partings) + unexplained - faults,
        faults=faults,
        detail=f"{unexplained} texts part where plain decoding does not" if unexplained else "",
    )


class _Prompts:
    """Every prompt's ids, worked out when they are asked for."""

    def __init__(self, comparison: Comparison, asking: Asking, said: Sequence[Conversation]) -> None:
        self._asking = asking
        self._of = {index: (one, turn) for one in said for turn, index in enumerate(one.indices)}
        self._answers: dict[int, str] = {}
        # As in the measurement: the first repeat's first row.
        order = {row.name: at for at, row in enumerate(comparison.rows)}
        for run in sorted(comparison.runs, key=lambda one: (one.repeat, order[one.row])):
            self._answers.setdefault(run.prompt, "".join(run.pieces))

    def ids(self, index: int) -> tuple[int, ...]:
        conversation, turn = self._of[index]
        answers = [self._answers.get(one, "") for one in conversation.indices[:turn]]
        return self._asking.task(conversation, turn, answers)[0].ids


def _partings(
    target: Target, ids: Sequence[int], tokens: Sequence[int], seed: int, options: Mapping[str, Any]
) -> tuple[Parting, ...] | None:
    try:
        found = explain(target, ids, tokens, seed, **options)
    except OutriderError:
        return None
    return tuple(
        Parting(
            position=one.position,
            token=one.token,
            plain_token=one.plain_token,
            gap=one.gap,
            verdict=one.verdict,
        )
        for one in found.partings
    )
