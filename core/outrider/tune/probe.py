"""Probes: short runs with a setting, every step kept with the shape of its draft and what it took."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from outrider.compare.strategies import Task
from outrider.decode.loop import decode
from outrider.decode.request import read_request
from outrider.decode.row import Row
from outrider.decode.stats import Stats
from outrider.decode.work import Work
from outrider.draft.contract import MAX_NODES
from outrider.draft.guard import Guard
from outrider.draft.tree import ROOT
from outrider.plugins.words import make_drafter
from outrider.target.model import Target
from outrider.tune.settings import Setting


@dataclass(frozen=True, slots=True)
class Drafted:
    """One text's side of a step.

    Args:
        outline: for every candidate its depth, and the highest rank among its siblings that it or a node above it has.
        scouts: nodes that are never verified.
        ranks: of the accepted nodes, among their siblings.
        emitted: tokens.
        room: how deep the draft could be before the text ends.
    """

    outline: tuple[tuple[int, int], ...]
    scouts: int
    ranks: tuple[int, ...]
    emitted: int
    room: int = MAX_NODES

    @classmethod
    def of(cls, work: Work, emitted: int, room: int = MAX_NODES) -> "Drafted":
        """Read a step's work."""
        tree, children = work.tree, dict[int, int]()
        outline: dict[int, tuple[int, int]] = {ROOT: (0, 0)}
        ranks: dict[int, int] = {}
        for node, parent in enumerate(tree.parents):
            if node in tree.scouts:
                continue
            ranks[node] = children.get(parent, 0)
            children[parent] = ranks[node] + 1
            depth, widest = outline[parent]
            outline[node] = depth + 1, max(widest, ranks[node])
        del outline[ROOT]
        held = tuple(ranks[node] for node in work.path)
        return cls(tuple(outline.values()), len(tree.scouts), held, emitted, room)

    @property
    def levels(self) -> int:
        """How deep the draft is."""
        return max((depth for depth, _ in self.outline), default=0)


@dataclass(frozen=True, slots=True)
class Beat:
    """A step of texts that are decoded together.

    Args:
        texts: those that were still going.
        seconds: of the whole step.
        draft: of which in the drafter.
        target: of which in the target's forward.
    """

    texts: tuple[Drafted, ...]
    seconds: float
    draft: float
    target: float

    @property
    def width(self) -> int:
        """Nodes of the widest draft, scouts and all."""
        return max(len(one.outline) + one.scouts for one in self.texts)

    @property
    def levels(self) -> int:
        """Depth of the deepest draft."""
        return max(one.levels for one in self.texts)

    @property
    def rest(self) -> float:
        """Seconds in neither: verifying, committing, bookkeeping."""
        return max(0.0, self.seconds - self.draft - self.target)


class Probe:
    """Runs a setting on texts.

    Args:
        target: the model.
        setting: the drafter's.
        options: of generation.
    """

    def __init__(self, target: Target, setting: Setting, options: dict[str, Any]) -> None:
        self.setting, self.beats, self.texts = setting, list[Beat](), 0
        self._target = target
        self._options = options | {"rule": setting.rule, "adaptive": setting.adaptive}
        self._guard: Guard | None = None

    def run(self, tasks: Sequence[Task]) -> None:
        """Decode some texts together, and keep their steps; the first time, after a warm-up.

        Raises:
            OutriderError: the drafter can't be made, or failed.
        """
        if self._guard is None:
            self._guard = Guard(make_drafter(self.setting.word, None, self._target.info))
            self._decode(tasks, {"max_new_tokens": min(8, self._options["max_new_tokens"])})
        self.beats += self._decode(tasks, {})
        self.texts += len(tasks)

    def _decode(self, tasks: Sequence[Task], changed: dict[str, Any]) -> list[Beat]:
        options, found = self._options | changed, list[Beat]()
        rows = [Row(read_request(self._target, one.ids, options | {"seed": one.seed}), Stats()) for one in tasks]
        for emitted in decode(self._target, self._guard, rows):  # type: ignore[arg-type]
            works = [(row, step, step.work) for row, step in emitted if step.work is not None]
            if works:
                work = works[0][2]
                texts = tuple(
                    Drafted.of(
                        one, len(step.tokens), row.request.stopping.longest - len(row.ids) + len(step.tokens) - 1
                    )
                    for row, step, one in works
                )
                found.append(Beat(texts, work.seconds, work.draft_seconds, work.target_seconds))
        return found

    @property
    def horizon(self) -> int | None:
        """Tokens that the steps of a text emitted, on average; None where no text was read."""
        return round(sum(one.emitted for beat in self.beats for one in beat.texts) / self.texts) if self.texts else None

    @property
    def length(self) -> float:
        """Tokens that a step emitted of a text."""
        texts = [one for beat in self.beats for one in beat.texts]
        return sum(one.emitted for one in texts) / len(texts) if texts else 1.0

    @property
    def step_seconds(self) -> float:
        """How long a step took on average."""
        return sum(one.seconds for one in self.beats) / len(self.beats) if self.beats else 0.0

    @property
    def token_seconds(self) -> float:
        """How long a token of a text took."""
        tokens = sum(one.emitted for beat in self.beats for one in beat.texts)
        return sum(one.seconds for one in self.beats) / tokens if tokens else 0.0
