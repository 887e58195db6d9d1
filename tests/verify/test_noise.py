import math

import torch

from outrider.verify.noise import gumbel, gumbel_max

MASK = (1 << 64) - 1


def _splitmix(value: int) -> int:
    """SplitMix64's finaliser, written for one Python integer."""
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def _expected(seed: int, position: int, token: int) -> float:
    bits = _splitmix(token ^ _splitmix(_splitmix(seed) ^ position))
    uniform = ((bits >> 11) + 0.5) * 2.0**-53
    return -math.log(-math.log1p(-uniform))


def test_the_hash_is_that_of_plain_integers() -> None:
    ids = torch.arange(200)
    for seed, position in ((0, 0), (7, 3), (2**63 - 1, 10**6)):
        found = gumbel(seed, (position,), ids)
        assert found.dtype == torch.float64
        assert torch.isfinite(found).all()
        for token in ids.tolist():
            assert abs(found[token].item() - _expected(seed, position, token)) < 1e-12


def test_every_field_matters() -> None:
    ids = torch.arange(100)
    base = gumbel(1, (2,), ids)
    assert not torch.equal(base, gumbel(2, (2,), ids))
    assert not torch.equal(base, gumbel(1, (3,), ids))
    assert not torch.equal(gumbel(1, (2,), ids), gumbel(2, (1,), ids))
    assert not torch.isin(base, gumbel(1, (3,), ids)).any()


def test_noise_of_some_ids_is_that_of_all() -> None:
    ids = torch.tensor([3, 50, 999])
    assert torch.equal(gumbel(5, (9,), ids), gumbel(5, (9,), torch.arange(1000))[ids])


def test_filtered_tokens_are_never_drawn() -> None:
    scores = torch.full((50,), -torch.inf)
    scores[[7, 20]] = torch.tensor([0.0, 0.5])
    assert {int(gumbel_max(scores, seed, 0)) for seed in range(50)} == {7, 20}


def test_a_filtered_draw_is_that_over_all_ids() -> None:
    """The short cut on a CPU, noise for survivors only, changes no draw."""
    scores = torch.randn(300, generator=torch.Generator().manual_seed(0))
    scores[scores < 0.3] = -torch.inf
    for position in range(100):
        noise = gumbel(3, (position,), torch.arange(300))
        assert int(gumbel_max(scores, 3, position)) == int((scores.double() + noise).argmax())


def _chi_square(law: list[float], draws: int) -> tuple[float, float]:
    """Chi-square of draws against their law, and against another law as the negative control."""
    scores = torch.tensor(law, dtype=torch.float64).log()
    counts = [0] * len(law)
    for index in range(draws):
        counts[int(gumbel_max(scores, index // 50, index % 50))] += 1
    wrong = [*law[1:], law[0]]
    return tuple(  # type: ignore[return-value]
        sum((count - draws * p) ** 2 / (draws * p) for count, p in zip(counts, chosen, strict=True))
        for chosen in (law, wrong)
    )


def test_draws_follow_the_softmax() -> None:
    """Critical value of chi-square with 4 degrees of freedom at 1e-9: 48.6; the draws are fixed, so this can't flicker."""
    right, wrong = _chi_square([0.4, 0.25, 0.2, 0.1, 0.05], 20_000)
    assert right < 48.6
    assert wrong > 48.6
