"""What a drafter declares is what it is held to."""

from typing import Any, ClassVar

import pytest
import torch

import outrider
from outrider import Capabilities, DraftLaws, DraftTree
from outrider.plugins.registry import check_class
from support import Scripted, prompt_of, tiny_target

LAW = DraftLaws(torch.full((1, 64), 1 / 64))
TREES: dict[str, tuple[DraftTree, dict[str, bool], str]] = {
    "chain": (DraftTree.chain([1, 2]), {}, ""),
    "tree": (DraftTree((1, 2), (-1, -1)), {"trees": True}, "a tree that branches"),
    "coupled": (DraftTree((1,), (-1,), coupled=True), {"coupled": True}, "a coupled tree"),
    "drawn": (DraftTree((1,), (-1,), (0,), LAW), {"drawn": True}, "drawn nodes"),
    "scouts": (DraftTree((1, 1), (-1, -1), scouts=frozenset({1})), {"scouts": True}, "scouts"),
}


def _run(tree: DraftTree, declared: Capabilities | None) -> None:
    class Declared(Scripted):
        capabilities: ClassVar[Capabilities | None] = declared

    target = tiny_target()
    drafter = Declared(target, lambda ids: tree)
    outrider.generate(target, prompt_of(5), drafter, max_new_tokens=8, temperature=1.0, seed=1, adaptive=False)


@pytest.mark.parametrize("kind", TREES)
def test_a_tree_has_no_more_than_is_declared(kind: str) -> None:
    tree, needed, fault = TREES[kind]
    _run(tree, None)
    _run(tree, Capabilities(**needed))  # type: ignore[arg-type]
    if fault:
        everything = dict.fromkeys(("trees", "coupled", "drawn", "scouts"), True)
        for declared in (Capabilities(), Capabilities(**(everything | dict.fromkeys(needed, False)))):  # type: ignore[arg-type]
            with pytest.raises(
                outrider.DrafterError,
                match=f"drafter 'scripted' failed in propose: ValueError: it proposed {fault}, which its capabilities do not",
            ):
                _run(tree, declared)


def test_every_built_in_declares_what_it_does() -> None:
    for record in outrider.drafters():
        assert isinstance(record.drafter.capabilities, Capabilities)


def test_what_is_no_declaration_is_refused() -> None:
    kind: Any = type("Wrong", (Scripted,), {"name": "wrong", "capabilities": {"trees": True}})
    with pytest.raises(outrider.InputError, match=r"Wrong.capabilities = .*: must be outrider.Capabilities, or None"):
        check_class(kind)
