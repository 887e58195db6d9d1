"""The target as a black box: open a cache, read prompts, score trees, commit."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from transformers import PreTrainedModel

from outrider.draft.batch import TreeBatch
from outrider.draft.contract import TargetInfo
from outrider.draft.cost import typical_cost
from outrider.draft.timings import Timings, gently_rising
from outrider.errors import ModelError
from outrider.target import compat
from outrider.target.call import Caller, Scored
from outrider.target.masked import MaskedTier
from outrider.target.parts import Parts
from outrider.target.tier import PLAIN, Opening, Piece, Tier
from outrider.target.trust import ProbeResult, Trust

# What configs call the longest context that a model was made for.
_POSITIONS: Final = ("max_position_embeddings", "max_target_positions", "max_seq_len", "n_positions", "n_ctx")
PREFILL_CHUNK: Final = 2048
"""Most tokens of a prompt that go into one forward, so that its memory does not grow with the prompt."""


class Target:
    """A model whose drafts can be verified exactly; made by `outrider.load`.

    Only public methods of the model are called, and nothing on it is changed. A target holds no state of a row, so it may
    serve many generations, in several threads too.

    Args:
        model: any causal language model of transformers that passed the probe.
        tokenizer: its tokenizer, or None where prompts come as ids.
        tier: which way of serving it the probe found to be exact.
        trust: in which contexts it is.
        costs: what its forwards were seen to cost by their rows; by default nothing is known.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: Any = None,
        tier: type[Tier[Any]] = MaskedTier,
        trust: Trust | None = None,
        costs: Timings | None = None,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.ranks = compat.ranks_of(model)
        """The processes that hold the model together."""
        self.info = describe(model, tokenizer, whole=not self.ranks.several)
        self.tier = tier(Caller(model), self.info.device)
        self.trust = trust or Trust()
        self.costs = costs if costs is not None else Timings(gently_rising, typical_cost)
        self.probed: ProbeResult | None = None

    def __repr__(self) -> str:
        dtype = str(self.info.dtype).removeprefix("torch.")
        return f"Target({type(self.model).__name__}, {dtype} on {self.info.device}, tier {self.tier.name})"

    def open(self, rows: int, want: Opening = PLAIN) -> Any:
        """Make the empty cache of `rows` rows.

        Raises:
            ModelError: the model is in training mode, or can't be served with such a cache.
        """
        if self.model.training:
            raise ModelError(
                "the model is in training mode, where dropout makes every forward differ; call model.eval() first"
            )
        return self.tier.open(rows, want)

    def prefill(
        self,
        cache: Any,
        prompts: Sequence[Sequence[int]],
        hear: Callable[[list[Piece]], None] = lambda _: None,
        chunk: int = PREFILL_CHUNK,
    ) -> torch.Tensor:
        """Read prompts, or what follows the ids that the cache holds.

        Args:
            cache: empty, or of a single row.
            prompts: every row's ids, one or more.
            hear: told what every chunk gave, in order.
            chunk: most ids of a row in one forward.

        Returns:
            `[rows, vocab]` logits after each row's last id; no others are computed where the model allows it.
        """
        last: dict[int, torch.Tensor] = {}
        for pieces in self.tier.read(cache, prompts, chunk):
            last |= {piece.row: piece.scored.logits[0, -1] for piece in pieces}
            hear(pieces)
        return torch.stack([last[row] for row in range(len(prompts))])

    def forward(self, cache: Any, roots: Sequence[int], trees: TreeBatch) -> Scored:
        """Score every row's root and draft tree.

        Args:
            cache: the rows' cache; holds the forward until `commit` settles it.
            roots: the last committed token of every row, which is not in the cache yet.
            trees: the drafts.

        Returns:
            `[rows, 1 + width, vocab]` logits and hidden states, the root's first; padding's are meaningless.
        """
        return self.tier.forward(cache, roots, trees)

    def commit(self, cache: Any, width: int, paths: Sequence[Sequence[int]]) -> None:
        """Keep each row's root and accepted nodes of the last forward, and drop the rest.

        Args:
            cache: the rows' cache.
            width: the width of the trees of the last forward.
            paths: the accepted nodes of every row.
        """
        self.tier.commit(cache, width, paths)

    def room(self, ids: Sequence[int], columns: int = 0) -> int | None:
        """Return how many ids may be drafted after `ids`; None for as many as one likes. See `Trust`.

        Args:
            ids: of a row.
            columns: of its cache, which may hold holes.
        """
        ends = [] if self.info.max_positions is None else [self.info.max_positions - len(ids)]
        trusted = self.trust.room(self, ids, columns)
        return max(0, min([*ends, *([] if trusted is None else [trusted])])) if ends or trusted is not None else None

    def parts_rows(self, longest: int) -> bool:
        """Say whether rows of which one may get this long can't share a forward.

        The longest one's rotary frequencies would be used for all of them.
        """
        switch = compat.RopeSwitch.of(self.model.config.get_text_config(decoder=True))
        return switch is not None and longest > switch.length

    def select(self, cache: Any, rows: Sequence[int]) -> None:
        """Keep these rows of a cache only."""
        self.tier.select(cache, rows)


def describe(model: PreTrainedModel, tokenizer: Any, *, whole: bool = True) -> TargetInfo:
    """Read off the model what drafters may know of it.

    Args:
        model: any.
        tokenizer: its.
        whole: whether this process holds all of it; else it has no parts to show.
    """
    config: Any = model.config.get_text_config(decoder=True)
    switch = compat.RopeSwitch.of(config)
    lengths = [*(getattr(config, name, None) for name in _POSITIONS), switch.length if switch else None]
    embeddings: Any = model.get_input_embeddings()
    head: Any = model.get_output_embeddings()
    weight = getattr(head if head is not None else embeddings, "weight", None)
    if weight is None or not hasattr(embeddings, "weight"):
        raise ModelError(f"{type(model).__name__} has no single head over one vocabulary, so it makes no single text")
    return TargetInfo(
        vocab_size=weight.shape[0],
        hidden_size=getattr(config, "hidden_size", None) or embeddings.weight.shape[1],
        num_layers=compat.decoder_layers(model),
        max_positions=min((one for one in lengths if isinstance(one, int) and one > 0), default=None),
        eos_ids=compat.eos_ids(model.generation_config) if model.generation_config else frozenset(),
        dtype=model.dtype,
        device=embeddings.weight.device,
        tokenizer=tokenizer,
        parts=Parts(model) if whole else None,
    )
