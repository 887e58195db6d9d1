"""Statistics on the real drafting and verifying code with its real noise, which enumeration does not go through."""

import pytest

from outrider.verify.decisions import Keyed, Stream
from support import FULL
from toy import Liar, Toy, ToyDrafter, step

# Chi-square over the 64 sequences of three tokens of four: critical value at 1e-9 with 63 degrees of freedom.
CRITICAL = 155.0
DRAWS = 115_000 if FULL else 18_000
FOR_CONTROLS = 5_000


def _chi_square(toy: Toy, drafter: ToyDrafter, rule: str, draws: int = FOR_CONTROLS) -> float:
    law = toy.law(3)
    counts = dict.fromkeys(law, 0)
    for seed in range(draws):
        ids: tuple[int, ...] = ()
        while len(ids) < 3:
            ids = (*ids, *step(toy, drafter, rule, ids, Keyed(seed).at(len(ids))))
        counts[ids[:3]] += 1
    return sum((counts[key] - draws * p) ** 2 / (draws * p) for key, p in law.items())


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_sampled_text_follows_the_target_s_law(rule: str) -> None:
    toy = Toy(4, 5)
    assert _chi_square(toy, ToyDrafter(toy, (2,), "sampled"), rule, DRAWS) < CRITICAL


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_the_test_can_fail(rule: str) -> None:
    """The negative control: a drafter that declares another law than it draws from."""
    toy = Toy(4, 5)
    assert _chi_square(toy, Liar(toy, (1,), "sampled"), rule) > CRITICAL


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_noise_that_is_used_again_in_the_next_step_is_caught(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in decoders that draw their noise once a request; enumeration can't see it, since it has no noise."""
    monkeypatch.setattr(Keyed, "at", lambda self, length: Keyed(self.seed, 0))
    toy = Toy(4, 5)
    assert _chi_square(toy, ToyDrafter(toy, (2,), "sampled"), rule) > CRITICAL


def test_a_draft_that_shares_its_noise_with_the_verdict_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The draft's own Gumbel noise drawn again for the bonus and residual tokens."""
    original = Keyed._perturbed
    monkeypatch.setattr(Keyed, "_perturbed", lambda self, law, stream, index: original(self, law, Stream.DRAFT, 1))
    toy = Toy(4, 5)
    assert _chi_square(toy, ToyDrafter(toy, (1,), "sampled"), "rejection") > CRITICAL
