"""The drafter `draft-model`: a smaller model of the same vocabulary goes ahead.

Speculative decoding (Leviathan et al. 2022, arXiv:2211.17192; Chen et al. 2023, arXiv:2302.01318).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field

import outrider
from outrider import (
    Capabilities,
    DrafterOptions,
    DraftView,
    HeadsReport,
    InputError,
    OutriderError,
    Target,
    TargetInfo,
    Trainee,
    TrainStart,
    TreeBatch,
    find_heads,
    hookimpl,
    inspect_heads,
)
from outrider_drafters.draft_model.shared import inspect_shared, read_shared, shares_embeddings
from outrider_drafters.draft_model.training import DraftModelTrainOptions, make_trainee
from outrider_drafters.following import Following, FollowingOptions
from outrider_drafters.vocabulary.crossing import Crossing
from outrider_drafters.vocabulary.intersection import Intersection
from outrider_drafters.vocabulary.tokenizers import first_difference


class DraftModelOptions(FollowingOptions):
    """Options of `draft-model`."""

    model: Any = Field(
        default=None,
        description="a folder, a Hub id, a loaded model or target; by default one that a package offers",
    )
    dtype: str | None = Field(default=None, description="of the draft model; by default the target's")
    device: str | None = Field(default=None, description="of the draft model; by default the target's")
    tokenizer: Literal["same", "other", "unchecked"] = Field(
        default="same", description="whether the draft model's tokens are the target's; others cross by text"
    )


class DraftModel(Following):
    """Lets a smaller model guess what comes next."""

    name: ClassVar[str] = "draft-model"
    requires_api: ClassVar[tuple[int, int]] = (0, 1)
    Options: ClassVar[type[DrafterOptions]] = DraftModelOptions
    capabilities: ClassVar[Capabilities] = Capabilities(
        requires="a smaller model", trees=True, coupled=True, drawn=True
    )

    TrainOptions: ClassVar[type[DrafterOptions]] = DraftModelTrainOptions
    trained_as: ClassVar[str] = "model"

    _crossing: Crossing | None = None

    @classmethod
    def for_check(cls, target: TargetInfo) -> Mapping[str, Any]:
        """Let the target's first layer draft."""
        return {} if target.parts is None else {"model": target.parts.early_exit(1)}

    @classmethod
    def trainee(cls, start: TrainStart, options: DraftModelTrainOptions) -> Trainee:
        """Make a draft model to train; see `outrider.Trains`."""
        return make_trainee(start, options)

    @classmethod
    def inspect_heads(cls, folder: Path, target: TargetInfo | None) -> HeadsReport | None:
        """Report on a folder of a draft model that shares the target's embeddings; see `outrider.ReadsHeads`."""
        return inspect_shared(folder, target)

    def _load(self) -> Target:
        """Load the draft model and make sure that it can serve this target.

        Raises:
            InputError: none is named, its tokens are others, or what it has read can't be taken back.
        """
        target, options = self.target, self.options
        if options.model is None:
            options = options.model_copy(update={"model": str(find_heads(self.name, target))})
        if isinstance(options.model, Target) and not (options.dtype or options.device):
            model = options.model
        elif isinstance(options.model, str):
            device = options.device or (None if target.device.type == "meta" else str(target.device))
            dtype = options.dtype or str(target.dtype).removeprefix("torch.")
            if shares_embeddings(options.model):
                model = outrider.load(read_shared(options.model, target), tokenizer=target.tokenizer)
            else:
                _check_whole(options.model)
                model = outrider.load(options.model, dtype=dtype, device=device)
        elif options.dtype or options.device:
            raise InputError("drafter 'draft-model': a loaded model keeps its dtype and device; leave both out")
        else:
            model = outrider.load(options.model)
        if model.model.config.is_encoder_decoder:
            raise InputError(
                f"drafter 'draft-model': {type(model.model).__name__} is an encoder-decoder; choose a decoder"
            )
        if model.tier.name == "replay":
            raise InputError(
                f"drafter 'draft-model': {type(model.model).__name__} keeps a state that can't be taken back token by token; "
                f"choose a model of attention layers alone"
            )
        if options.tokenizer == "other":
            self._crossing = Crossing(target, model)
        elif options.tokenizer == "same" and (difference := first_difference(target.tokenizer, model.tokenizer)):
            raise InputError(
                f"drafter 'draft-model': the draft model's tokens are not the target's ({difference}); say tokenizer='other' "
                f"to draft by text and by the tokens in common, or tokenizer='unchecked' if only unused ids differ"
            )
        return model

    def truncate(self, row: int, length: int) -> None:
        """Go on from the first `length` ids."""
        if self._crossing is None:
            super().truncate(row, length)
        else:
            self._crossing.forget(row, length)

    def end(self, rows: Sequence[int]) -> None:
        """Drop the rows' caches."""
        super().end(rows)
        if self._crossing is not None:
            self._crossing.end(rows)

    def _text(self, view: DraftView) -> Sequence[int]:
        return view.ids if self._crossing is None else self._crossing.read(view, self._follower)

    def _grow(self, views: Sequence[DraftView], logits: torch.Tensor, common: Intersection | None = None) -> TreeBatch:
        if self._crossing is None:
            return super()._grow(views, logits, common)
        common = self._crossing.common(views[0])
        if common is None:
            return self._crossing.draft(views, logits, self._follower, self.options.draft_tokens)
        return super()._grow(views, logits, common)


def _check_whole(name: str) -> None:
    """Refuse a folder of trained heads: they are no model, though some can be loaded as one."""
    try:
        found = inspect_heads(name)
    except OutriderError:  # no folder, or no heads
        return
    if not found.in_model:
        raise InputError(
            f"drafter 'draft-model': {name} holds heads of {found.drafter}, not a model; pick {found.drafter}[heads={name}]"
        )


@hookimpl
def register_drafters(register):  # type: ignore[no-untyped-def]
    """Register `draft-model`."""
    register(DraftModel)
