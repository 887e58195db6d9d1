"""What a setting is expected to bring: tokens a step by acceptance, seconds a step by costs, and so its speed-up."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import hypot, log2
from statistics import fmean, median

from outrider.draft.contract import MAX_NODES
from outrider.tune.acceptance import Acceptance
from outrider.tune.costs import Curve, StepCost
from outrider.tune.probe import Beat, Drafted, Probe
from outrider.tune.settings import Setting
from outrider.tune.shape import Trees, best_trees


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is expected of a setting.

    Args:
        setting: which.
        tokens: that a step emits of a text: the mean acceptance length.
        nodes: that a step drafts on average.
        draft_seconds: of a step.
        target_seconds: of a step.
        rest_seconds: of a step.
        plain_seconds: of a plain step of as many texts.
        speed_up: tokens a second over plain decoding's.
    """

    setting: Setting
    tokens: float
    nodes: float
    draft_seconds: float
    target_seconds: float
    rest_seconds: float
    plain_seconds: float
    speed_up: float

    @property
    def seconds(self) -> float:
        """Of a step."""
        return self.draft_seconds + self.target_seconds + self.rest_seconds


class Predictor:
    """Predicts settings of one drafter, under one rule and at one batch size, from its probes.

    Expected tokens are those of the best tree of the setting's size, by the chances that the widest and deepest probe found.
    What that leaves out is taken from the probes: by how much each of them brought more or less than its own tree was expected
    to, the nearer in size the more. Texts are streaky, so that short drafts hold more often than the first tokens of long ones,
    and trees that are grown by score bring more than fixed ones.

    Args:
        curve: of the target.
        plain: steps of plain decoding on the same texts.
        probes: of the drafter, the widest and deepest first.
    """

    def __init__(self, curve: Curve, plain: Sequence[Beat], probes: Sequence[Probe]) -> None:
        self._plain, self._probes = plain, [one for one in probes if one.beats]
        self.acceptance = Acceptance.of(self._probes[0].beats)
        beats = [beat for one in self._probes for beat in one.beats]
        self.cost = StepCost.of(curve, probes[0].setting.batch_size, beats)
        texts = [text for beat in beats for text in beat.texts]
        outlines = [node for text in texts for node in text.outline]
        self._seen = (
            max((depth for depth, _ in outlines), default=1),
            max(len(text.outline) for text in texts),
            1 + max((rank for _, rank in outlines), default=0),
        )
        self._trees: Callable[[int, int | None], Trees] = lru_cache(maxsize=256)(self._best)
        self._corrections = [
            (one.setting, (one.length - 1.0) / gain) for one in self._probes if (gain := self._gain(one.setting)) > 0
        ]

    @property
    def deepest(self) -> int:
        """The longest draft that was seen."""
        return self._seen[0]

    def predict(self, setting: Setting) -> Prediction:
        """Return what a setting is expected to bring."""
        source = self._nearest(setting)
        steps = [(len(one.texts), *self._size(one, source.setting, setting)) for one in source.beats]
        tokens = 1.0 + self._gain(setting) * self._correction(setting)
        draft = fmean(self.cost.drafting(levels, nodes) for _, levels, nodes in steps)
        target = fmean(self.cost.target(nodes, texts) for texts, _, nodes in steps)
        rest = fmean(self.cost.rest.at(nodes) for _, _, nodes in steps)
        plain = self._plain_seconds([texts for texts, _, _ in steps])
        return Prediction(
            setting=setting,
            tokens=tokens,
            nodes=fmean(nodes for _, _, nodes in steps),
            draft_seconds=draft,
            target_seconds=target,
            rest_seconds=rest,
            plain_seconds=plain,
            speed_up=tokens * plain / (draft + target + rest),
        )

    def _plain_seconds(self, texts: Sequence[int]) -> float:
        """Return what plain steps of so many texts take."""
        took: dict[int, list[float]] = {}
        for one in self._plain:
            took.setdefault(len(one.texts), []).append(one.seconds)
        middles = {count: median(seconds) for count, seconds in took.items()}
        return fmean(middles[min(middles, key=lambda known: abs(known - count))] for count in texts)

    def _best(self, depth: int, branching: int | None) -> Trees:
        return best_trees(self.acceptance.chances, depth=depth, nodes=MAX_NODES, branching=branching)

    def _gain(self, setting: Setting) -> float:
        """Return the expected accepted nodes by the chances alone."""
        return self._trees(setting.depth or MAX_NODES, setting.branching).values[min(setting.most, MAX_NODES)]

    def _correction(self, setting: Setting) -> float:
        weights = [(1.0 / max(1e-3, self._apart(one, setting)) ** 2, factor) for one, factor in self._corrections]
        return (
            sum(weight * factor for weight, factor in weights) / sum(weight for weight, _ in weights)
            if weights
            else 1.0
        )

    def _apart(self, one: Setting, other: Setting) -> float:
        """Return how far apart two settings are in doublings of depth, nodes and branching; 0 where drafts are the same."""
        pairs = zip(self._extent(one), self._extent(other), strict=True)
        return hypot(*(log2(mine / yours) for mine, yours in pairs))

    def _extent(self, setting: Setting) -> tuple[int, int, int]:
        """Return depth, nodes and branching, no more of each than drafts ever had."""
        asked = setting.depth or MAX_NODES, setting.most, setting.branching or MAX_NODES
        depth, nodes, branching = (max(1, min(pair)) for pair in zip(asked, self._seen, strict=True))
        return depth, nodes, branching

    def _nearest(self, setting: Setting) -> Probe:
        """Return the probe whose drafts hold the setting's, the smallest of them."""
        asked = self._extent(setting)
        pairs = [(one, zip(self._extent(one.setting), asked, strict=True)) for one in self._probes]
        holding = [one for one, sizes in pairs if all(big >= small for big, small in sizes)]
        return min(holding or self._probes[:1], key=lambda one: self._apart(one.setting, setting))

    def _size(self, beat: Beat, source: Setting, setting: Setting) -> tuple[int, int]:
        """Return the levels and the nodes that a step would have had."""
        sizes = [_cut(one, source, setting) for one in beat.texts]
        return max(levels for levels, _ in sizes), max(nodes for _, nodes in sizes)


def _cut(drafted: Drafted, source: Setting, setting: Setting) -> tuple[int, int]:
    """Return the levels and nodes that are left of a draft under a smaller setting.

    A draft that was cut at its number of nodes has other nodes in place of those that are too deep.
    """
    depth, branching = setting.depth or MAX_NODES, setting.branching or MAX_NODES
    kept = [deep for deep, widest in drafted.outline if deep <= depth and widest < branching]
    levels, nodes = max(kept, default=0), min(len(kept), setting.most)
    if len(drafted.outline) >= source.most and source != setting:
        nodes = min(setting.most, depth if branching == 1 else MAX_NODES)
        levels = min(depth, nodes, max(levels, drafted.levels))
    return levels, nodes + (drafted.scouts if drafted.outline or drafted.scouts else 0)
