"""The drafter `draft-model`: a smaller model of the same vocabulary goes ahead.

Speculative decoding (Leviathan et al. 2023, Chen et al. 2023). At every level the best token, or the draw, goes on, and
others beside it make the chain a tree.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from pydantic import Field

import outrider
from outrider import (
    ROOT,
    DrafterOptions,
    DraftLaws,
    DraftTree,
    DraftView,
    Follower,
    InputError,
    RowDrafter,
    RowStart,
    Target,
    TargetInfo,
    hookimpl,
)
from outrider_drafters.tokenizers import first_difference


class DraftModelOptions(DrafterOptions):
    """Options of `draft-model`."""

    model: Any = Field(default=None, description="a folder, a Hub id, or a loaded model; required")
    draft_tokens: int = Field(default=4, ge=1, le=63, description="longest draft")
    branching: int = Field(default=1, ge=1, le=16, description="tokens at every level, of which the first goes on")
    confidence: float = Field(default=0.0, ge=0.0, lt=1.0, description="stop below this chance of the draft so far")
    temperature: float | None = Field(default=None, gt=0.0, description="of the draft; by default the target's")
    dtype: str | None = Field(default=None, description="of the draft model; by default the target's")
    device: str | None = Field(default=None, description="of the draft model; by default the target's")
    check_tokenizer: bool = Field(default=True, description="refuse a draft model whose tokens are others")


class DraftModel(RowDrafter[DraftModelOptions]):
    """Lets a smaller model guess what comes next."""

    name: ClassVar[str] = "draft-model"
    requires_api: ClassVar[tuple[int, int]] = (0, 1)
    Options: ClassVar[type[DrafterOptions]] = DraftModelOptions

    def __init__(self, target: TargetInfo, options: DraftModelOptions) -> None:
        super().__init__(target, options)
        self._model = _load(target, options)
        self._shared = min(target.vocab_size, self._model.info.vocab_size)
        self._rows: dict[int, Follower] = {}

    def begin(self, rows: Sequence[RowStart]) -> None:
        """Open a cache for every row."""
        for start in rows:
            self._rows[start.row] = Follower(self._model)

    def truncate(self, row: int, length: int) -> None:
        """Go on from the first `length` ids."""
        self._rows[row].forget(length)

    def end(self, rows: Sequence[int]) -> None:
        """Drop the rows' caches."""
        for row in rows:
            self._rows.pop(row, None)

    def propose_row(self, view: DraftView) -> DraftTree:
        """Propose a chain of the draft model's tokens, with siblings; nothing where the text is too long for it."""
        longest = self._model.info.max_positions
        depth = min(self.options.draft_tokens, view.max_depth, view.max_nodes // self.options.branching)
        if depth < 1 or (longest is not None and len(view.ids) + depth > longest):
            return DraftTree()
        follower, laws = self._rows[view.row], list[torch.Tensor]()
        logits, trunk, chance = follower.read(view.ids), ROOT, 1.0
        tokens, parents, q_rows = list[int](), list[int](), list[int]()
        while len(laws) < depth:
            law = self._law(view, logits)
            chance *= float(law.max()) if self.options.confidence else 1.0
            if chance < self.options.confidence:  # decided before anything is drawn
                break
            laws.append(law)
            chosen = self._choose(view, law, len(laws))
            q_rows += [len(laws) - 1] * len(chosen)
            parents += [trunk] * len(chosen)
            trunk = len(tokens)
            tokens += chosen
            if len(laws) < depth:
                logits = follower.guess(chosen[0])
        coupled = not view.wants_q and view.noise(1, torch.zeros(1, dtype=torch.long)) is not None and bool(tokens)
        if not view.wants_q or not tokens:
            return DraftTree(tuple(tokens), tuple(parents), coupled=coupled)
        return DraftTree(tuple(tokens), tuple(parents), tuple(q_rows), DraftLaws(torch.stack(laws)))

    def _law(self, view: DraftView, logits: torch.Tensor) -> torch.Tensor:
        """Return the draft's law over the ids that both models have, in float64, its sum 1."""
        logits = logits[: self._shared]
        if self.options.temperature is not None:
            law = (logits.double() / self.options.temperature).softmax(-1)
        else:
            law = view.law(logits[None])[0].double()
        return law / law.sum()

    def _choose(self, view: DraftView, law: torch.Tensor, level: int) -> list[int]:
        """Choose a level's tokens, the one that goes on first: drawn, coupled to the target's noise, or the likeliest."""
        if view.wants_q:
            return view.draw(law, self.options.branching, level)
        noise = view.noise(level, torch.arange(len(law), device=law.device))
        scores = law if noise is None else law.log() + noise
        count = min(self.options.branching, int((law > 0).sum()))
        chosen: list[int] = scores.topk(count).indices.tolist()
        return chosen


def _load(target: TargetInfo, options: DraftModelOptions) -> Target:
    """Load the draft model and make sure that it can serve this target.

    Raises:
        InputError: none is named, its tokens are others, or what it has read can't be taken back.
    """
    if options.model is None:
        raise InputError(
            "drafter 'draft-model' needs a model: draft-model[model=...], smaller and of the same tokenizer"
        )
    if isinstance(options.model, str):
        device = options.device or (None if target.device.type == "meta" else str(target.device))
        dtype = options.dtype or str(target.dtype).removeprefix("torch.")
        model = outrider.load(options.model, dtype=dtype, device=device)
    elif options.dtype or options.device:
        raise InputError("drafter 'draft-model': a loaded model keeps its dtype and device; leave both out")
    else:
        model = outrider.load(options.model)
    if model.model.config.is_encoder_decoder:
        raise InputError(f"drafter 'draft-model': {type(model.model).__name__} is an encoder-decoder; choose a decoder")
    if model.tier.name == "replay":
        raise InputError(
            f"drafter 'draft-model': {type(model.model).__name__} keeps a state that can't be taken back token by token; "
            f"choose a model of attention layers alone"
        )
    if options.check_tokenizer and (difference := first_difference(target.tokenizer, model.tokenizer)):
        raise InputError(
            f"drafter 'draft-model': the draft model's tokens are not the target's ({difference}); choose a model of the same "
            f"tokenizer, or say check_tokenizer=false if only unused ids differ"
        )
    return model


@hookimpl
def register_drafters(register):  # type: ignore[no-untyped-def]
    """Register `draft-model`."""
    register(DraftModel)
