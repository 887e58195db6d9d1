"""What a drafter says of its drafts before it makes any, and is held to."""

from dataclasses import dataclass
from typing import Final

from outrider.draft.tree import DraftTree

CHAIN: Final = "chains"
TREE: Final = "trees"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a drafter's trees may have; a tree that has more is an error with the drafter's name.

    A drafter that declares nothing may propose anything, and the list of drafters says that it does not tell.

    Args:
        requires: what must be there beside the target, in words, such as "a smaller model"; empty for nothing.
        trees: whether its drafts may branch; else they are chains.
        coupled: whether it may choose with the target's noise.
        drawn: whether it may draw from laws that it declares.
        scouts: whether it may send nodes along that are never verified.
    """

    requires: str = ""
    trees: bool = False
    coupled: bool = False
    drawn: bool = False
    scouts: bool = False

    @property
    def shape(self) -> str:
        """What its drafts are."""
        return TREE if self.trees else CHAIN

    @property
    def sampling(self) -> str:
        """How its tokens come about where the target draws."""
        ways = [way for way, has in (("coupled", self.coupled), ("drawn", self.drawn)) if has]
        return ", ".join(ways) or "chosen"

    def beyond(self, tree: DraftTree) -> str:
        """Say what a tree has that is not declared; empty where there is nothing."""
        verified = [parent for node, parent in enumerate(tree.parents) if node not in tree.scouts]
        found = {
            "a tree that branches": not self.trees and len(set(verified)) < len(verified),
            "a coupled tree": not self.coupled and tree.coupled,
            "drawn nodes": not self.drawn and tree.laws is not None,
            "scouts": not self.scouts and bool(tree.scouts),
        }
        return next((what for what, wrong in found.items() if wrong), "")
