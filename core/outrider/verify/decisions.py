"""Decision sources: where the random decisions of a row come from.

The rules ask for decisions and never see a generator. `Keyed` answers from the counter hash, so that a decision depends on
the row's seed and on what is decided, never on what was drawn before; `Enumerating` answers every way there is, so that tests
run the real rules and compare exact laws; `Scripted` answers as told.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol, TypeVar

import torch

from outrider.verify.noise import gumbel, gumbel_max, uniform


class Stream(IntEnum):
    """What a decision is for; the streams are disjoint."""

    TARGET = 0
    DRAFT = 1
    ACCEPT = 2
    RESIDUAL = 3
    BONUS = 4


class Decisions(Protocol):
    """Answers for one row."""

    def at(self, length: int) -> "Decisions":
        """Return the answers of the step that begins with `length` committed ids; every step's are fresh."""
        ...

    def target(self, scores: torch.Tensor, position: int) -> torch.Tensor:
        """Draw the target's own token at a position from softmax(scores) `[vocab]`, as a scalar tensor."""
        ...

    def noise(self, position: int, ids: torch.Tensor) -> torch.Tensor | None:
        """Return the Gumbel noise that `target` draws with at a position, or None where it draws otherwise."""
        ...

    def accept(self, probability: float, index: int) -> bool:
        """Decide with a probability; `index` tells the decisions of a step apart."""
        ...

    def choose(self, law: torch.Tensor, stream: Stream, index: int = 0) -> int:
        """Draw from a law `[vocab]` whose sum is 1."""
        ...

    def choose_several(self, law: torch.Tensor, count: int, index: int) -> list[int]:
        """Draw `count` different tokens one after another for a draft, or all that the law holds."""
        ...


@dataclass(frozen=True, slots=True)
class Keyed:
    """Decisions by the counter hash.

    Args:
        seed: of the row.
        length: committed ids when the step began, so that no two steps share a decision.
    """

    seed: int
    length: int = 0

    def at(self, length: int) -> "Keyed":
        """See `Decisions`."""
        return Keyed(self.seed, length)

    def target(self, scores: torch.Tensor, position: int) -> torch.Tensor:
        """See `Decisions`; keyed by the position alone, so that it is the same whatever a step verified."""
        return gumbel_max(scores, self.seed, position)

    def noise(self, position: int, ids: torch.Tensor) -> torch.Tensor | None:
        """See `Decisions`."""
        return gumbel(self.seed, (position,), ids)

    def accept(self, probability: float, index: int) -> bool:
        """See `Decisions`."""
        return uniform(self.seed, (self.length, Stream.ACCEPT, index)) < probability

    def choose(self, law: torch.Tensor, stream: Stream, index: int = 0) -> int:
        """See `Decisions`."""
        return int(self._perturbed(law, stream, index).argmax())

    def choose_several(self, law: torch.Tensor, count: int, index: int) -> list[int]:
        """See `Decisions`: the top of log q + Gumbel noise is a draw without replacement, in order."""
        perturbed = self._perturbed(law, Stream.DRAFT, index)
        tokens: list[int] = perturbed.topk(min(count, int((law > 0).sum()))).indices.tolist()
        return tokens

    def _perturbed(self, law: torch.Tensor, stream: Stream, index: int) -> torch.Tensor:
        ids = torch.arange(law.shape[-1], device=law.device)
        return law.double().log() + gumbel(self.seed, (self.length, stream, index), ids)


@dataclass(slots=True)
class _Branch:
    """A decision with all its answers, and the one that is being tried."""

    answers: list[tuple[int, float]]
    tried: int = 0


@dataclass(slots=True)
class Enumerating:
    """Decisions by enumeration: one run of a depth-first search over all answers.

    `probability` is that of the answers given so far.
    """

    trail: list[_Branch] = field(default_factory=list)
    depth: int = 0
    probability: float = 1.0

    def at(self, length: int) -> "Enumerating":  # noqa: ARG002
        """See `Decisions`."""
        return self

    def target(self, scores: torch.Tensor, position: int) -> torch.Tensor:  # noqa: ARG002
        """See `Decisions`."""
        return torch.tensor(self._answer(_support(scores.double().softmax(-1))))

    def noise(self, position: int, ids: torch.Tensor) -> torch.Tensor | None:  # noqa: ARG002
        """See `Decisions`."""
        return None

    def accept(self, probability: float, index: int) -> bool:  # noqa: ARG002
        """See `Decisions`."""
        chance = min(max(probability, 0.0), 1.0)
        return bool(self._answer([(yes, p) for yes, p in ((1, chance), (0, 1.0 - chance)) if p > 0]))

    def choose(self, law: torch.Tensor, stream: Stream, index: int = 0) -> int:  # noqa: ARG002
        """See `Decisions`."""
        return self._answer(_support(law))

    def choose_several(self, law: torch.Tensor, count: int, index: int) -> list[int]:
        """See `Decisions`."""
        left, tokens = law.double().clone(), list[int]()
        while len(tokens) < count and left.sum() > 0:
            tokens.append(self.choose(left / left.sum(), Stream.DRAFT, index))
            left[tokens[-1]] = 0.0
        return tokens

    def _answer(self, answers: list[tuple[int, float]]) -> int:
        if self.depth == len(self.trail):
            self.trail.append(_Branch(answers))
        branch = self.trail[self.depth]
        self.depth += 1
        answer, chance = branch.answers[branch.tried]
        self.probability *= chance
        return answer

    def next(self) -> bool:
        """Turn to the next run; false when there is none."""
        while self.trail and self.trail[-1].tried + 1 == len(self.trail[-1].answers):
            self.trail.pop()
        self.depth, self.probability = 0, 1.0
        if self.trail:
            self.trail[-1].tried += 1
        return bool(self.trail)


def _support(law: torch.Tensor) -> list[tuple[int, float]]:
    return [(token, p) for token, p in enumerate(law.tolist()) if p > 0]


ResultT = TypeVar("ResultT")


def enumerate_runs(run: Callable[[Decisions], ResultT]) -> Iterator[tuple[ResultT, float]]:
    """Run a function under every combination of decisions; yield what it returns and the combination's probability."""
    decisions = Enumerating()
    while True:
        result = run(decisions)
        yield result, decisions.probability
        if not decisions.next():
            return


@dataclass(slots=True)
class Scripted:
    """Decisions as told, in order: a token for a draw, 0 or 1 for an acceptance."""

    answers: Sequence[int]
    given: int = 0

    def at(self, length: int) -> "Scripted":  # noqa: ARG002
        """See `Decisions`."""
        return self

    def target(self, scores: torch.Tensor, position: int) -> torch.Tensor:  # noqa: ARG002
        """See `Decisions`."""
        return torch.tensor(self._next())

    def noise(self, position: int, ids: torch.Tensor) -> torch.Tensor | None:  # noqa: ARG002
        """See `Decisions`."""
        return None

    def accept(self, probability: float, index: int) -> bool:  # noqa: ARG002
        """See `Decisions`."""
        return bool(self._next())

    def choose(self, law: torch.Tensor, stream: Stream, index: int = 0) -> int:  # noqa: ARG002
        """See `Decisions`."""
        return self._next()

    def choose_several(self, law: torch.Tensor, count: int, index: int) -> list[int]:  # noqa: ARG002
        """See `Decisions`."""
        return [self._next() for _ in range(count)]

    def _next(self) -> int:
        self.given += 1
        return self.answers[self.given - 1]
