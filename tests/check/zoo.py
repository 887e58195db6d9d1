"""Drafters that are wrong, each in one way that was seen in published decoders or could be, and the right ones behind them."""

import random
from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from outrider import (
    DraftBatch,
    DrafterOptions,
    DraftTree,
    DraftView,
    Needs,
    Outcome,
    OutcomeBatch,
    RowDrafter,
    RowStart,
    TargetInfo,
    TreeBatch,
)
from outrider.draft.contract import API
from outrider.draft.laws import DraftLaws


class Copies(RowDrafter[DrafterOptions]):
    """Right: copies what followed the last token before."""

    name: ClassVar[str] = "copies"
    requires_api: ClassVar[tuple[int, int]] = API

    def __init__(self, target: TargetInfo) -> None:
        super().__init__(target, DrafterOptions())

    def propose_row(self, view: DraftView) -> DraftTree:
        return self.chain(view, self.found(list(view.ids)))

    def found(self, ids: Sequence[int]) -> Sequence[int]:
        places = [place for place in range(len(ids) - 1) if ids[place] == ids[-1]]
        return ids[places[-1] + 1 :] if places else []

    def chain(self, view: DraftView, tokens: Sequence[int]) -> DraftTree:
        return DraftTree.chain(tokens[: min(4, view.max_depth, view.max_nodes)])


class Draws(Copies):
    """Right: draws from a law that hangs on the last token, or chooses by it and the target's noise."""

    siblings: ClassVar[int] = 1

    def logits(self, token: int) -> torch.Tensor:
        return 2 * torch.sin(torch.arange(self.target.vocab_size) * (token + 1.7) + token)[None]

    def propose_row(self, view: DraftView) -> DraftTree:
        if view.wants_q:
            return self.drawn(view)
        ids, coupled = torch.arange(self.target.vocab_size), False
        tokens, last = list[int](), view.ids[-1]
        for depth in range(1, min(3, view.max_depth, view.max_nodes) + 1):
            scores, noise = view.law(self.logits(last))[0].double().log(), view.noise(depth, ids)
            coupled = noise is not None
            last = int((scores if noise is None else scores + noise).argmax())
            tokens.append(last)
        return DraftTree(tuple(tokens), tuple(range(-1, len(tokens) - 1)), coupled=coupled and bool(tokens))

    def drawn(self, view: DraftView) -> DraftTree:
        tokens, parents, q_rows = list[int](), list[int](), list[int]()
        laws, node, last = list[torch.Tensor](), -1, view.ids[-1]
        for depth in range(min(3, view.max_depth)):
            law = view.law(self.logits(last))[0].double()
            count = min(self.siblings, view.max_nodes - len(tokens))
            chosen = self.draw(view, law / law.sum(), count, depth) if count > 0 else []
            if not chosen:
                break
            q_rows += [depth] * len(chosen)
            laws.append(self.declared(view, law / law.sum(), self.logits(last)[0].double()))
            parents += [node] * len(chosen)
            node, last = len(tokens), chosen[0]
            tokens += chosen
        return (
            DraftTree(tuple(tokens), tuple(parents), tuple(q_rows), DraftLaws(torch.stack(laws)))
            if tokens
            else DraftTree()
        )

    def draw(self, view: DraftView, law: torch.Tensor, count: int, depth: int) -> list[int]:
        return view.draw(law, count, depth + 1)

    def declared(self, view: DraftView, law: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        return law


class Fans(Draws):
    """Right: three siblings at every level, of which the first goes on."""

    siblings: ClassVar[int] = 3


class Branches(Copies):
    """Right: two continuations of two tokens each, computed from a text of its own keeping."""

    def __init__(self, target: TargetInfo) -> None:
        super().__init__(target)
        self.text: dict[int, list[int]] = {}

    def begin(self, rows: Sequence[RowStart]) -> None:
        self.text |= {start.row: list(start.ids) for start in rows}

    def observe(self, batch: OutcomeBatch) -> None:
        for outcome in batch.rows:
            self.text[outcome.row] += self.kept(outcome)

    def kept(self, outcome: Outcome) -> Sequence[int]:
        return outcome.tokens

    def truncate(self, row: int, length: int) -> None:
        raise NotImplementedError

    def end(self, rows: Sequence[int]) -> None:
        for row in rows:
            self.text.pop(row, None)

    def propose_row(self, view: DraftView) -> DraftTree:
        size, seen = self.target.vocab_size, self.text[view.row]
        one = (sum(seen[-5:]) + len(seen)) % size
        tree = DraftTree((one, (one + 3) % size, (one + 1) % size, (one + 2) % size), (-1, 0, -1, 2))
        kept = [node for node, depth in enumerate(tree.depths()) if depth <= view.max_depth][: view.max_nodes]
        return tree.keep(kept)


class Keeps(Branches):
    """Right: keeps a text of its own, and takes it back where it has to."""

    def truncate(self, row: int, length: int) -> None:
        del self.text[row][length:]
        self.shorter.add(row)

    def __init__(self, target: TargetInfo) -> None:
        super().__init__(target)
        self.shorter: set[int] = set()

    def propose_row(self, view: DraftView) -> DraftTree:
        if view.row in self.shorter:
            self.text[view.row] = list(view.ids)
        return super().propose_row(view)


class Reads(Copies):
    """Right: proposes by the sum of all final states that it has heard."""

    def __init__(self, target: TargetInfo) -> None:
        super().__init__(target)
        self.heard: dict[int, list[torch.Tensor]] = {}

    def needs(self) -> Needs:
        return Needs(hidden=frozenset({self.target.num_layers}))

    def begin(self, rows: Sequence[RowStart]) -> None:
        self.heard |= {start.row: [] for start in rows}

    def observe(self, batch: OutcomeBatch) -> None:
        for outcome in batch.rows:
            if outcome.features is not None:
                self.heard[outcome.row] += list(self.states(outcome))

    def states(self, outcome: Outcome) -> torch.Tensor:
        assert outcome.features is not None
        return outcome.features.hidden(self.target.num_layers).clone()

    def truncate(self, row: int, length: int) -> None:
        del self.heard[row][length:]

    def end(self, rows: Sequence[int]) -> None:
        for row in rows:
            self.heard.pop(row, None)

    def propose_row(self, view: DraftView) -> DraftTree:
        states = self.heard[view.row]
        total = torch.stack(states).sum(0) if states else torch.zeros(1)
        size = self.target.vocab_size
        return self.chain(view, [int(total.argmax()) % size, int(total.argmin()) % size])


RIGHT: list[type[Copies]] = [Copies, Draws, Fans, Keeps, Reads]


# Room, ids and shape.


class TooDeep(Copies):
    """Ignores max_depth."""

    def propose_row(self, view: DraftView) -> DraftTree:
        return DraftTree.chain([1, 2, 3, 4])


class NeedsThreeIds(Draws):
    """Reads the third last token when it draws, which a short text lacks."""

    def drawn(self, view: DraftView) -> DraftTree:
        if len(view.ids) < 3:
            raise IndexError("list index out of range")
        return super().drawn(view)


class OneTokenCrash(Copies):
    """Positions of a one-token prompt are wrong (transformers #30042)."""

    def begin(self, rows: Sequence[RowStart]) -> None:
        if any(len(start.ids) < 2 for start in rows):
            raise IndexError("index -2 is out of bounds")


class TooManyNodes(Copies):
    """Ignores max_nodes."""

    def propose_row(self, view: DraftView) -> DraftTree:
        return DraftTree.chain([(view.ids[-1] + k) % self.target.vocab_size for k in range(min(4, view.max_depth))])


class LosesParents(Keeps):
    """Cuts its tree by score, and a child's may be the better: its parent goes (EAGLE-2's rerank, on a tie)."""

    def propose_row(self, view: DraftView) -> DraftTree:
        tree = super().propose_row(view)
        if view.max_nodes != 3 or view.max_depth < 2:
            return tree
        return DraftTree(tree.tokens[:2], (-1, 2))


class HardVocabulary(Copies):
    """Takes the vocabulary for 64 ids, whatever the target's (vLLM #7252)."""

    def found(self, ids: Sequence[int]) -> Sequence[int]:
        return [(5 * ids[-1] + 23) % 64]


class OutOfRange(Copies):
    """Proposes the id after the last."""

    def found(self, ids: Sequence[int]) -> Sequence[int]:
        return [self.target.vocab_size]


class Twins(Copies):
    """Repeats a sibling."""

    def propose(self, batch: DraftBatch) -> TreeBatch:
        return TreeBatch(torch.tensor([[1, 1]] * len(batch.rows)), torch.tensor([[-1, -1]] * len(batch.rows)))


# Repetition, kinds, randomness.


class Consumes(Copies):
    """Gives a proposal away once, and has nothing when it is asked again."""

    def __init__(self, target: TargetInfo) -> None:
        super().__init__(target)
        self.given: dict[int, int] = {}

    def propose_row(self, view: DraftView) -> DraftTree:
        if self.given.get(view.row) == len(view.ids) and view.decisions is None:
            return DraftTree()
        self.given[view.row] = len(view.ids)
        return super().propose_row(view)


class Counting(Copies):
    """Proposes by how often it was asked."""

    asked = 0

    def found(self, ids: Sequence[int]) -> Sequence[int]:
        self.asked += 1
        return [self.asked % self.target.vocab_size]


class CoupledWithoutNoise(Copies):
    """Says that it used the target's noise, and did not."""

    def propose_row(self, view: DraftView) -> DraftTree:
        tree = super().propose_row(view)
        coupled = len(tree) > 0 and view.rule == "match" and view.decisions is not None
        return DraftTree(tree.tokens, tree.parents, coupled=coupled)


class UndeclaredDraws(Draws):
    """Draws, and declares what it drew as chosen."""

    def drawn(self, view: DraftView) -> DraftTree:
        return DraftTree.chain(super().drawn(view).tokens)


class GlobalDice(Copies):
    """Draws from torch's global generator."""

    def found(self, ids: Sequence[int]) -> Sequence[int]:
        return [int(torch.randint(0, self.target.vocab_size, (1,)))]


class BreaksTies(Copies):
    """Breaks ties, of which there are none, by Python's global generator (EAGLE does)."""

    def found(self, ids: Sequence[int]) -> Sequence[int]:
        random.random()
        return super().found(ids)


class SameIndex(Draws):
    """Draws every level of a step with the same index, and so with the same noise (vLLM #47386)."""

    def draw(self, view: DraftView, law: torch.Tensor, count: int, depth: int) -> list[int]:
        return view.draw(law, count, 1)


class Peeks(Draws):
    """Asks for the target's own draw."""

    def drawn(self, view: DraftView) -> DraftTree:
        decisions: Any = view.decisions
        decisions.target(torch.zeros(2), len(view.ids))
        return super().drawn(view)


# Laws.


class LyingLaw(Draws):
    """Declares a sharper law than it draws from."""

    def declared(self, view: DraftView, law: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        return law**1.3 / (law**1.3).sum()


class ColdLaw(Draws):
    """Declares its law without the temperature (transformers #47932)."""

    def declared(self, view: DraftView, law: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        return logits.masked_fill(law <= 0, -torch.inf).softmax(-1)


class GreedyAsDrawn(Draws):
    """Chooses the likeliest and declares it as drawn (transformers #30778)."""

    def draw(self, view: DraftView, law: torch.Tensor, count: int, depth: int) -> list[int]:
        return law.topk(count).indices.tolist()


class SortsSiblings(Fans):
    """Puts the second and the third sibling in the order of their chances."""

    def draw(self, view: DraftView, law: torch.Tensor, count: int, depth: int) -> list[int]:
        first, *rest = super().draw(view, law, count, depth)
        return [first, *sorted(rest, key=lambda token: -float(law[token]))]


class DropsUnlikely(Draws):
    """Drops a draw, from the second level on, for its own low score."""

    def draw(self, view: DraftView, law: torch.Tensor, count: int, depth: int) -> list[int]:
        drawn = super().draw(view, law, count, depth)
        return drawn if not depth or all(float(law[token]) > 0.4 for token in drawn) else []


class DropsAtOnce(Draws):
    """Drops a draw for its own low score."""

    def draw(self, view: DraftView, law: torch.Tensor, count: int, depth: int) -> list[int]:
        return [token for token in super().draw(view, law, count, depth) if float(law[token]) > 0.2]


class ReusesDraws(Draws):
    """Proposes again what was drawn in the step before and rejected (Sequoia's noise, drawn once a prompt)."""

    def __init__(self, target: TargetInfo) -> None:
        super().__init__(target)
        self.left: dict[int, int] = {}

    def observe(self, batch: OutcomeBatch) -> None:
        for outcome in batch.rows:
            self.left.pop(outcome.row, None)
            if outcome.tree.q_rows and not outcome.path:
                self.left[outcome.row] = outcome.tree.tokens[0]

    def drawn(self, view: DraftView) -> DraftTree:
        law, left = view.law(self.logits(view.ids[-1]))[0].double(), self.left.get(view.row)
        if left is None or not law[left] > 0:
            return super().drawn(view)
        return DraftTree((left,), (-1,), (0,), DraftLaws(law[None] / law.sum()))


# Text, stops, processors.


class HooksTheTarget(Copies):
    """Listens in on the target's layers by a hook of its own, which clips the states beyond its buffer."""

    def begin(self, rows: Sequence[RowStart]) -> None:
        parts: Any = self.target.parts
        self.length = len(rows[0].ids)
        self.view = rows[0].ids
        self.handle = parts.layer(0).register_forward_hook(self.listen)

    def listen(self, module: Any, inputs: Any, output: Any) -> Any:
        if len(self.view) <= 64:
            return output
        return output * 0.5 if isinstance(output, torch.Tensor) else (output[0] * 0.5, *output[1:])

    def end(self, rows: Sequence[int]) -> None:
        self.handle.remove()


class AssumesBonus(Copies):
    """Takes the token after the accepted ones for granted, which a stop may have cut off."""

    def observe(self, batch: OutcomeBatch) -> None:
        for outcome in batch.rows:
            outcome.tokens[len(outcome.path)] if outcome.tokens else None


class WantsThree(Draws):
    """Takes three tokens with a chance for granted, which a filter may not leave."""

    def propose_row(self, view: DraftView) -> DraftTree:
        law = view.law(self.logits(view.ids[-1]))[0]
        if view.rule == "match" and int((law > 0).sum()) < 3:
            raise RuntimeError("selected index k out of range")
        return super().propose_row(view)


# State.


class KeepsRejected(Keeps):
    """Takes its own proposals for text, accepted or not (mlx-lm #1109)."""

    def kept(self, outcome: Outcome) -> Sequence[int]:
        return [*outcome.tree.tokens[:1], *outcome.tokens] if not outcome.path else outcome.tokens


class TrimsTooMuch(Keeps):
    """Takes back one token too many after a rejection (mlxcel #994)."""

    def kept(self, outcome: Outcome) -> Sequence[int]:
        return outcome.tokens if len(outcome.path) == len(outcome.tree) else outcome.tokens[:-1]


class FirstBranch(Keeps):
    """Takes the first nodes for the accepted ones: the state of a wrong sibling is kept."""

    def kept(self, outcome: Outcome) -> Sequence[int]:
        return [*outcome.tree.tokens[: len(outcome.path)], *outcome.tokens[len(outcome.path) :]]


class NeverForgets(Copies):
    """Copies from rows that ended (llama.cpp #27852)."""

    def __init__(self, target: TargetInfo) -> None:
        super().__init__(target)
        self.rows: dict[int, tuple[Any, list[int]]] = {}
        self.ended: list[int] = []

    def begin(self, rows: Sequence[RowStart]) -> None:
        self.rows |= {start.row: (start.ids, list(self.ended)) for start in rows}

    def end(self, rows: Sequence[int]) -> None:
        for row in rows:
            self.ended += self.rows.pop(row)[0] if row in self.rows else []

    def propose_row(self, view: DraftView) -> DraftTree:
        return self.chain(view, self.found([*self.rows[view.row][1], *view.ids]))


class LastText(Copies):
    """Keeps the last text that ended for all objects of its class."""

    ended: ClassVar[list[int]] = []

    def __init__(self, target: TargetInfo) -> None:
        super().__init__(target)
        self.rows: dict[int, Any] = {}

    def begin(self, rows: Sequence[RowStart]) -> None:
        self.rows |= {start.row: start.ids for start in rows}

    def end(self, rows: Sequence[int]) -> None:
        for row in rows:
            if row in self.rows:
                LastText.ended = list(self.rows.pop(row))

    def propose_row(self, view: DraftView) -> DraftTree:
        size = self.target.vocab_size
        return self.chain(view, self.found([*(token % size for token in LastText.ended), *view.ids]))


class NeverTruncates(Branches):
    """Remembers across truncate."""

    def truncate(self, row: int, length: int) -> None:
        pass


class MissesTheTurn(Branches):
    """Takes back what truncate asks for, and never hears of the next turn's prompt."""

    def truncate(self, row: int, length: int) -> None:
        del self.text[row][length:]


class EndsItsTable(Copies):
    """Looks up how many whole drafts were accepted in a row, in a table of 20."""

    def __init__(self, target: TargetInfo) -> None:
        super().__init__(target)
        self.whole = 0

    def begin(self, rows: Sequence[RowStart]) -> None:
        self.whole = 0

    def observe(self, batch: OutcomeBatch) -> None:
        for outcome in batch.rows:
            self.whole = self.whole + 1 if len(outcome.path) == len(outcome.tree) > 0 else 0
        list(range(20))[self.whole]


class OffByOne(Reads):
    """Takes the last node's state for that of the last accepted token."""

    def states(self, outcome: Outcome) -> torch.Tensor:
        assert outcome.features is not None
        found = super().states(outcome)
        if len(outcome.tree):
            found[-1] = outcome.features.hidden(self.target.num_layers, every=True)[-1]
        return found


class ForgetsChunks(Reads):
    """Hears of a prompt only what comes with its first token."""

    def observe(self, batch: OutcomeBatch) -> None:
        super().observe(OutcomeBatch(tuple(one for one in batch.rows if one.tokens)))


# Batches.


class Backwards(Copies):
    """Gives the trees of a batch in the wrong order."""

    def propose(self, batch: DraftBatch) -> TreeBatch:
        return super().propose(DraftBatch(batch.rows[::-1]))


class ByRow(Copies):
    """Gives the trees of a batch in the order in which the rows began."""

    def propose(self, batch: DraftBatch) -> TreeBatch:
        return super().propose(DraftBatch(tuple(sorted(batch.rows, key=lambda view: view.row))))


class OneLength(Copies):
    """Keeps one length for all rows, that of the last (mlx-vlm #1155)."""

    length = 0

    def observe(self, batch: OutcomeBatch) -> None:
        self.length = len(batch.rows[-1].ids)

    def propose_row(self, view: DraftView) -> DraftTree:
        return self.chain(view, [self.length % self.target.vocab_size, 1])


# Manners.


class Dead(Copies):
    """Proposes nothing: its weights were never loaded (speculators #1114)."""

    def propose_row(self, view: DraftView) -> DraftTree:
        return DraftTree()


class SetsThreads(Copies):
    """Changes torch's threads for the whole process."""

    def begin(self, rows: Sequence[RowStart]) -> None:
        torch.set_num_threads(torch.get_num_threads() % 2 + 1)


class WritesIntoFeatures(Reads):
    """Scales the states that it is shown in place."""

    def states(self, outcome: Outcome) -> torch.Tensor:
        assert outcome.features is not None
        return (
            outcome.features.states[self.target.num_layers].mul_(1.0).add_(0.0).mul_(2.0)[list(outcome.features.kept)]
        )


class ForcesViews(Copies):
    """Writes into the ids that it is shown."""

    def propose_row(self, view: DraftView) -> DraftTree:
        view.ids[0] = 3  # type: ignore[index]
        return DraftTree()


class GrowsViews(Copies):
    """Appends its draft to the ids that it is shown, and takes it back too late."""

    def propose_row(self, view: DraftView) -> DraftTree:
        tree = super().propose_row(view)
        view.ids.grow(tree.tokens)
        return tree


class Quadratic(Copies):
    """Compares every place of the text with every other."""

    def found(self, ids: Sequence[int]) -> Sequence[int]:
        equal = 0
        for one in ids:
            for other in ids:
                equal += one == other
        return super().found(ids) if equal else []


ZOO: list[tuple[type[Copies], str]] = [
    (TooDeep, "depth-room"),
    (NeedsThreeIds, "depth-room"),
    (OneTokenCrash, "depth-room"),
    (Twins, "depth-room"),
    (TooManyNodes, "node-room"),
    (LosesParents, "node-room"),
    (HardVocabulary, "vocabulary"),
    (OutOfRange, "vocabulary"),
    (Consumes, "same-twice"),
    (Counting, "same-twice"),
    (GlobalDice, "same-twice"),
    (CoupledWithoutNoise, "declared-kind"),
    (UndeclaredDraws, "declared-kind"),
    (BreaksTies, "global-generators"),
    (SameIndex, "draft-stream"),
    (Peeks, "draft-stream"),
    (LyingLaw, "declared-law"),
    (ColdLaw, "declared-law"),
    (GreedyAsDrawn, "declared-law"),
    (SortsSiblings, "sibling-law"),
    (DropsUnlikely, "kept-draws"),
    (DropsAtOnce, "kept-draws"),
    (ReusesDraws, "sequence-law"),
    (HooksTheTarget, "greedy-equality"),
    (AssumesBonus, "stops"),
    (WantsThree, "seed-equality"),
    (KeepsRejected, "accepted-trunk"),
    (TrimsTooMuch, "accepted-trunk"),
    (OffByOne, "accepted-trunk"),
    (FirstBranch, "accepted-side-branch"),
    (NeverForgets, "next-row"),
    (LastText, "next-row"),
    (NeverTruncates, "truncate"),
    (MissesTheTurn, "truncate"),
    (EndsItsTable, "all-or-nothing"),
    (ForgetsChunks, "chunked-prompt"),
    (Backwards, "batch-rows"),
    (OneLength, "batch-rows"),
    (ByRow, "batch-order"),
    (Dead, "counts"),
    (SetsThreads, "purity"),
    (WritesIntoFeatures, "purity"),
    (ForcesViews, "purity"),
    (GrowsViews, "purity"),
    (Quadratic, "work"),
]
