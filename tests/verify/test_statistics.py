"""Statistics on the real drafting and verifying code with its real noise, which enumeration does not go through."""

import os

import pytest

from outrider.verify.decisions import Keyed
from toy import Liar, Toy, ToyDrafter, step

# Chi-square over the 64 sequences of three tokens of four: critical value at 1e-9 with 63 degrees of freedom.
CRITICAL = 155.0
DRAWS = 115_000 if os.environ.get("OUTRIDER_TEST_FULL") else 18_000


def _chi_square(toy: Toy, drafter: ToyDrafter, rule: str) -> float:
    law = toy.law(3)
    counts = dict.fromkeys(law, 0)
    for seed in range(DRAWS):
        ids: tuple[int, ...] = ()
        while len(ids) < 3:
            ids = (*ids, *step(toy, drafter, rule, ids, Keyed(seed).at(len(ids))))
        counts[ids[:3]] += 1
    return sum((counts[key] - DRAWS * p) ** 2 / (DRAWS * p) for key, p in law.items())


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_sampled_text_follows_the_target_s_law(rule: str) -> None:
    toy = Toy(4, 5)
    assert _chi_square(toy, ToyDrafter(toy, (2,), "sampled"), rule) < CRITICAL


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_the_test_can_fail(rule: str) -> None:
    """The negative control: a drafter that declares another law than it draws from."""
    toy = Toy(4, 5)
    assert _chi_square(toy, Liar(toy, (1,), "sampled"), rule) > CRITICAL
