"""The drafter `none`: plain decoding through the same loop."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from outrider.draft.capabilities import Capabilities
from outrider.draft.contract import API, DrafterOptions, DraftView, RowDrafter
from outrider.draft.tree import DraftTree


class Plain(RowDrafter[DrafterOptions]):
    """Propose nothing, so that every step is a plain one."""

    name: ClassVar[str] = "none"
    requires_api: ClassVar[tuple[int, int]] = API
    capabilities: ClassVar[Capabilities] = Capabilities()
    expected_failures: Mapping[str, str] = MappingProxyType({"counts": "it is there to draft nothing"})

    def propose_row(self, view: DraftView) -> DraftTree:  # noqa: ARG002
        """Propose an empty tree."""
        return DraftTree()
