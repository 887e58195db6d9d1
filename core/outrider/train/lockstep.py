"""Many rows decoded together, all at the same position, so that no mask and no padding is needed.

A row that has more text given than the others is fed it token by token while they draw theirs. This is for making text in
bulk, where no draft pays: the batch uses the machine's spare arithmetic itself.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from outrider.target.cache import RowCache
from outrider.target.call import Caller
from outrider.target.model import Target

_CANDIDATES = 64


class Line(Protocol):
    """A row that is written.

    Attributes:
        given: ids that come before the next draw, first ones first; never empty before the first.
        temperature: of the next draw; 0 is greedy.
        done: whether it needs no more tokens.
    """

    given: list[int]
    done: bool

    @property
    def temperature(self) -> float:
        """See the class."""
        ...

    def take(self, token: int) -> None:
        """Take in a token that was drawn."""
        ...


def write(target: Target, lines: Sequence[Line], seed: int, tick: Callable[[int], None] | None = None) -> None:
    """Decode until every line is done.

    Args:
        target: whose text it is.
        lines: at least one, each with ids given.
        seed: of the draws; the same lines and seed give the same text on the same machine.
        tick: where given, is told after every step how many tokens were drawn.
    """
    call, device = Caller(target.model), target.info.device
    noise = torch.Generator(device).manual_seed(seed)
    rows = list(lines)
    cache = RowCache(len(rows), 256, device)
    shared = min(len(line.given) for line in rows)
    ids = torch.tensor([line.given[:shared] for line in rows], device=device)
    for line in rows:
        del line.given[:shared]
    at = 0
    while rows:
        where = torch.arange(at, at + ids.shape[1], device=device).expand(len(rows), -1)
        logits = call(cache.layers, ids, where, last_only=True).logits[:, -1]
        cache.append(where)
        at += ids.shape[1]
        drawn = draw(logits, [line.temperature for line in rows], noise).tolist()
        if tick is not None:
            tick(sum(not line.given for line in rows))
        tokens = [_advance(line, token) for line, token in zip(rows, drawn, strict=True)]
        kept = [index for index, line in enumerate(rows) if not line.done]
        if len(kept) < len(rows) and kept:
            cache.lengths = [at] * len(rows)
            cache.select(kept)
        rows = [rows[index] for index in kept]
        ids = torch.tensor([[tokens[index]] for index in kept], device=device)


def draw(logits: torch.Tensor, temperatures: Sequence[float], noise: torch.Generator) -> torch.Tensor:
    """Draw a token a row among its likeliest.

    Args:
        logits: `[rows, vocab]`.
        temperatures: of every row; 0 takes the likeliest.
        noise: where the draws come from.

    Returns:
        `[rows]` int64.
    """
    best, ids = logits.float().topk(min(_CANDIDATES, logits.shape[1]), dim=1)
    heat = torch.tensor(temperatures, device=logits.device)[:, None]
    chances = (best / heat.clamp(min=1e-3)).softmax(1)
    found = torch.multinomial(chances, 1, generator=noise)
    return ids.gather(1, torch.where(heat > 0, found, 0))[:, 0]


def _advance(line: Line, drawn: int) -> int:
    """Give a line its next token, and return what is fed: a draw that ends a turn is fed as what follows the turn."""
    if not line.given:
        line.take(drawn)
    return line.given.pop(0) if line.given else drawn
