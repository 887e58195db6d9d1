"""How much is measured: prompts and tokens that fit the budget, and which settings are validated how often."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from outrider.prompt_file import NamedPrompt
from outrider.tune.predict import Prediction
from outrider.tune.settings import Setting

PROBED: Final = 0.65
"""Share of the budget after which no further prompt is probed."""
_PROMPTS: Final = 6
_LEAST: Final = 16
_WARM_UP: Final = 16
_PROBE: Final = 2.5
_ROWS: Final = 4
_REPEATS: Final = 2
_SHARE: Final = 0.9


@dataclass(frozen=True, slots=True)
class Load:
    """What is to be measured.

    Args:
        plain_seconds: of a plain step.
        probes: how many settings are probed; each is taken to cost two and a half times what plain decoding does.
        drafters: how many drafters are validated, rules and batch sizes apart.
    """

    plain_seconds: float
    probes: int
    drafters: int

    def tokens(self, seconds: float) -> int:
        """Return how many tokens all prompts may have together."""
        runs = 1 + _PROBE * self.probes + _REPEATS * (_ROWS + self.drafters)
        return int(_SHARE * seconds / (runs * max(self.plain_seconds, 1e-9)))


def fit(
    prompts: Sequence[NamedPrompt], load: Load, seconds: float, most: int, least: int
) -> tuple[list[NamedPrompt], int]:
    """Return the prompts that there is time for, spread over all, and the tokens of each text.

    Args:
        prompts: all.
        load: what is done with them.
        seconds: that are left.
        most: tokens of a text.
        least: prompts.
    """
    total = load.tokens(seconds)
    length = min(most, max(_LEAST, total // min(len(prompts), _PROMPTS)))
    count = min(len(prompts), max(least, total // length))
    return [prompts[at * len(prompts) // count] for at in range(count)], length


@dataclass(frozen=True, slots=True)
class Validation:
    """What is validated.

    Args:
        predictions: of the settings.
        adaptive: drafters as they are, with adaptive decoding, of which nothing is predicted.
        repeats: how often.
    """

    predictions: tuple[Prediction, ...]
    adaptive: tuple[Setting, ...]
    repeats: int


def validation(
    ranked: Sequence[Sequence[Prediction]],
    adaptive: Sequence[Setting],
    texts: int,
    length: int,
    seconds: float,
    most: int,
) -> Validation:
    """Choose the settings to validate: of every drafter its best, and the best of all the others, as far as there is time.

    Args:
        ranked: every drafter's predictions, the fastest first; the fastest drafter first.
        adaptive: settings with adaptive decoding, in the same order.
        texts: prompts.
        length: tokens of a text.
        seconds: that are left.
        most: repeats.
    """
    firsts = [one[0] for one in ranked if one]
    others = sorted((other for one in ranked for other in one[1:]), key=lambda one: -one.speed_up)
    plain = _plain(firsts, texts, length)
    rows = ((_ROWS - 1, adaptive[:1]), (1, adaptive[:1]), (0, ()))
    made = [((*firsts, *others[:more]), tuple(asked)) for more, asked in rows]
    took = [sum(_seconds(one, texts, length) for one in chosen) + (1 + len(asked)) * plain for chosen, asked in made]
    place = next((at for at, once in enumerate(took) if _REPEATS * once <= seconds), len(made) - 1)
    repeats = max(1, min(most, int(seconds / max(took[place], 1e-9))))
    return Validation(*made[place], repeats)


def _seconds(one: Prediction, texts: int, length: int) -> float:
    return _plain([one], texts, length) / max(one.speed_up, 0.1)


def _plain(of: Sequence[Prediction], texts: int, length: int) -> float:
    rates = [one.plain_seconds / one.setting.batch_size for one in of]
    return max(rates, default=0.0) * (texts * length + _WARM_UP)
