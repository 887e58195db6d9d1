"""What a setting is expected to bring: tokens a step by acceptance, seconds a step by costs, and so its speed-up."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import hypot, log2
from statistics import median

from outrider.draft.contract import MAX_NODES
from outrider.tune.acceptance import Acceptance
from outrider.tune.costs import Curve, StepCost
from outrider.tune.probe import Beat, Drafted, Probe
from outrider.tune.settings import Setting
from outrider.tune.shape import Trees, best_trees
from outrider.tune.walk import Walk, walk


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


@dataclass(frozen=True, slots=True)
class _Size:
    """A step as it would have been."""

    texts: int
    levels: int
    nodes: int


class Predictor:
    """Predicts settings of one drafter, under one rule and at one batch size, from its probes.

    Expected tokens are those of the best tree of the setting's size, by the chances that the nearest probe of a larger size
    found. What that leaves out is taken from that probe and the smaller ones: by how much each brought more or less than was to
    be expected of it in the same way, the nearer in size the more. Texts are streaky, so that short drafts hold more often than
    the first tokens of long ones, and trees that are grown by score bring more than fixed ones.

    Args:
        curve: of the target.
        plain: steps of plain decoding on the same texts.
        probes: of the drafter, the widest and deepest first.
    """

    def __init__(self, curve: Curve, plain: Sequence[Beat], probes: Sequence[Probe]) -> None:
        self._plain, self._probes = plain, [one for one in probes if one.beats]
        self.acceptance = Acceptance.of(self._probes[0].beats)
        self._known = {one.setting.label: Acceptance.of(one.beats) for one in self._probes}
        beats = [beat for one in self._probes for beat in one.beats]
        self.cost = StepCost.of(curve, probes[0].setting.batch_size, beats)
        texts = [text for beat in beats for text in beat.texts]
        outlines = [node for text in texts for node in text.outline]
        self._seen = (
            max((depth for depth, _ in outlines), default=1),
            max(len(text.outline) for text in texts),
            1 + max((rank for _, rank in outlines), default=0),
        )
        self._horizon = self._probes[0].horizon
        self._trees: Callable[[str, int, int | None], Trees] = lru_cache(maxsize=256)(self._best)

    @property
    def by_depth(self) -> tuple[float, ...]:
        """For every depth the share of steps that came so far, of the probe that came the furthest."""
        return max((one.by_depth for one in self._known.values()), key=len)

    @property
    def deepest(self) -> int:
        """The longest draft that was seen."""
        return self._seen[0]

    def predict(self, setting: Setting) -> Prediction:
        """Return what a setting is expected to bring."""
        source = self._nearest(setting)
        found = self._walk(setting, source)
        steps = self._steps(setting, source, found)
        tokens = 1.0 + (found.tokens - 1.0) * self._correction(setting, source)
        draft = _mean(steps, lambda one: self.cost.drafting(one.levels, one.nodes))
        target = _mean(steps, lambda one: self.cost.target(one.nodes, one.texts))
        rest = _mean(steps, lambda one: self.cost.rest.at(one.nodes))
        plain = _mean(steps, lambda one: self._plain_seconds(one.texts))
        return Prediction(
            setting=setting,
            tokens=tokens,
            nodes=_mean(steps, lambda one: one.nodes),
            draft_seconds=draft,
            target_seconds=target,
            rest_seconds=rest,
            plain_seconds=plain,
            speed_up=tokens * plain / (draft + target + rest),
        )

    def _steps(self, setting: Setting, source: Probe, found: Walk) -> dict[_Size, float]:
        """Return the steps of a probe as they would have been, each with its share of all steps.

        Those with as much room for a draft stand for each other; where the probe had none such, those with more are cut.
        """
        depth, steps = self._depth(setting), dict[_Size, float]()
        shares = list(enumerate(found.shares)) if source.setting != setting else [(MAX_NODES, 1.0)]
        rooms = [(min(depth, *[text.room for text in one.texts]), one) for one in source.beats]
        for cap, share in shares:
            alike = [one for room, one in rooms if room == cap] or [one for room, one in rooms if room > cap]
            for one in alike or source.beats:
                size = _size(one, source.setting, setting, cap if cap < depth else MAX_NODES)
                steps[size] = steps.get(size, 0.0) + share / len(alike or source.beats)
        return steps

    def _depth(self, setting: Setting) -> int:
        return min(setting.depth or MAX_NODES, self.deepest)

    def _plain_seconds(self, texts: int) -> float:
        """Return what a plain step of so many texts takes."""
        took: dict[int, list[float]] = {}
        for one in self._plain:
            took.setdefault(len(one.texts), []).append(one.seconds)
        return median(took[min(took, key=lambda known: abs(known - texts))])

    def _best(self, source: str, depth: int, branching: int | None) -> Trees:
        return best_trees(self._known[source].chances, depth=depth, nodes=MAX_NODES, branching=branching)

    def _walk(self, setting: Setting, source: Probe) -> Walk:
        """Return how the best tree of a setting's size gets through a text, by a probe's chances."""
        label, depth = source.setting.label, self._depth(setting)
        tree = self._trees(label, depth, setting.branching).tree(min(setting.most, MAX_NODES))
        chances = self._known[label].chances
        upto = [0.0, *(tree.within(level, len(tree)).expected(chances) for level in range(1, depth + 1))]
        return walk([more - less for less, more in pairwise(upto)], depth, self._horizon)

    def _correction(self, setting: Setting, source: Probe) -> float:
        """Return by how much probes gained more than a larger one's chances say, about the setting's size."""
        found = [
            (one, self._walk(one.setting, source).tokens - 1.0)
            for one in self._probes
            if self._holds(source, one.setting)
        ]
        weighed = [
            (1.0 / max(1e-3, self._apart(one.setting, setting)) ** 2, (one.length - 1.0) / gain)
            for one, gain in found
            if gain > 0
        ]
        total = sum(weight for weight, _ in weighed)
        return sum(weight * factor for weight, factor in weighed) / total if total else 1.0

    def _apart(self, one: Setting, other: Setting) -> float:
        """Return how far apart two settings are in doublings of depth, nodes and branching; 0 where drafts are the same."""
        pairs = zip(self._extent(one), self._extent(other), strict=True)
        return hypot(*(log2(mine / yours) for mine, yours in pairs))

    def _extent(self, setting: Setting) -> tuple[int, int, int]:
        """Return depth, nodes and branching, no more of each than drafts ever had."""
        asked = setting.depth or MAX_NODES, setting.most, setting.branching or MAX_NODES
        depth, nodes, branching = (max(1, min(pair)) for pair in zip(asked, self._seen, strict=True))
        return depth, nodes, branching

    def _holds(self, probe: Probe, setting: Setting) -> bool:
        """Whether a probe's drafts are as large as a setting's in every way."""
        pairs = zip(self._extent(probe.setting), self._extent(setting), strict=True)
        return all(big >= small for big, small in pairs)

    def _nearest(self, setting: Setting) -> Probe:
        """Return the probe whose drafts hold the setting's, the smallest of them."""
        holding = [one for one in self._probes if self._holds(one, setting)]
        return min(holding or self._probes[:1], key=lambda one: self._apart(one.setting, setting))


def _mean(steps: Mapping[_Size, float], value: Callable[[_Size], float]) -> float:
    return sum(share * value(one) for one, share in steps.items()) / sum(steps.values())


def _size(beat: Beat, source: Setting, setting: Setting, cap: int) -> _Size:
    """Return what a step would have been, with room for `cap` levels."""
    sizes = [_cut(one, source, setting, cap) for one in beat.texts]
    return _Size(len(sizes), max(levels for levels, _ in sizes), max(nodes for _, nodes in sizes))


def _cut(drafted: Drafted, source: Setting, setting: Setting, cap: int) -> tuple[int, int]:
    """Return the levels and nodes that are left of a draft under a smaller setting.

    A draft that was cut at its number of nodes has other nodes in place of those that are too deep.
    """
    depth, branching = min(cap, setting.depth or MAX_NODES), setting.branching or MAX_NODES
    kept = [deep for deep, widest in drafted.outline if deep <= depth and widest < branching]
    levels, nodes = max(kept, default=0), min(len(kept), setting.most)
    if len(drafted.outline) >= source.most and source != setting:
        nodes = min(setting.most, depth if branching == 1 else MAX_NODES)
        nodes = nodes if depth else 0
        levels = min(depth, nodes, max(levels, drafted.levels))
    return levels, nodes + (drafted.scouts if drafted.outline or drafted.scouts else 0)
