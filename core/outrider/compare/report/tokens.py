"""What the token view shows: every run's text, step by step, packed small.

Rows that are lossless have the same texts, repeats often the same steps, so texts, tokens and drafts are kept once and named by
number. All of it is compressed: hundreds of prompts by a dozen rows come to a few megabytes.
"""

import base64
import gzip
import json
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from outrider.compare.report.visible import visible, visible_piece
from outrider.compare.result import Comparison, Prompt, Steps

NOT_TOLD: Final = "▯"
"""Stands for a token that completes no character."""
_LEVEL: Final = 4  # under a third of the default's time for 7 % more bytes


@dataclass(slots=True)
class _Numbered:
    """Things by number, each kept once."""

    known: dict[Hashable, int] = field(default_factory=dict)

    def number(self, thing: Hashable) -> int:
        return self.known.setdefault(thing, len(self.known))

    @property
    def things(self) -> list[Any]:
        return list(self.known)


def packed(comparison: Comparison) -> str:
    """Return what the token view reads: JSON, compressed by gzip, in base64."""
    text = json.dumps(token_data(comparison), separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode("ascii"), compresslevel=_LEVEL, mtime=0)).decode("ascii")


def token_data(comparison: Comparison) -> dict[str, Any]:
    """Return the runs as the token view reads them.

    Its keys: `tokens`, pairs of an id and its text as it is shown; `texts`, lists of numbers of tokens; `drafts`, what drafts
    would have said; `prompts`; `rows`, names; and `runs`. A run has the numbers of its row, prompt, repeat and text, how many
    tokens came from the prefill, columns of its steps (emitted, accepted, drafted, paused, the draft's text, microseconds), and
    its partings; columns that are not known are empty.
    """
    texts, drafts = _Numbered(), _Numbered()
    prompts = {one.index: at for at, one in enumerate(comparison.prompts)}
    rows = {one.name: at for at, one in enumerate(comparison.rows)}
    runs = [
        {
            "row": rows[one.row],
            "prompt": prompts[one.prompt],
            "repeat": one.repeat,
            "text": texts.number((one.token_ids, one.pieces)),
            "prefill": one.prefill_tokens,
            "emitted": one.steps.emitted,
            "accepted": one.steps.accepted,
            "drafted": one.steps.drafted,
            "paused": one.steps.paused if any(one.steps.paused) else (),
            "draft": [drafts.number(said) for said in _drafts(one.steps)],
            "micros": [round(seconds * 1e6) for seconds in one.steps.seconds],
            "partings": [[at.position, at.verdict, at.gap, at.plain_token] for at in one.partings or ()],
        }
        for one in comparison.runs
    ]
    tokens = _Numbered()
    numbered = [[tokens.number(pair) for pair in _pairs(*text)] for text in texts.things]
    return {
        "tokens": [(token, _shown(piece, token)) for token, piece in tokens.things],
        "texts": numbered,
        "drafts": [visible_piece(said, breaks=False) for said in drafts.things],
        "prompts": [_prompt(one) for one in comparison.prompts],
        "rows": [visible(one.name) for one in comparison.rows],
        "runs": runs,
    }


def _pairs(token_ids: Sequence[int], pieces: Sequence[str]) -> Iterable[tuple[int, str | None]]:
    """Return ids with their texts; None where there is no tokenizer."""
    return zip(token_ids, pieces, strict=True) if pieces else ((token, None) for token in token_ids)


def _shown(piece: str | None, token: int) -> str:
    return f"{token} " if piece is None else visible_piece(piece) or NOT_TOLD


def _drafts(steps: Steps) -> list[str]:
    """Return what the draft would have said from where it was left; ids where there is no tokenizer."""
    texts = zip(steps.rejected, steps.rejected_text, strict=True)
    return [text or " ".join(map(str, ids)) for ids, text in texts]


def _prompt(one: Prompt) -> dict[str, Any]:
    return {
        "name": visible(one.name),
        "category": visible(one.category),
        "tokens": one.tokens,
        "text": None if one.text is None else visible(one.text),
    }
