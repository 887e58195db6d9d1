"""What came after every token when the target last scored it: the adjacency matrix of token recycling.

Luo et al. 2024 (arXiv:2408.08696, section 3). Nothing is read from the device, and which of equal tokens counts is the same on
every device.
"""

import torch

UNKNOWN = -1


class Successors:
    """The likeliest successors of every token, with their logits; memory is 12 bytes for every one of `vocab * count`.

    Args:
        vocab: tokens of the target.
        count: successors of a token.
        device: where they lie.
    """

    def __init__(self, vocab: int, count: int, device: torch.device) -> None:
        # The last row takes what does not count, so that writing needs no host read.
        self._ids = torch.full((vocab + 1, count), UNKNOWN, dtype=torch.long, device=device)
        self._logits = torch.full((vocab + 1, count), -torch.inf, dtype=torch.float32, device=device)

    def learn(self, tokens: torch.Tensor, logits: torch.Tensor, worth: torch.Tensor) -> None:
        """Take in what the target says after some tokens; of equal tokens the worthiest counts.

        Args:
            tokens: `[nodes]` int64.
            logits: `[nodes, vocab]`.
            worth: `[nodes]` int64, no two the same.
        """
        values, ids = logits.float().topk(self._ids.shape[1])
        beaten = ((tokens[:, None] == tokens) & (worth[:, None] < worth)).any(1)
        rows = torch.where(beaten, len(self._ids) - 1, tokens)
        self._ids[rows], self._logits[rows] = ids, values

    def of(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the successors of tokens `[nodes]`, the likeliest first, `UNKNOWN` where there are none, and their logits."""
        return self._ids[tokens], self._logits[tokens]
