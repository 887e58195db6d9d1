"""A drafter whose model has another tokenizer, no longer than what the parts under test need."""

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field

from outrider import (
    DrafterOptions,
    DraftLaws,
    DraftTree,
    DraftView,
    Follower,
    RowDrafter,
    RowStart,
    Target,
)
from outrider.draft.contract import API
from outrider_drafters.intersection import Intersection
from outrider_drafters.tokenizers import vocabularies
from outrider_drafters.translation import Translation


class UniversalOptions(DrafterOptions):
    draft_tokens: int = Field(default=5, ge=1)
    way: Literal["text", "tokens"] = "text"


class Universal(RowDrafter[UniversalOptions]):
    """Drafts a chain by the text or, under a ratio rule or where told to, by the tokens in common."""

    name: ClassVar[str] = "universal"
    requires_api: ClassVar[tuple[int, int]] = API
    Options: ClassVar[type[DrafterOptions]] = UniversalOptions

    def __init__(self, target: Target, model: Target, **options: object) -> None:
        super().__init__(target.info, UniversalOptions.model_validate(options))
        self.model = model
        self.vocabularies = vocabularies(target.info, model)
        self.common = Intersection.of(*self.vocabularies) if self.options.way == "tokens" else None
        self.follower = Follower(model)
        self.rows: dict[int, Translation] = {}
        self.drawn: list[tuple[torch.Tensor, int]] = []
        self.proposed: list[tuple[list[int], list[int]]] = []

    def begin(self, rows: Sequence[RowStart]) -> None:
        self.follower.begin([start.row for start in rows])
        self.rows |= {start.row: Translation(*self.vocabularies) for start in rows}

    def truncate(self, row: int, length: int) -> None:
        self.rows[row].forget(length)

    def end(self, rows: Sequence[int]) -> None:
        self.follower.end(rows)
        for row in rows:
            self.rows.pop(row, None)

    def propose_row(self, view: DraftView) -> DraftTree:
        translation = self.rows[view.row]
        self.follower.forget(view.row, translation.follow(view.ids))
        longest = self.model.info.max_positions or 1 << 30
        if not translation.ids or len(translation.ids) + self.options.draft_tokens > longest:
            return DraftTree()
        logits = self.follower.read([view.row], [translation.ids])[0]
        if self.common is not None:
            return DraftTree() if translation.pending else self._tokens(view, self.common, logits)
        ids: list[int] = []
        while len(ids) < self.options.draft_tokens:
            ids.append(int(logits.argmax()))
            if ids[-1] in self.vocabularies[1].eos_ids or len(ids) == self.options.draft_tokens:
                break
            logits = self._guess(ids[-1])
        found = translation.propose(ids)
        self.proposed.append((list(view.ids), found))
        return DraftTree.chain(found[: min(view.max_depth, view.max_nodes)])

    def _guess(self, token: int) -> torch.Tensor:
        return self.follower.guess(torch.tensor([[token]]))[0, 0]

    def _tokens(self, view: DraftView, common: Intersection, logits: torch.Tensor) -> DraftTree:
        tokens, laws = list[int](), list[torch.Tensor]()
        depth = min(self.options.draft_tokens, view.max_depth, view.max_nodes)
        while len(tokens) < depth:
            law = view.law(common.restrict(logits)[None])[0].double()
            laws.append(law / law.sum())
            noise = view.noise(len(laws), common.id_map)
            scores = laws[-1] if noise is None else laws[-1].log() + noise
            column = view.draw(laws[-1], 1, len(laws))[0] if view.wants_q else int(scores.argmax())
            tokens.append(int(common.id_map[column]))
            self.drawn.append((laws[-1], tokens[-1]))
            if int(common.draft_ids[column]) in self.vocabularies[1].eos_ids or len(tokens) == depth:
                break
            logits = self._guess(int(common.draft_ids[column]))
        chain = DraftTree.chain(tokens)
        if not view.wants_q or not tokens:
            return DraftTree(chain.tokens, chain.parents, coupled=view.noise(1, common.id_map[:1]) is not None)
        return DraftTree(
            chain.tokens, chain.parents, tuple(range(len(tokens))), DraftLaws(torch.stack(laws), common.id_map)
        )
