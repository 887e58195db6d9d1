"""Case S3: what a draft has in its cache after any acceptance is what a fresh drafter has, column by column."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import torch

from eagle_files import Files, eagle1, speculators
from outrider import DraftBatch, DraftTree, DraftView, Outcome, OutcomeBatch, RowStart, TokenView
from outrider.draft.features import Features
from outrider.target.branches import Branches
from outrider_drafters.eagle.drafter import Eagle, Eagle3, EagleOptions
from outrider_drafters.eagle.reader import EagleGroup, Pairs
from support import prompt_of, tiny_target

SLIDING = {"sliding_window": 4, "layer_types": ["full_attention", "sliding_attention", "sliding_attention"]}
METHODS: dict[str, tuple[Any, Callable[..., Files], dict[str, Any]]] = {
    "eagle": (Eagle, eagle1, {}),
    "eagle3": (Eagle3, speculators, {"layers": (0, 1, 2)}),
}
HEADS: dict[str, tuple[int, dict[str, Any]]] = {"one layer": (1, {}), "three layers": (3, {}), "sliding": (3, SLIDING)}
OUT: Final = None  # a step that a row sits out
ALL: Final = 16


def folder_of(method: str, heads: str, folder: Path) -> str:
    layers, more = HEADS[heads]
    files = METHODS[method][1](layers=layers)
    files.config.get("transformer_layer_config", files.config).update(more)
    return str(files.write(folder))


@dataclass(frozen=True, slots=True)
class Held:
    """What a draft's cache holds of a row: the columns' positions, and `[layers x 2, heads, columns, width]`."""

    positions: list[int]
    states: torch.Tensor

    @classmethod
    def of(cls, group: EagleGroup, at: int) -> "Held":
        positions, parts = group._cache.positions[at], group._cache.contents()
        filled = (positions >= 0).nonzero()[:, 0]
        columns = filled[positions[filled].argsort(stable=True)]
        return cls(positions[columns].tolist(), torch.stack([part[at][:, columns] for both in parts for part in both]))

    def apart(self, other: "Held") -> float:
        """The largest difference, or infinity where it holds other columns."""
        if self.positions != other.positions:
            return float("inf")
        return float((self.states - other.states).abs().max())


class Played:
    """A drafter whose trees are accepted as a script says, on the features of the target's own forward of the text."""

    def __init__(self, method: str, heads: str, texts: Sequence[list[int]], **options: Any) -> None:
        self.target = tiny_target(0, spread=0.15)
        made: Any = METHODS[method][0]
        played = self

        class Playing(made):  # type: ignore[misc]
            def _read(self, rows: Sequence[int]) -> torch.Tensor:
                logits: torch.Tensor = super()._read(rows)
                played.note()
                return logits

        self.drafter: Any = Playing(self.target.info, EagleOptions(heads=heads, **METHODS[method][2], **options))
        self.texts = {row: list(text) for row, text in enumerate(texts)}
        self.held: list[tuple[list[int], Held]] = []
        self.widths: list[int] = []
        self.accepted: list[int] = []
        self.read = dict.fromkeys(self.texts, 0)
        self.views = {row: TokenView(text) for row, text in self.texts.items()}
        self.drafter.begin([RowStart(row, self.views[row], 0) for row in self.texts])

    def note(self) -> None:
        """Keep what the cache holds of every row, with the text that the row was last read of."""
        for row in self.texts:
            self.read[row] = len(self.texts[row]) if not self.drafter._new[row] else self.read[row]
        for ids, group in self.drafter._rows._groups:
            self.widths.append(len(group._cache))
            self.held += [(self.texts[row][: self.read[row]], Held.of(group, at)) for at, row in enumerate(ids)]

    def observe(self, steps: dict[int, tuple[list[int], DraftTree, list[int]]]) -> None:
        outcomes = []
        for row, (tokens, tree, path) in steps.items():
            first = len(self.texts[row]) - 1 if self.read[row] else 0
            self.texts[row] += tokens
            self.views[row].grow(tokens)
            output = self.target.model(torch.tensor([self.texts[row][:-1]]), output_hidden_states=True)
            states = dict(enumerate(one[0, first:] for one in output.hidden_states))
            features = Features(states, tuple(range(len(self.texts[row]) - 1 - first)), first=first)
            wanted = features.only(self.drafter.needs())
            outcomes.append(Outcome(row, self.views[row], tuple(tokens), tree, tuple(path), wanted))
        self.drafter.observe(OutcomeBatch(tuple(outcomes)))

    def step(self, script: Sequence[int | None]) -> None:
        """Propose; accept so many tokens of a deepest path of each row's tree, and commit one that it does not hold."""
        rows = list(self.texts)
        depths = [0 if script[row] is OUT else ALL for row in rows]
        views = [DraftView(row, self.views[row], depth, 64) for row, depth in zip(rows, depths, strict=True)]
        trees = self.drafter.propose(DraftBatch(tuple(views))).unpack()
        steps = {}
        for row, tree in zip(rows, trees, strict=True):
            path = deepest(tree)[: script[row] or 0]
            self.accepted.append(len(path))
            tokens = [tree.tokens[node] for node in path]
            steps[row] = ([*tokens, (7 * len(self.texts[row]) + row) % 64], tree, path)
        self.observe(steps)

    def play(self, scripts: Sequence[Sequence[int | None]]) -> "Played":
        self.observe({row: ([5], DraftTree(), []) for row in self.texts})
        for script in scripts:
            self.step(script)
        self.drafter._read([row for row in self.texts if self.drafter._new[row]])
        return self


def deepest(tree: DraftTree) -> list[int]:
    """The last of the deepest paths, which is seldom what comes first."""
    depths = tree.depths()
    node = max(range(len(tree)), key=lambda one: (depths[one], one), default=-1)
    path: list[int] = []
    while node >= 0:
        path.insert(0, node)
        node = tree.parents[node]
    return path


def fresh(method: str, heads: str, text: list[int]) -> Held:
    """What a drafter holds that reads a text at once."""
    played = Played(method, heads, [text[:-1]])
    played.observe({0: (text[-1:], DraftTree(), [])})
    played.drafter._read([0])
    (_, held), *rest = played.held
    assert not rest
    assert held.positions == list(range(len(text) - 1))
    return held


PROMPTS = [prompt_of(9, 0), prompt_of(3, 1), prompt_of(17, 2)]
MANY: list[list[int | None]] = [
    [ALL, 0, 2],
    [0, ALL, OUT],
    [3, 1, ALL],
    [OUT, 2, 0],
    [1, OUT, OUT],
    [ALL, ALL, ALL],
    [0, 0, 0],
    [2, OUT, 5],
]
TURNS: list[list[int | None]] = [[ALL if step % 3 == row else 0 for row in range(3)] for step in range(36)]


@pytest.mark.parametrize("script", [MANY, TURNS], ids=["many lengths", "rows by turns"])
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("method", METHODS)
@torch.no_grad()
def test_keys_and_values_are_those_of_a_fresh_drafter(
    method: str, heads: str, script: list[list[int | None]], tmp_path: Path
) -> None:
    folder = folder_of(method, heads, tmp_path)
    played = Played(method, folder, PROMPTS).play(script)
    assert set(played.accepted) >= ({0, 1, 2, 3, 5} if script is MANY else {0, 5})
    # Rows that grow by turns leave holes, until they are moved together.
    assert any(after < before for before, after in pairwise(played.widths)) == (script is TURNS)
    whole = {row: fresh(method, folder, text) for row, text in played.texts.items()}
    assert len(played.held) == 3 * (len(script) + 1)
    for at, (text, held) in enumerate(played.held):
        count = len(text) - 1
        known = Held(list(range(count)), whole[at % 3].states[:, :, :count])
        assert held.apart(known) < 1e-10


@pytest.mark.parametrize("method", METHODS)
@torch.no_grad()
def test_so_they_are_when_other_rows_have_ended(method: str, tmp_path: Path) -> None:
    folder = folder_of(method, "three layers", tmp_path)
    played = Played(method, folder, PROMPTS).play(MANY)
    played.drafter.end([0])
    del played.texts[0]
    played.step([0, 4, 1])
    played.drafter._read(list(played.texts))
    for (text, held), whole in zip(played.held[-2:], played.texts.values(), strict=True):
        assert text == whole
        assert held.apart(fresh(method, folder, text)) < 1e-10


def keep_guesses(group: EagleGroup) -> None:
    """Forget that guesses were made, but not their columns."""
    group._branches, group._fed = Branches(group.rows, group._device), None


_read = EagleGroup.read


def trust_guesses(group: EagleGroup, items: Sequence[Pairs | None]) -> torch.Tensor:
    """Keep the columns of guesses that came true, which stand on the draft's own features; of chains."""
    new = [one for one in items if one is not None]
    true = [min(len(one.tokens) - 1, len(group._branches)) for one in new]
    group._cache.keep(len(group._cache) - len(group._branches), [range(count) for count in true])
    keep_guesses(group)
    kept = zip(new, true, strict=True)
    return _read(group, [Pairs(one.start + at, one.features[at:], one.tokens[at:]) for one, at in kept])


@pytest.mark.parametrize("method", METHODS)
@torch.no_grad()
def test_guessed_columns_are_told_from_the_target_s(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the tests above could not fail."""
    folder = folder_of(method, "one layer", tmp_path)

    def worst() -> float:
        played = Played(method, folder, PROMPTS, branching=1, nodes=5).play([[ALL, 0, 3], [2, 1, 0]])
        assert played.accepted == [5, 0, 3, 2, 1, 0]
        return max(held.apart(fresh(method, folder, text)) for text, held in played.held)

    assert worst() < 1e-10
    with monkeypatch.context() as patch:
        patch.setattr(EagleGroup, "_drop", keep_guesses)
        assert worst() == float("inf")
    with monkeypatch.context() as patch:
        patch.setattr(EagleGroup, "read", trust_guesses)
        assert 1e-2 < worst() < float("inf")
