"""The drafter `draft-model`: a smaller model of the same vocabulary goes ahead.

Speculative decoding (Leviathan et al. 2022, arXiv:2211.17192; Chen et al. 2023, arXiv:2302.01318).
"""

from typing import Any, ClassVar

from pydantic import Field

import outrider
from outrider import DrafterOptions, InputError, Target, hookimpl
from outrider_drafters.following import Following, FollowingOptions
from outrider_drafters.tokenizers import first_difference


class DraftModelOptions(FollowingOptions):
    """Options of `draft-model`."""

    model: Any = Field(default=None, description="a folder, a Hub id, or a loaded model; required")
    dtype: str | None = Field(default=None, description="of the draft model; by default the target's")
    device: str | None = Field(default=None, description="of the draft model; by default the target's")
    check_tokenizer: bool = Field(default=True, description="refuse a draft model whose tokens are others")


class DraftModel(Following):
    """Lets a smaller model guess what comes next."""

    name: ClassVar[str] = "draft-model"
    requires_api: ClassVar[tuple[int, int]] = (0, 1)
    Options: ClassVar[type[DrafterOptions]] = DraftModelOptions

    def _load(self) -> Target:
        """Load the draft model and make sure that it can serve this target.

        Raises:
            InputError: none is named, its tokens are others, or what it has read can't be taken back.
        """
        target, options = self.target, self.options
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
            raise InputError(
                f"drafter 'draft-model': {type(model.model).__name__} is an encoder-decoder; choose a decoder"
            )
        if model.tier.name == "replay":
            raise InputError(
                f"drafter 'draft-model': {type(model.model).__name__} keeps a state that can't be taken back token by token; "
                f"choose a model of attention layers alone"
            )
        if options.check_tokenizer and (difference := first_difference(target.tokenizer, model.tokenizer)):
            raise InputError(
                f"drafter 'draft-model': the draft model's tokens are not the target's ({difference}); choose a model of the "
                f"same tokenizer, or say check_tokenizer=false if only unused ids differ"
            )
        return model


@hookimpl
def register_drafters(register):  # type: ignore[no-untyped-def]
    """Register `draft-model`."""
    register(DraftModel)
