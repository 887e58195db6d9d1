"""The two-dimensional window of lookahead decoding: Jacobi iterations of several future positions side by side.

Lookahead Decoding (Fu et al. 2024, section 3). Level 0 is a chain of guesses after the current token; row j of level l is what
the model made, l steps ago and since then, of column j's continuation. A column read downwards is an n-gram that the model
itself wrote.
"""

from collections.abc import Iterator, Sequence
from random import Random

from outrider import ROOT


class Window:
    """The window of one row.

    Args:
        tokens: that the first guesses are drawn from.
        window: columns, W.
        ngram: tokens of an n-gram, N; the window has N - 1 levels.
        seed: of the first guesses.
    """

    def __init__(self, tokens: Sequence[int], window: int, ngram: int, seed: int) -> None:
        self._depth = ngram - 1
        self._levels = [Random(seed).choices(list(tokens), k=window + ngram - 3)]

    @property
    def full(self) -> bool:
        """Whether all levels are there; before that a step adds one."""
        return len(self._levels) == self._depth

    @property
    def longest(self) -> int:
        """How far below the root the deepest guess hangs."""
        return len(self._levels[0]) + len(self._levels)

    def nodes(self) -> tuple[list[int], list[int]]:
        """Return the guesses as tokens and parents, the root's children at `ROOT`.

        Level 0 hangs from the root as a chain; row j of level 1 from column j, which is the root for j = 0; row j of a further
        level from row j of the level before.
        """
        chain = self._levels[0]
        tokens, parents = list(chain), list(range(ROOT, len(chain) - 1))
        above = [ROOT, *range(len(chain))]
        for level in self._levels[1:]:
            above = above[: len(level)]
            parents += above
            above = list(range(len(tokens), len(tokens) + len(level)))
            tokens += level
        return tokens, parents

    def newest(self) -> range:
        """Return which of `nodes` are of the newest level; what the model says after them goes to `advance`."""
        total = sum(map(len, self._levels))
        return range(total - len(self._levels[-1]), total)

    def advance(self, root: int, said: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Take in what the model says after the newest level and move one column on; yield the n-grams of a full window.

        Args:
            root: the current token of the step, column 0.
            said: a token for each of `newest`.
        """
        levels = self._levels
        if self.full:
            columns = [root, *levels[0]]
            yield from zip(columns, *levels[1:], said, strict=True)
            self._levels = [levels[1][1:], *levels[2:], list(said)]
        else:
            fresh = list(said) if len(levels) == 1 else list(said)[1:]
            self._levels = [*[level[1:] for level in levels], fresh]
