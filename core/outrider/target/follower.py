"""A model that reads along with texts: what drafters with a model of their own are built on."""

from collections.abc import Sequence

from outrider.target.groups import Groups
from outrider.target.masked import MaskedTier
from outrider.target.model import Target
from outrider.target.reading import ChainGroup, KeysValues, TextGroup, TreeGroup


class Follower(Groups[Sequence[int], TextGroup]):
    """Reads texts as they grow, several in one forward, and guesses beyond them, chains or trees.

    Of every text that `read` is given all but the end is known from before. Guesses that did not come true are taken back
    exactly, and every token is fed once: those that came true stay. Ids that the model does not know are read as its last one.

    Args:
        model: what reads, from `outrider.load`.
    """

    def __init__(self, model: Target) -> None:
        super().__init__()
        self._model = model

    @property
    def trees(self) -> bool:
        """Whether guesses may branch; else they are chains, one row a forward."""
        return isinstance(self._model.tier, MaskedTier)

    def _open(self, rows: int) -> list[TextGroup]:
        if isinstance(self._model.tier, MaskedTier):
            return [TreeGroup(self._model.tier, rows, self._model.info.vocab_size)]
        return [ChainGroup(self._model) for _ in range(rows)]

    def extend(
        self,
        rows: Sequence[int],
        starts: Sequence[int],
        texts: Sequence[Sequence[int]],
        contents: Sequence[KeysValues],
    ) -> None:
        """Take over keys and values of the texts' ids, which another model with the same layers has computed.

        What follows a row's start is forgotten. A row of which less than that was read stays as it is; `read` reads it then.

        Args:
            rows: whose.
            starts: which of each row's ids come first.
            texts: those ids, one or more a row.
            contents: for every row and layer keys and values `[heads, ids, width]`.

        Raises:
            ModelError: this model keeps no cache that can take them; see `trees`.
        """
        place = {row: at for at, row in enumerate(rows)}
        for ids, group in self._groups:
            mine = [place.get(row) for row in ids]
            if any(at is not None for at in mine):
                group.extend([None if at is None else (starts[at], texts[at], contents[at]) for at in mine])
