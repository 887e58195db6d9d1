"""A drafter while it is tuned: its probes, what they say, and what ended its part."""

from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from outrider.tune.costs import Curve
from outrider.tune.predict import Prediction, Predictor
from outrider.tune.probe import Probe
from outrider.tune.result import Candidate, Measured
from outrider.tune.settings import Setting, Space


@dataclass(slots=True)
class Contender:
    """A drafter under a rule at a batch size.

    Args:
        space: what can be set of it.
        rule: how its drafts are verified.
        batch_size: texts that are decoded together.
        probes: the widest and deepest setting first.
        predictions: the fastest first.
        by_depth: share of the steps that had so many tokens accepted, or more, of the probe that came the furthest.
        chances: by depth and rank, of the first probe.
        error: why it takes no further part.
    """

    space: Space
    rule: str
    batch_size: int
    probes: list[Probe] = field(default_factory=list)
    predictions: list[Prediction] = field(default_factory=list)
    by_depth: tuple[float, ...] = ()
    chances: tuple[tuple[float, ...], ...] = ()
    error: str | None = None

    @property
    def more(self) -> dict[str, Any]:
        """What its settings have in common."""
        return {"rule": self.rule, "batch_size": self.batch_size}

    @property
    def adaptive(self) -> Setting:
        """The drafter as it is, with adaptive decoding."""
        return self.space.setting(adaptive=True, **self.more)

    def predict(self, curve: Curve, plain: Probe) -> None:
        """Predict all settings that are worth it, from what was measured so far."""
        if self.error or not plain.beats or not self.probes or not self.probes[0].beats:
            return
        predictor = Predictor(curve, plain.beats, self.probes)
        self.by_depth, self.chances = predictor.by_depth, predictor.acceptance.chances
        settings = self.space.grid(self.chances, predictor.deepest, **self.more)
        self.predictions = sorted(map(predictor.predict, settings), key=lambda one: -one.speed_up)

    def candidate(self) -> Candidate:
        """Return what was found of it."""
        own = self.space.setting(**self.more).label
        return Candidate(
            label=f"{own}@{self.batch_size}" if self.batch_size > 1 else own,
            batch_size=self.batch_size,
            tunable=self.space.tunable,
            probes=tuple(_measured(one) for one in self.probes if one.beats),
            acceptance_by_depth=self.by_depth,
            chances=self.chances,
            predictions=tuple(self.predictions),
            error=self.error,
        )


def _measured(probe: Probe) -> Measured:
    return Measured(
        setting=probe.setting,
        tokens=probe.length,
        nodes=fmean(beat.width for beat in probe.beats),
        step_seconds=probe.step_seconds,
        steps=len(probe.beats),
    )
