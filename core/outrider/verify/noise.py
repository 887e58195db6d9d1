"""The noise that the target draws with: a counter hash of (row seed, position, token id), the same bits on every device.

Nothing is kept between draws, so a position's noise does not depend on how many tokens a step verified, on the batch, or
on the drafter. Every field goes through a full mix (the finaliser of SplitMix64, Steele et al. 2014, figure 18).
"""

from typing import Final

import torch

_MASK: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15
_MIX_1: Final = 0xBF58476D1CE4E5B9
_MIX_2: Final = 0x94D049BB133111EB


def _mix(value: int) -> int:
    """Mix 64 bits of a Python integer."""
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * _MIX_1) & _MASK
    value = ((value ^ (value >> 27)) * _MIX_2) & _MASK
    return value ^ (value >> 31)


def _signed(value: int) -> int:
    """Reinterpret 64 unsigned bits as torch's int64."""
    return value - (1 << 64) if value >> 63 else value


def _shift(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Shift int64 right without its sign."""
    return (values >> bits) & ((1 << (64 - bits)) - 1)


def _mix_tensor(values: torch.Tensor) -> torch.Tensor:
    """Mix every int64 of a tensor as `_mix` does; products wrap."""
    values = values + _signed(_GOLDEN)
    values = (values ^ _shift(values, 30)) * _signed(_MIX_1)
    values = (values ^ _shift(values, 27)) * _signed(_MIX_2)
    return values ^ _shift(values, 31)


def _key(seed: int, fields: tuple[int, ...]) -> int:
    key = _mix(seed)
    for part in fields:
        key = _mix(key ^ (part & _MASK))
    return key


def _uniform(bits: torch.Tensor) -> torch.Tensor:
    return (_shift(bits, 11).to(torch.float64) + 0.5) * 2.0**-53


def uniform(seed: int, fields: tuple[int, ...]) -> float:
    """Return a number above 0 and below 1, of 53 bits, for a seed and what else tells a decision apart."""
    return ((_mix(_key(seed, fields)) >> 11) + 0.5) * 2.0**-53


def gumbel(seed: int, fields: tuple[int, ...], ids: torch.Tensor) -> torch.Tensor:
    """Return standard Gumbel noise for tokens.

    It is -log(E) with E = -log(1 - u) exponential and u of 53 bits; the large values, which decide a draw, come from small
    u, where the spacing is finest.

    Args:
        seed: of the row, below 2**63.
        fields: what tells the draw apart: for the target's own, the index of the token in the row's committed ids.
        ids: int64 token ids, of any shape.

    Returns:
        float64 of the shape of `ids`.
    """
    bits = _mix_tensor(ids ^ _signed(_key(seed, fields)))
    return -torch.log(-torch.log1p(-_uniform(bits)))


def gumbel_max(scores: torch.Tensor, seed: int, position: int) -> torch.Tensor:
    """Draw a token from softmax(scores) by the Gumbel-max trick (Maddison et al. 2014, section 2).

    Args:
        scores: `[vocab]` processed scores, -inf where a filter removed the token.
        seed: of the row.
        position: index of the token in the row's committed ids.

    Returns:
        A scalar int64 tensor; ties go to the lowest id.
    """
    if scores.is_cpu:  # elsewhere finding the survivors would be a host read
        ids = (scores > -torch.inf).nonzero().flatten()
        if 0 < ids.numel() < scores.numel():
            return ids[(scores[ids].double() + gumbel(seed, (position,), ids)).argmax()]
    ids = torch.arange(scores.numel(), device=scores.device)
    return (scores.double() + gumbel(seed, (position,), ids)).argmax()


def derive(seed: int, index: int) -> int:
    """Return the seed of a batch's row, below 2**63."""
    return _key(seed, (index,)) >> 1
