"""The drafter `cascade`: several drafters for one text.

Either the first that has something to propose is heard, as llama.cpp chains its drafters and TensorRT-LLM lets a long suffix
match go before a neural draft: a copy is nearly free and often long, and where there is nothing to copy the costlier drafter
is asked. Or all propose and what they propose is verified together in one merged tree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from outrider import (
    MAX_NODES,
    Capabilities,
    DraftBatch,
    Drafter,
    DrafterOptions,
    DraftTree,
    DraftView,
    Guard,
    InputError,
    Needs,
    Outcome,
    OutcomeBatch,
    RowStart,
    TargetInfo,
    TreeBatch,
    choose,
    hookimpl,
    make_drafter,
    merge,
)

_ONLY: Final = {"first": "min_tokens", "merge": "nodes"}
# How good a tree is in mode "first"; nothing is 0.
_SCOUTS, _SHORT, _SERVED = 1, 2, 3


def _check_part(part: Any) -> Any:
    """Refuse what is no drafter, or has wrong options, before anything is loaded for it."""
    if not isinstance(part, Drafter):
        choose(part)
    return part


def _objects(part: Any) -> list[Any]:
    """Return the drafter objects in a part: itself, and those that a cascade is made of."""
    inner = getattr(getattr(part, "options", None), "drafters", ()) if isinstance(part, Drafter) else _nested(part)
    own = [part] if isinstance(part, Drafter) else []
    return own + [one for nested in inner for one in _objects(nested)]


def _nested(part: Any) -> Sequence[Any]:
    options = part.get("options", {}) if isinstance(part, Mapping) else {}
    found = options.get("drafters", ()) if isinstance(options, Mapping) else ()
    return found if isinstance(found, list | tuple) else ()


def _check_parts(parts: Sequence[Any]) -> Sequence[Any]:
    if len(parts) < 2:
        raise InputError("a cascade has two drafters or more, such as cascade[ngram,lookahead]")
    objects = [id(one) for part in parts for one in _objects(part)]
    if len(set(objects)) < len(objects):
        raise InputError("one drafter object is there twice; name the drafter, or make another")
    return parts


class CascadeOptions(DrafterOptions):
    """Options of `cascade`."""

    positional: ClassVar[str | None] = "drafters"

    drafters: Annotated[Sequence[Annotated[Any, AfterValidator(_check_part)]], AfterValidator(_check_parts)] = Field(
        description="two or more, in their order, such as cascade[ngram,lookahead]"
    )
    mode: Literal["first", "merge"] = Field(default="first", description="the first that proposes, or all merged")
    min_tokens: int = Field(default=1, ge=1, le=MAX_NODES, description="mode first: shortest draft that counts")
    nodes: int = Field(default=MAX_NODES, ge=1, le=256, description="mode merge: most nodes of the merged tree")

    @model_validator(mode="after")
    def _for_the_mode(self) -> Self:
        for mode, option in _ONLY.items():
            if mode != self.mode and option in self.model_fields_set:
                raise ValueError(
                    f"{option} = {getattr(self, option)} is for mode '{mode}' only, and this is '{self.mode}'"
                )
        return self


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a row was proposed, and whose it is.

    Args:
        tree: what went to the target.
        shares: the trees of the parts that had one in it, with their nodes' places in `tree`.
    """

    tree: DraftTree
    shares: tuple[tuple[int, DraftTree, tuple[int | None, ...]], ...] = ()

    @classmethod
    def of(cls, part: int, tree: DraftTree) -> Self:
        """Return what a part proposed alone."""
        return cls(tree, ((part, tree, tuple(range(len(tree)))),))

    def outcome(self, part: int, found: Outcome) -> Outcome:
        """Return an outcome in a part's own node numbers, with as much of its tree as was verified; else with an empty tree."""
        if not len(found.tree):
            return found
        there = self.tree.places_in(found.tree)
        for owner, tree, places in self.shares:
            if owner == part:
                verified = [None if place is None else there[place] for place in places]
                return _in_own_numbers(found, tree, verified)
        return _in_own_numbers(found, DraftTree(), ())


_NOTHING: Final = Proposal(DraftTree())


def _in_own_numbers(found: Outcome, tree: DraftTree, places: Sequence[int | None]) -> Outcome:
    """Return an outcome as one tree's that was verified as a part of the outcome's.

    Args:
        found: the outcome.
        tree: of a part.
        places: for each of its nodes the outcome's, or None where it was not verified.
    """
    kept = {node: place for node, place in enumerate(places) if place is not None}
    own, nodes = tree.keep(list(kept)), list(kept.values())
    last = max((nodes.index(node) for node in found.path if node in nodes), default=-1)
    alone = nodes == list(range(len(found.tree)))
    features = found.features if alone or found.features is None else found.features.of_nodes(nodes)
    return replace(found, tree=own, path=own.path(last), features=features)


class Cascade(Drafter[CascadeOptions]):
    """Asks several drafters, and takes the first that proposes, or all."""

    name: ClassVar[str] = "cascade"
    requires_api: ClassVar[tuple[int, int]] = (0, 1)
    weighs_nodes: ClassVar[bool] = True  # which part drafts decides how far; it is turned on and off as a whole
    Options: ClassVar[type[DrafterOptions]] = CascadeOptions
    capabilities: ClassVar[Capabilities] = Capabilities(
        requires="other drafters", trees=True, coupled=True, drawn=True, scouts=True
    )

    def __init__(self, target: TargetInfo, options: CascadeOptions) -> None:
        super().__init__(target, options)
        self.parts = [Guard(make_drafter(part, None, target), "part") for part in options.drafters]
        self._needs = [Needs() for _ in self.parts]
        self._rows: dict[int, Proposal] = {}
        # What a part fails by design, the whole does; more is none of the whole's.
        self.expected_failures = {
            name: f"{part.drafter.name}: {reason}"
            for part in self.parts
            for name, reason in part.drafter.expected_failures.items()
            if name != "counts"
        }

    @classmethod
    def for_check(cls, target: TargetInfo) -> Mapping[str, Any]:  # noqa: ARG003
        """Return two drafters that need nothing made for the target."""
        return {"drafters": ["ngram", "lookahead"]}

    def needs(self) -> Needs:
        """Ask for what any part wants."""
        self._needs = [part.needs() for part in self.parts]
        wanted = Needs()
        for needs in self._needs:
            wanted |= needs
        return wanted

    def begin(self, rows: Sequence[RowStart]) -> None:
        """Start the rows in every part; where one fails, those that had begun forget them."""
        begun = []
        try:
            for part in self.parts:
                begun.append(part)
                part.begin(rows)
        except BaseException:
            for part in begun:
                part.end([start.row for start in rows])
            raise
        self._rows |= {start.row: _NOTHING for start in rows}

    def truncate(self, row: int, length: int) -> None:
        """Let the row go on from its first `length` ids in every part."""
        for part in self.parts:
            part.truncate(row, length)

    def end(self, rows: Sequence[int]) -> None:
        """Let every part forget the rows; a part that fails is a warning, and the others hear of it none the less."""
        begun = [row for row in rows if self._rows.pop(row, None) is not None]
        if begun:
            for part in self.parts:
                part.end(begun)

    def propose(self, batch: DraftBatch) -> TreeBatch:
        """Propose the tree of the first part that has one, or all parts' together."""
        found = self._first(batch.rows) if self.options.mode == "first" else self._merged(batch.rows)
        self._rows |= {view.row: proposal for view, proposal in zip(batch.rows, found, strict=True)}
        return TreeBatch.pack([proposal.tree for proposal in found])

    def observe(self, batch: OutcomeBatch) -> None:
        """Tell every part what became of its own tree."""
        proposals = [self._rows[outcome.row] for outcome in batch.rows]
        for index, (part, needs) in enumerate(zip(self.parts, self._needs, strict=True)):
            pairs = zip(proposals, batch.rows, strict=True)
            heard = OutcomeBatch(tuple(proposal.outcome(index, found) for proposal, found in pairs)).heard(needs)
            if heard.rows:
                part.observe(heard)

    def _first(self, views: Sequence[DraftView]) -> list[Proposal]:
        """Ask one part after another for the rows that none before has served.

        A row that nobody serves gets the best of what there was: the first draft that was too short, else the first scouts.
        Which tree is taken goes by shapes alone, so that drawn nodes keep their laws.
        """
        taken: dict[int, tuple[int, Proposal]] = {}
        for index, part in enumerate(self.parts):
            asked = [view for view in views if taken.get(view.row, (0,))[0] < _SERVED]
            if not asked:
                break
            _, trees = part.propose(DraftBatch(tuple(asked)))
            for view, tree in zip(asked, trees, strict=True):
                rank = self._rank(view, tree, last=index == len(self.parts) - 1)
                if rank > taken.get(view.row, (0,))[0]:
                    taken[view.row] = rank, Proposal.of(index, tree)
        return [taken[view.row][1] if view.row in taken else _NOTHING for view in views]

    def _rank(self, view: DraftView, tree: DraftTree, *, last: bool) -> int:
        """Say how good a part's tree is; whatever the last part drafts will do, as will a draft as deep as there is room."""
        if not tree.candidates:
            return _SCOUTS if tree.scouts else 0
        depth = max(depth for node, depth in enumerate(tree.depths()) if node not in tree.scouts)
        return _SERVED if last or depth >= min(self.options.min_tokens, view.max_depth) else _SHORT

    def _merged(self, views: Sequence[DraftView]) -> list[Proposal]:
        """Ask all parts and merge each row's trees; one that is alone stays as it is and keeps its laws."""
        by_part = [part.propose(DraftBatch(tuple(views)))[1] for part in self.parts]
        found = []
        for view, *trees in zip(views, *by_part, strict=True):
            given = [(index, tree) for index, tree in enumerate(trees) if len(tree)]
            budget = min(self.options.nodes, view.max_nodes)
            if len(given) == 1 and given[0][1].candidates <= budget:
                found.append(Proposal.of(*given[0]))
                continue
            tree, places = merge([tree for _, tree in given], budget, view.max_nodes)
            shares = ((index, own, there) for (index, own), there in zip(given, places, strict=True))
            found.append(Proposal(tree, tuple(shares)))
        return found


@hookimpl
def register_drafters(register):  # type: ignore[no-untyped-def]
    """Register `cascade`."""
    register(Cascade)
