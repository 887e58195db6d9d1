"""What can be set: the options of the standard names that a drafter has, and settings of them that are worth a look.

A drafter takes part by naming its options `draft_tokens` or `depth` (longest draft), `nodes` (most nodes; 0 for a chain) and
`branching` (most children of a node). Options that were given with its name are kept as they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from outrider.compare.lineup import label_of
from outrider.draft.contract import MAX_NODES
from outrider.draft.plain import Plain
from outrider.errors import InputError
from outrider.plugins.words import DrafterChoice, choose, read_mapping, read_word
from outrider.tune.shape import Chances, best_trees

DEPTHS: Final = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)
BUDGETS: Final = (4, 6, 8, 12, 16, 24, 32, 48, 64)
_WIDE: Final = 48
_BRANCHES: Final = 4
_LENGTHS: Final = ("draft_tokens", "depth")


@dataclass(frozen=True, slots=True)
class Setting:
    """A drafter with options, under a rule and at a batch size.

    Args:
        drafter: its name.
        options: all that are given.
        depth: longest draft; None for what the drafter likes.
        nodes: most nodes; None likewise.
        branching: most children of a node; None likewise.
        rule: how drafts are verified.
        batch_size: texts that are decoded together.
        adaptive: draft as far as pays, by what is measured while decoding, at most as far as the options say.
    """

    drafter: str
    options: Mapping[str, Any] = field(default_factory=dict)
    depth: int | None = None
    nodes: int | None = None
    branching: int | None = None
    rule: str = "match"
    batch_size: int = 1
    adaptive: bool = False

    @property
    def word(self) -> dict[str, Any]:
        """How it is picked."""
        return {"name": self.drafter, "options": dict(self.options)}

    @property
    def label(self) -> str:
        """How it is told, as it is written after `-d` but for the rule."""
        rule = "" if self.rule == "match" else f" {self.rule}"
        return (
            f"{label_of(DrafterChoice(self.drafter, dict(self.options)))}{rule}{' adaptive' if self.adaptive else ''}"
        )

    @property
    def most(self) -> int:
        """The most nodes that it drafts."""
        if self.branching == 1 and self.depth is not None:
            return min(self.depth, self.nodes or self.depth)
        return self.nodes or MAX_NODES


@dataclass(frozen=True, slots=True)
class Space:
    """What can be set of a drafter.

    Args:
        choice: its name, and the options that were given.
        length: the name of the option of the longest draft; None where there is none to set.
        has_nodes: whether the number of nodes can be set.
        has_branching: whether the number of children can.
        defaults: of these options; None where the drafter decides.
        most: their bounds.
        drawn: whether the drafter declares laws, which the rules `rejection` and `block` need.
    """

    choice: DrafterChoice
    length: str | None
    has_nodes: bool
    has_branching: bool
    defaults: Mapping[str, Any]
    most: Mapping[str, int]
    drawn: bool

    @classmethod
    def of(cls, word: str | Mapping[str, Any]) -> "Space":
        """Look at a drafter's options.

        Raises:
            UnknownDrafterError: nobody provides it.
            InputError: its word or options are wrong.
        """
        drafter, chosen = choose(word)
        if drafter.name == Plain.name:
            raise InputError(f"'{Plain.name}' is plain decoding, which every drafter is measured against: leave it out")
        options: Any = chosen
        choice = read_word(word) if isinstance(word, str) else read_mapping(word)
        fields = drafter.Options.model_fields
        names: tuple[str, ...] = (*_LENGTHS, "nodes", "branching")
        free = [name for name in names if name in fields and name not in choice.options]
        free = [name for name in free if _can(choice, name, getattr(options, name))]
        most = {name: _bound(fields[name].metadata) for name in free}
        length = next((name for name in _LENGTHS if name in free), None)
        if "draft_tokens" in choice.options:
            length = None
        declared = drafter.capabilities
        return cls(
            choice,
            length,
            "nodes" in free,
            "branching" in free and options.branching is not None,
            {name: getattr(options, name) for name in free},
            most,
            declared is not None and declared.drawn,
        )

    @property
    def tunable(self) -> tuple[str, ...]:
        """The names of what can be set."""
        names = (self.length, "nodes" if self.has_nodes else None, "branching" if self.has_branching else None)
        return tuple(name for name in names if name is not None)

    def setting(
        self, depth: int | None = None, nodes: int | None = None, branching: int | None = None, **more: Any
    ) -> Setting:
        """Return a setting; what is None stays as the drafter has it."""
        given = {self.length: depth, "nodes": nodes, "branching": branching}
        own = {name: value for name, value in given.items() if name is not None and value is not None}
        return Setting(self.choice.name, self.choice.options | own, depth, nodes, branching, **more)

    def anchors(self, **more: Any) -> list[Setting]:
        """Return the settings that are measured: first the widest and deepest, then what tells the others' costs."""
        deep = self._twice(self.length, 16)
        short = None if self.length is None else max(1, round((deep or 4) ** 0.5))
        wide = self._twice("nodes", _WIDE) if self.has_nodes else None
        branches = (
            min(self.most["branching"], max(self.defaults["branching"], _BRANCHES)) if self.has_branching else None
        )
        found = [self.setting(deep, wide, branches, **more)]
        if self.has_branching:
            found += [self._chain(one, **more) for one in dict.fromkeys((deep, short))]
        elif self.has_nodes:
            found.append(self.setting(deep, 8, **more))
        if short != deep:
            found.append(self.setting(short, wide, branches, **more))
        return _apart(found)

    def grid(self, chances: Chances, deepest: int, **more: Any) -> list[Setting]:
        """Return the settings that are worth predicting.

        Of trees those that the recurrence finds best for a node budget: as deep and as wide as it makes them.

        Args:
            chances: of every depth and rank.
            deepest: the longest draft that was seen.
            more: rule and batch size.
        """
        depths: Sequence[int | None] = [None]
        if self.length is not None:
            deepest = max(1, deepest)
            depths = sorted({min(one, self.most[self.length]) for one in (*DEPTHS, deepest) if one <= deepest})
        found = [self._chain(depth, **more) for depth in depths] if self.has_branching else []
        if not self.has_nodes:
            return _apart([*found, *(self.setting(depth, **more) for depth in depths)])
        for depth in depths:
            trees = best_trees(chances, depth=depth or deepest, nodes=MAX_NODES)
            for nodes in (one for one in BUDGETS if one <= self.most["nodes"]):
                tree = trees.tree(nodes)
                chain = self.has_branching and tree.ranks == 1
                if chain or len(tree) < nodes or (depth is not None and tree.depth < depth):
                    continue
                branching = min(tree.ranks, self.most["branching"]) if self.has_branching else None
                found.append(self.setting(depth, nodes, branching, **more))
        return _apart(found) or [self.setting(**more)]

    def _chain(self, depth: int | None, **more: Any) -> Setting:
        nodes = None
        if self.has_nodes and self.defaults["nodes"] != 0:
            nodes = min(self.most["nodes"], depth or MAX_NODES)
        return self.setting(depth, nodes, 1, **more)

    def _twice(self, name: str | None, otherwise: int) -> int | None:
        """Return twice the default, within the bounds; None where the drafter decides."""
        if name is None or (name != "nodes" and self.defaults[name] is None):
            return None
        return min(self.most[name], MAX_NODES, 2 * self.defaults[name] if self.defaults[name] else otherwise)


def _bound(metadata: Sequence[Any]) -> int:
    """Return the most that an option may be, within what a step has room for."""
    bounds = [getattr(one, "le", None) for one in metadata]
    return min([MAX_NODES, *[one for one in bounds if isinstance(one, int)]])


def _can(choice: DrafterChoice, name: str, value: Any) -> bool:
    """Whether an option may be given beside the others."""
    return _takes({"name": choice.name, "options": choice.options | {name: value if value is not None else 1}})


def _takes(word: Mapping[str, Any]) -> bool:
    try:
        choose(word)
    except InputError:
        return False
    return True


def _apart(settings: Sequence[Setting]) -> list[Setting]:
    """Leave out settings that are there already, and those that the drafter does not take."""
    found: dict[str, Setting] = {}
    for one in settings:
        if one.label not in found and _takes(one.word):
            found[one.label] = one
    return list(found.values())
