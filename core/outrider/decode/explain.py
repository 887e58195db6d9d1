"""Why did the text part? Every position of an output is asked again of the plain path, and each parting is explained.

In half precision a forward of several rows rounds differently from one of a single row, so near ties can fall the other way.
How much the logits differ by that alone is measured on the same model and text; a parting that it can't account for is a fault.
Where a mask leaks a little, the gap can be as small as a near tie's; so trees are verified where the text parts, and other
tokens on a tree's other branches must not change a bit of a node's logits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch

from outrider.decode.request import Request, read_request
from outrider.draft.batch import TreeBatch
from outrider.draft.tree import ROOT, DraftTree
from outrider.errors import InputError, ModelError
from outrider.target.exactness import check_trees, is_half
from outrider.target.model import Target
from outrider.target.tier import Opening
from outrider.verify.sampling import NodeScores

ROWS: Final = 8
_IN_CONTENTION: Final = 10


@dataclass(frozen=True, slots=True)
class Parting:
    """A position where plain decoding, after the same text, draws another token.

    Args:
        position: index among the new tokens.
        token: what was emitted.
        plain_token: what plain decoding draws.
        gap: how much better the plain token's score is, noise included; None where a filter removes the emitted one.
        verdict: `near tie` where rounding accounts for it and trees are verified exactly at this place, else `fault`.
    """

    position: int
    token: int
    plain_token: int
    gap: float | None
    verdict: Literal["near tie", "fault"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """What was found.

    Args:
        partings: in order.
        positions: how many new tokens were asked again.
        logit_difference: the largest difference that the number of rows alone makes, on this model and text, to the logit of
            a token in contention: one of the ten best at its position, noise included. Others differ more and decide nothing.
        allowed_gap: twice that, over the temperature: what rounding can bridge.
    """

    partings: tuple[Parting, ...]
    positions: int
    logit_difference: float
    allowed_gap: float

    @property
    def faults(self) -> tuple[Parting, ...]:
        """The partings that rounding can't account for."""
        return tuple(parting for parting in self.partings if parting.verdict == "fault")


@torch.no_grad()
def explain(target: Target, prompt: Sequence[int], tokens: Sequence[int], seed: int, **options: Any) -> Explanation:
    """Ask plain decoding for every token of an output again, after the text as it was emitted.

    Args:
        target: the model.
        prompt: the prompt's ids.
        tokens: the new ids.
        seed: that the result reported.
        **options: those of the generation.

    Raises:
        InputError: nothing was emitted, or the rule was one whose text is not plain decoding's.
    """
    request = read_request(target, prompt, options | {"seed": seed})
    if not tokens:
        raise InputError("there are no tokens to explain")
    if request.sampler.rule != "match" and request.sampler.decisions is not None:
        raise InputError(
            f"under the rule {request.sampler.rule} a text is not plain decoding's, so there is nothing to explain"
        )
    prompt = request.ids
    plain = _logits(target, prompt, tokens, 1, request.context)
    rows = _logits(target, prompt, tokens, ROWS, request.context)
    drawing = [_perturbed(request, row, [*prompt, *tokens[:position]]) for position, row in enumerate(plain)]
    best = torch.stack([one.topk(min(_IN_CONTENTION, len(one))).indices for one in drawing])
    difference = float((plain - rows).abs().gather(-1, best).max())
    allowed = 2 * difference / _temperature(request)
    found = []
    for position, token in enumerate(tokens):
        ids, perturbed = [*prompt, *tokens[:position]], drawing[position]
        drawn = int(perturbed.argmax())
        if drawn == token:
            continue
        gap: float | None = float(perturbed[drawn] - perturbed[token])
        near = gap is not None and gap <= allowed
        if gap == float("inf"):  # a filter's border moved, if the rows' own scores keep the token
            gap, near = None, bool(torch.isfinite(_perturbed(request, rows[position], ids)[token]))
        near = near and _trees_hold(target, ids)
        found.append(Parting(position, token, drawn, gap, "near tie" if near else "fault"))
    return Explanation(tuple(found), len(tokens), difference, allowed)


def _trees_hold(target: Target, ids: Sequence[int]) -> bool:
    """Say whether trees after this context are verified exactly, which a gap can't tell."""
    if len(ids) == 1:  # nothing was committed before it, so no tree hung there
        return True
    most = 0 if is_half(target) else 1  # in half precision a path alone says little about a single place
    try:
        check_trees(target, ids, most=most)
    except ModelError:
        return False
    return True


def _logits(
    target: Target, prompt: Sequence[int], tokens: Sequence[int], rows: int, context: Mapping[str, Any]
) -> torch.Tensor:
    """Return the logits that lead to every token `[tokens, vocab]`, with forwards of `rows` rows after the prefill."""
    ids = [*prompt, *tokens]
    cache = target.open(1, Opening(len(ids) + rows, contexts=[context]))
    found = [target.prefill(cache, [prompt])]
    start = len(prompt)
    while start < len(ids) - 1:
        chain = DraftTree.chain(ids[start + 1 : min(start + rows, len(ids) - 1)])
        found.append(target.forward(cache, [ids[start]], TreeBatch.pack([chain])).logits[0])
        target.commit(cache, len(chain), [range(len(chain))])
        start += 1 + len(chain)
    return torch.cat(found).float()


def _perturbed(request: Request, logits: torch.Tensor, ids: Sequence[int]) -> torch.Tensor:
    """Return what the target's draw is the argmax of, `[vocab]` float64."""
    scores = NodeScores(request.sampler.processors, logits[None], DraftTree(), ids)(ROOT).double()
    if request.sampler.decisions is None:
        return scores
    noise = request.sampler.decisions.noise(len(ids), torch.arange(len(scores), device=scores.device))
    return scores if noise is None else scores + noise


def _temperature(request: Request) -> float:
    values = [getattr(one, "temperature", None) for one in request.sampler.processors.chain]
    return next((value for value in values if value), 1.0)
