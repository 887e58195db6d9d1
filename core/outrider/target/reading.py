"""Rows that are read together by a drafter's own model: in one cache under tree masks, or one by one."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from outrider.draft.batch import TreeBatch
from outrider.draft.tree import ROOT, DraftTree
from outrider.errors import ModelError
from outrider.target.branches import Branches
from outrider.target.cache import RowCache
from outrider.target.groups import Group
from outrider.target.masked import MaskedTier
from outrider.target.model import PREFILL_CHUNK, Target
from outrider.target.tier import Opening

KeysValues = Sequence[tuple[torch.Tensor, torch.Tensor]]
"""For every layer keys and values `[heads, ids, width]`."""

Given = tuple[int, Sequence[int], KeysValues]
"""Where ids begin in a row's text, the ids, and what was computed of them."""


class TextGroup(Group[Sequence[int]], Protocol):
    """A group that reads texts, and may be given what another model has computed of them."""

    def extend(self, given: Sequence[Given | None]) -> None:
        """Take over keys and values; None for a row that gets none."""
        ...


class TreeGroup:
    """Rows in one cache, whose guesses are trees; read and guessed in one forward for all.

    Args:
        tier: of the model that reads.
        rows: how many.
        vocab: ids that it knows.
    """

    def __init__(self, tier: MaskedTier, rows: int, vocab: int) -> None:
        self._tier, self._last = tier, vocab - 1
        self._cache: RowCache = tier.open(rows, Opening())
        self._texts: list[list[int]] = [[] for _ in range(rows)]
        self._sure = [0] * rows
        self._clear()

    @property
    def rows(self) -> int:
        """See `Group`."""
        return len(self._texts)

    def _clear(self) -> None:
        self._guesses: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._branches = Branches(self.rows, self._tier.device)
        self._chain = True

    def read(self, items: Sequence[Sequence[int] | None]) -> torch.Tensor:
        """See `Group`; what is given back for rows that sit out means nothing."""
        self._settle(items)
        fed = [
            [] if text is None else [min(token, self._last) for token in text[len(held) :]]
            for text, held in zip(items, self._texts, strict=True)
        ]
        for held, text, new in zip(self._texts, items, fed, strict=True):
            held += [] if text is None else text[len(text) - len(new) :]
        self._sure = [len(held) for held in self._texts]
        logits: list[torch.Tensor | None] = [None] * self.rows
        for pieces in self._tier.read(self._cache, fed, PREFILL_CHUNK):
            for piece in pieces:
                logits[piece.row] = piece.scored.logits[0, -1]
        known = next(one for one in logits if one is not None)
        return torch.stack([known if one is None else one for one in logits])

    def guess(self, tokens: torch.Tensor, parents: torch.Tensor | None) -> torch.Tensor:
        """See `Group`."""
        self._chain = self._chain and parents is None
        parents, sees = self._branches.grow(tokens, parents)
        self._guesses.append((tokens, parents))
        unmasked = self._chain and self._cache.solid
        return self._tier.grow(self._cache, tokens.clamp(max=self._last), None if unmasked else sees).logits

    def extend(self, given: Sequence[Given | None]) -> None:
        """See `Group`."""
        self._cache.keep(len(self._cache) - len(self._branches), [[]] * self.rows)
        self._clear()
        given = [
            one if one is not None and one[0] <= len(held) else None
            for one, held in zip(given, self._texts, strict=True)
        ]
        self._shorten([len(held) if one is None else one[0] for one, held in zip(given, self._texts, strict=True)])
        some = next((one[2] for one in given if one is not None), None)
        if some is None:
            return
        counts = [0 if one is None else len(one[1]) for one in given]
        empty = [tuple(states[:, :0] for states in layer) for layer in some]
        layers = [
            tuple(
                torch.stack([_left_padded(states, max(counts)) for states in part]) for part in zip(*rows, strict=True)
            )
            for rows in zip(*[empty if one is None else one[2] for one in given], strict=True)
        ]
        self._cache.extend(layers, counts)  # type: ignore[arg-type]
        for held, one in zip(self._texts, given, strict=True):
            held += () if one is None else one[1]
        self._sure = [len(held) for held in self._texts]

    def forget(self, at: int, length: int) -> None:
        """See `Group`."""
        self._sure[at] = min(self._sure[at], length)

    def select(self, kept: Sequence[int]) -> None:
        """See `Group`."""
        self._settle([None] * self.rows)
        self._tier.select(self._cache, kept)
        self._texts, self._sure = [self._texts[at] for at in kept], [self._sure[at] for at in kept]

    def _settle(self, texts: Sequence[Sequence[int] | None]) -> None:
        """Keep the guesses that came true, drop the others and what texts no longer begin with."""
        if self._guesses:
            tokens, parents = (torch.cat(part, 1).tolist() for part in zip(*self._guesses, strict=True))
            paths = [
                [] if text is None or sure < len(held) else _came_true(text[len(held) : -1], own, below)
                for text, held, sure, own, below in zip(texts, self._texts, self._sure, tokens, parents, strict=True)
            ]
            self._cache.keep(len(self._cache) - len(self._branches), paths)
            for held, path, own in zip(self._texts, paths, tokens, strict=True):
                held += [own[node] for node in path]
        self._clear()
        keep = [
            len(held) if text is None else _agreement(held, text, sure)
            for held, text, sure in zip(self._texts, texts, self._sure, strict=True)
        ]
        self._shorten(keep)

    def _shorten(self, keep: Sequence[int]) -> None:
        if list(keep) != [len(held) for held in self._texts]:
            if not self._cache.shorten(keep):
                keep, self._cache = [0], self._tier.open(1, Opening())
            self._texts = [held[:length] for held, length in zip(self._texts, keep, strict=True)]


class ChainGroup:
    """One row of a model that masks no trees; its guesses are a chain.

    Args:
        model: what reads.
    """

    rows = 1

    def __init__(self, model: Target) -> None:
        self._model = model
        self._cache: Any = model.open(1)
        self._ids: list[int] = []
        self._sure = 0
        self._last = model.info.vocab_size - 1

    def read(self, items: Sequence[Sequence[int] | None]) -> torch.Tensor:
        """See `Group`."""
        (text,) = items
        assert text is not None  # noqa: S101  a group of one row is asked only for that row
        kept = _agreement(self._ids, text, self._sure)
        if not self._model.tier.truncate(self._cache, kept):
            kept, self._cache = 0, self._model.open(1)
        new = list(text[kept:])
        self._ids[kept:], self._sure = new, len(text)
        return self._model.prefill(self._cache, [[min(token, self._last) for token in new]])

    def guess(self, tokens: torch.Tensor, parents: torch.Tensor | None) -> torch.Tensor:
        """See `Follower`.

        Raises:
            ModelError: the guesses branch.
        """
        if tokens.shape[1] != 1 or parents is not None:
            raise ModelError(f"{type(self._model.model).__name__} masks no trees, so its guesses are chains")
        token = int(tokens[0, 0])
        logits = self._model.forward(self._cache, [min(token, self._last)], TreeBatch.pack([DraftTree()])).logits
        self._model.commit(self._cache, 0, [[]])
        self._ids.append(token)
        return logits

    def extend(self, given: Sequence[Given | None]) -> None:
        """See `Follower`.

        Raises:
            ModelError: always.
        """
        name = type(self._model.model).__name__
        raise ModelError(f"{name} keeps no cache that could take over the keys and values of {len(given)} rows")

    def forget(self, at: int, length: int) -> None:  # noqa: ARG002
        """See `Group`."""
        self._sure = min(self._sure, length)

    def select(self, kept: Sequence[int]) -> None:
        """See `Group`; a group of one row is kept as it is."""


def _agreement(held: Sequence[int], text: Sequence[int], sure: int) -> int:
    """Return how many ids of a text need not be read: all but the last at most; the first `sure` are known to agree."""
    same = min(sure, len(held), len(text))
    while same < min(len(held), len(text)) and held[same] == text[same]:
        same += 1
    return min(same, len(text) - 1)


def _came_true(text: Sequence[int], tokens: Sequence[int], parents: Sequence[int]) -> list[int]:
    """Return the path of guesses that the text went on as."""
    path: list[int] = []
    for token in text:
        last = path[-1] if path else ROOT
        found = next(
            (node for node, below in enumerate(parents) if below == last and tokens[node] == token and node > last),
            None,
        )
        if found is None:
            break
        path.append(found)
    return path


def _left_padded(states: torch.Tensor, longest: int) -> torch.Tensor:
    return torch.nn.functional.pad(states, (0, 0, longest - states.shape[1], 0))
