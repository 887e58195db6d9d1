"""The drafter `self`: the target's own first layers and its head go ahead.

Early exit (LayerSkip, Elhoushi et al. 2024, arXiv:2404.16710, section 3.3; Draft & Verify, Zhang et al. 2023,
arXiv:2309.08168): no other weights are needed, and nothing is read twice, since the first layers' keys and values are the
target's own. It pays for models that were trained to leave early, or whose last layers change little.
"""

from typing import Any, ClassVar, Final
from weakref import WeakKeyDictionary

from pydantic import Field

import outrider
from outrider import Capabilities, DrafterOptions, InputError, Needs, OutcomeBatch, Target, hookimpl
from outrider_drafters.following import Following, FollowingOptions

# A target is cut and probed once, not by every generation.
_SHORT: Final[WeakKeyDictionary[Any, dict[int, Target]]] = WeakKeyDictionary()


class SelfOptions(FollowingOptions):
    """Options of `self`."""

    layers: int | None = Field(default=None, ge=1, description="layers before the exit; by default four fifths")


class Self(Following):
    """Lets the target's first layers guess what its last ones will say."""

    name: ClassVar[str] = "self"
    requires_api: ClassVar[tuple[int, int]] = (0, 1)
    Options: ClassVar[type[DrafterOptions]] = SelfOptions
    capabilities: ClassVar[Capabilities] = Capabilities(trees=True, coupled=True, drawn=True)

    def _load(self) -> Target:
        """Cut the target short.

        Raises:
            InputError: it has too few layers, or can't be cut.
        """
        total, parts = self.target.num_layers, self.target.parts
        if parts is None:
            raise InputError("drafter 'self': the target shows no parts of itself, so there is no early exit")
        if total < 2:
            raise InputError(f"drafter 'self': the target has {total} layers, and an early exit needs two or more")
        self._layers = self.options.layers or max(1, min(total - 1, round(0.8 * total)))
        known = _SHORT.setdefault(parts, {})
        if self._layers not in known:
            known[self._layers] = self._cut(parts)
        return known[self._layers]

    def _cut(self, parts: Any) -> Target:
        try:
            short = parts.early_exit(self._layers)
        except outrider.ModelError as error:
            raise InputError(f"drafter 'self': {error}") from error
        try:
            model = outrider.load(short)
        except outrider.ModelError as error:
            raise InputError(
                f"drafter 'self': the first {self._layers} layers can't draft by themselves: {error}"
            ) from error
        if model.tier.name == "replay":
            raise InputError(
                f"drafter 'self': {type(model.model).__name__} keeps a state that can't be taken back token by token"
            )
        return model

    def needs(self) -> Needs:
        """Ask for the keys and values of the layers that are shared."""
        return Needs(keys_values=frozenset(range(self._layers)) if self._follower.trees else frozenset())

    def observe(self, batch: OutcomeBatch) -> None:
        """Take over what the target has read."""
        super().observe(batch)
        heard = [(one, one.features) for one in batch.rows if one.features is not None and one.features.keys_values]
        if heard:
            starts = [features.first for _, features in heard]
            contents = [[features.keys_values[layer] for layer in range(self._layers)] for _, features in heard]
            counts = [content[0][0].shape[1] for content in contents]
            texts = [
                one.ids[start : start + count] for (one, _), start, count in zip(heard, starts, counts, strict=True)
            ]
            self._follower.extend([one.row for one, _ in heard], starts, texts, contents)


@hookimpl
def register_drafters(register):  # type: ignore[no-untyped-def]
    """Register `self`."""
    register(Self)
