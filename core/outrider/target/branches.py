"""Which guesses see which: trees that grow a few nodes at a time, for several rows at once."""

import torch


class Branches:
    """The ancestors of all guesses so far.

    Args:
        rows: how many trees.
        device: of the masks.
    """

    def __init__(self, rows: int, device: torch.device) -> None:
        self._sees = torch.zeros(rows, 0, 0, dtype=torch.bool, device=device)

    def __len__(self) -> int:
        return self._sees.shape[1]

    def grow(self, tokens: torch.Tensor, parents: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Take in guesses below earlier ones.

        Args:
            tokens: `[rows, count]` int64.
            parents: `[rows, count]` int64, an earlier guess or `ROOT` each; None where each hangs from its row's last guess.

        Returns:
            The parents, and `[rows, count, earlier + count]` bool, which guesses each sees: its ancestors and itself.
        """
        (rows, count), earlier = tokens.shape, len(self)
        if parents is None:
            parents = torch.full_like(tokens, earlier - 1)
        # The first line of what parents see is the root's, which is no guess.
        above = torch.nn.functional.pad(self._sees, (0, 0, 1, 0))
        own = torch.eye(count, dtype=torch.bool, device=tokens.device).expand(rows, -1, -1)
        sees = torch.cat([above.gather(1, (parents + 1)[..., None].expand(-1, -1, earlier)), own], 2)
        self._sees = torch.cat([torch.nn.functional.pad(self._sees, (0, count)), sees], 1)
        return parents, sees
