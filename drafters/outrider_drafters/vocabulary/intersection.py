"""The tokens that two models have in common, over which a draft model's law is one over the target's ids.

For the rules that compare laws (Timor et al. 2025, token-level intersection), and for drafts coupled to the target's noise.
"""

from dataclasses import dataclass
from typing import Final, Self

import torch

from outrider import InputError
from outrider_drafters.vocabulary.vocabularies import Vocabulary

LEAST_SHARE: Final = 0.05
"""Share of the draft model's tokens below which a law over the rest says too little."""


@dataclass(frozen=True, slots=True)
class Intersection:
    """The tokens of a draft model that stand for the same bytes as one of the target's, and the end of a text.

    A law q over them, `restrict(logits).softmax(-1)`, is honest: it is what is drawn from, and `DraftLaws(q, id_map)` says what
    its columns are.

    Args:
        draft_ids: `[common]` int64, the draft model's ids.
        id_map: `[common]` int64, the target's; no two are the same.
        share: of the draft model's tokens that are common.
    """

    draft_ids: torch.Tensor
    id_map: torch.Tensor
    share: float

    @classmethod
    def of(cls, target: Vocabulary, draft: Vocabulary) -> Self:
        """Compare two vocabularies, once for a pair: it takes a look at every token.

        Raises:
            InputError: they have next to nothing in common.
        """
        theirs, ours = _by_bytes(target), _by_bytes(draft)
        pairs = [(token, theirs[text]) for text, token in ours.items() if text in theirs]
        share = len(pairs) / max(1, len(ours))
        if share < LEAST_SHARE:
            raise InputError(
                f"the draft model and the target have {len(pairs)} of the draft model's {len(ours)} tokens in common, too few "
                f"for a draft by tokens; use the rule 'match', which drafts by text, or a draft model of the target's tokenizer"
            )
        ends = (draft.end(), target.end())
        if ends[0] is not None and ends[1] is not None and ends[0] < draft.size and ends[1] < target.size:
            pairs.append((ends[0], ends[1]))
        draft_ids, id_map = torch.tensor(sorted(pairs), dtype=torch.long).unbind(1)
        return cls(draft_ids.contiguous(), id_map.contiguous(), share)

    def restrict(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the draft model's logits `[..., draft vocab]` of the common tokens, `[..., common]`."""
        return logits.index_select(-1, self.draft_ids)

    def to(self, device: torch.device) -> "Intersection":
        """Move the tensors to `device`."""
        return Intersection(self.draft_ids.to(device), self.id_map.to(device), self.share)


def _by_bytes(vocabulary: Vocabulary) -> dict[bytes, int]:
    """Return the token of every text; one that is a byte of last resort only where no other is the same."""
    found: dict[bytes, int] = {}
    for token in vocabulary.words():
        text = vocabulary.spelled(token) or b""
        if text not in found or found[text] in vocabulary.byte_ids:
            found[text] = token
    return found
