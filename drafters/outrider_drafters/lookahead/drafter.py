"""The drafter `lookahead`: the model's own parallel guesses, collected as n-grams and verified in the same forward.

Lookahead Decoding (Fu et al. 2024). Needs no other model: a window of guesses rides along in every forward, and the n-grams
that come out of it are proposed when their first token comes up.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Self

from pydantic import Field, model_validator

from outrider import (
    MAX_NODES,
    Capabilities,
    DrafterOptions,
    DraftTree,
    DraftView,
    Needs,
    Outcome,
    OutcomeBatch,
    RowDrafter,
    RowStart,
    TargetInfo,
    hookimpl,
)
from outrider_drafters.lookahead.window import Window


class LookaheadOptions(DrafterOptions):
    """Options of `lookahead`."""

    window: int = Field(default=7, ge=2, le=60, description="columns of the window, W")
    ngram: int = Field(default=5, ge=3, le=16, description="tokens of an n-gram, N")
    guesses: int = Field(default=7, ge=1, le=60, description="most n-grams that are verified in a step, G")
    pool: int = Field(default=20_000, ge=1, description="most n-grams that are kept for a row")
    prompt: bool = Field(default=True, description="also collect the prompt's and the text's own n-grams")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        scouts = self.window - 1 + self.window * (self.ngram - 2)
        if scouts + self.ngram - 1 > MAX_NODES:
            raise ValueError(
                f"window = {self.window} with ngram = {self.ngram} needs {scouts} nodes for the window alone; "
                f"a step has {MAX_NODES}"
            )
        return self


class Pool:
    """N-grams by their first token, the latest last; the oldest are dropped.

    Args:
        of_one: most n-grams of one first token, G.
        in_all: most n-grams.
    """

    def __init__(self, of_one: int, in_all: int) -> None:
        self._of_one, self._in_all = of_one, in_all
        self._grams: OrderedDict[tuple[int, ...], None] = OrderedDict()
        self._by_first: dict[int, OrderedDict[tuple[int, ...], None]] = {}

    def __len__(self) -> int:
        return len(self._grams)

    def add(self, grams: Iterable[tuple[int, ...]]) -> None:
        """Take in n-grams; one that is known becomes the latest."""
        for gram in grams:
            same = self._by_first.setdefault(gram[0], OrderedDict())
            self._put(same, gram)
            self._put(self._grams, gram)
            if len(same) > self._of_one:
                self._drop(next(iter(same)))
            if len(self._grams) > self._in_all:
                self._drop(next(iter(self._grams)))

    def after(self, token: int) -> list[tuple[int, ...]]:
        """Return how the n-grams that begin with a token go on, the latest first."""
        return [gram[1:] for gram in reversed(self._by_first.get(token, ()))]

    @staticmethod
    def _put(grams: OrderedDict[tuple[int, ...], None], gram: tuple[int, ...]) -> None:
        grams[gram] = None
        grams.move_to_end(gram)

    def _drop(self, gram: tuple[int, ...]) -> None:
        del self._grams[gram]
        same = self._by_first[gram[0]]
        del same[gram]
        if not same:
            del self._by_first[gram[0]]


class Row:
    """What the drafter holds of one row."""

    def __init__(self, start: RowStart, options: LookaheadOptions) -> None:
        self.ids, self.options = start.ids, options
        self.window = Window(start.ids[:], options.window, options.ngram, start.seed)
        self.pool = Pool(options.guesses, options.pool)
        self._taken = 0
        self.collect()

    def collect(self) -> None:
        """Take in the text's own n-grams that are new."""
        size = self.options.ngram
        if self.options.prompt:
            first = max(0, self._taken - size + 1)
            text = self.ids[first:]
            self.pool.add(tuple(text[at : at + size]) for at in range(len(text) - size + 1))
        self._taken = len(self.ids)

    def forget(self, length: int) -> None:
        """Go on from a text's first `length` ids; n-grams that were collected stay, since they are guesses anyway."""
        self._taken = min(self._taken, length)
        self.collect()

    def observe(self, outcome: Outcome) -> None:
        """Take in what the model said after the window's newest level, if the window rode along."""
        if outcome.tree.scouts and outcome.features is not None and outcome.features.logits is not None:
            first = outcome.tree.candidates + 1
            newest = [first + node for node in self.window.newest()]
            said = outcome.features.logits[newest].argmax(-1).tolist()
            root = outcome.ids[len(outcome.ids) - len(outcome.tokens) - 1]
            self.pool.add(self.window.advance(root, said))
        self.collect()


class Lookahead(RowDrafter[LookaheadOptions]):
    """Proposes n-grams that the model itself wrote in a window of parallel guesses."""

    name: ClassVar[str] = "lookahead"
    requires_api: ClassVar[tuple[int, int]] = (0, 1)
    Options: ClassVar[type[DrafterOptions]] = LookaheadOptions
    weighs_nodes: ClassVar[bool] = True  # a window that is cut short is none
    capabilities: ClassVar[Capabilities] = Capabilities(trees=True, scouts=True)
    expected_failures: Mapping[str, str] = MappingProxyType(
        dict.fromkeys(
            ("accepted-trunk", "accepted-side-branch"), "the window moves with every step, whatever it brings"
        )
        | {"truncate": "n-grams that were collected stay, since they are guesses anyway"}
    )

    def __init__(self, target: TargetInfo, options: LookaheadOptions) -> None:
        super().__init__(target, options)
        self._rows: dict[int, Row] = {}

    def needs(self) -> Needs:
        """Ask for the logits, which are what the window is filled with."""
        return Needs(logits=True)

    def begin(self, rows: Sequence[RowStart]) -> None:
        """Fill the first level from the prompts."""
        for start in rows:
            self._rows[start.row] = Row(start, self.options)

    def observe(self, batch: OutcomeBatch) -> None:
        """Move the windows on."""
        for outcome in batch.rows:
            if outcome.tokens:
                self._rows[outcome.row].observe(outcome)

    def truncate(self, row: int, length: int) -> None:
        """Go on from the first `length` ids."""
        self._rows[row].forget(length)

    def end(self, rows: Sequence[int]) -> None:
        """Drop the rows."""
        for row in rows:
            self._rows.pop(row, None)

    def propose_row(self, view: DraftView) -> DraftTree:
        """Propose what the pool knows of the current token, with the window as scouts below it."""
        row = self._rows[view.row]
        tokens, parents = row.window.nodes()
        rode = row.window.longest <= view.max_depth and len(tokens) < view.max_nodes
        room = view.max_nodes - (len(tokens) if rode else 0)
        tree = _guesses(row.pool.after(view.ids[-1]), room, view.max_depth)
        if not rode:
            return tree
        size = len(tree)
        below = [parent if parent < 0 else parent + size for parent in parents]
        scouts = frozenset(range(size, size + len(tokens)))
        return DraftTree((*tree.tokens, *tokens), (*tree.parents, *below), scouts=scouts)


def _guesses(paths: Sequence[tuple[int, ...]], room: int, depth: int) -> DraftTree:
    """Merge as many continuations as there is room for."""
    tree = DraftTree()
    for count in range(1, len(paths) + 1):
        more = DraftTree.from_paths(path[:depth] for path in paths[:count])
        if len(more) > room:
            break
        tree = more
    return tree


@hookimpl
def register_drafters(register):  # type: ignore[no-untyped-def]
    """Register `lookahead`."""
    register(Lookahead)
