"""Training EAGLE heads: the training-time test of EAGLE-3, for EAGLE-1's heads too.

EAGLE-3 (Li et al. 2025, arXiv:2503.01840, section 3.2); the term over the likeliest tokens is HASS's (Zhang et al. 2024,
arXiv:2408.15766, section 3.1); the loss on features is EAGLE-1's (Li et al. 2024, arXiv:2401.15077, section 3.3).
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch
from pydantic import Field

from outrider import DrafterOptions, InputError, Losses, TrainBatch, Trainee, TrainStart
from outrider_drafters.eagle.checkpoint import read_eagle
from outrider_drafters.eagle.config import EagleConfig, LayerIds, Method
from outrider_drafters.eagle.lessons import Lessons
from outrider_drafters.eagle.network import EagleNetwork
from outrider_drafters.eagle.words import check_words
from outrider_drafters.eagle.writing import Named, write_eagle
from outrider_drafters.teaching import Teacher, draft_tokens, widened

_NEEDED: Final = ("num_attention_heads", "intermediate_size")


class EagleTrainOptions(DrafterOptions):
    """Options of training `eagle` and `eagle3`."""

    draft_vocab: int = Field(
        default=8192,
        ge=0,
        description="tokens that are learnt, the commonest; 0 is all; more than earlier heads have adds to theirs",
    )
    layers: tuple[int, ...] | None = Field(
        default=None, description="eagle3: hidden states that are read; by default a low, a middle and a high layer's"
    )
    num_layers: int = Field(default=1, ge=1, description="decoder layers of the head")
    steps: int = Field(default=3, ge=1, le=16, description="steps of the training-time test")
    step_decay: float = Field(default=0.8, gt=0.0, le=1.0, description="weight of a step against the one before")
    top_k: int = Field(default=0, ge=0, description="HASS: the target's likeliest tokens that are learnt once more")
    top_k_weight: float = Field(default=1.0, ge=0.0, description="of that")
    feature_weight: float = Field(default=1.0, ge=0.0, description="eagle: of the loss on features")
    from_target: bool = Field(default=True, description="begin with the weights of the target's last layer")


class EagleTrainee(Trainee):
    """A head that is trained.

    Args:
        config: of the head.
        network: its network.
        start: what it is trained for.
        tokens: `[draft vocab]` int64, the target's ids that are learnt.
        options: of the training.
    """

    def __init__(
        self,
        config: EagleConfig,
        network: EagleNetwork,
        start: TrainStart,
        tokens: torch.Tensor,
        options: EagleTrainOptions,
    ) -> None:
        super().__init__()
        parts = start.target.parts
        if parts is None:
            raise InputError(f"{config.method} can't be trained: the target shows no parts of itself")
        self.network = network
        self._config, self._start, self._options = config, start, options
        self._embeddings = parts.embeddings
        self._teacher = Teacher(parts, tokens, options.top_k, options.top_k_weight)
        self._last = start.target.num_layers
        self.layers = tuple(sorted({*config.feature_layers, self._last}))
        self._tokens = tokens
        check_words(_saved(config), _saved(config).layout)

    def forward(self, batch: TrainBatch) -> Losses:
        """Unroll the head over a batch and compare every step with the target."""
        config, steps = self._config, self._options.steps
        features = torch.cat([batch.states[layer] for layer in config.feature_layers], -1)[:, :-1]
        embeds = self._embeddings(batch.ids[:, 1:]).to(features.dtype)
        taught = self._teacher.of(batch, batch.states[self._last])
        lessons, hidden = Lessons(config), self.network.fuse(features)
        total = features.sum() * 0
        found = []
        for step in range(min(steps, hidden.shape[1] - 1)):
            count = embeds.shape[1] - step
            places = torch.arange(step, step + count, device=hidden.device).expand(len(hidden), -1)
            hidden, states = self.network(embeds[:, step:], hidden[:, :count], places, lessons.attend)
            # Below the pair at t lies the token t + 2 + step, which the target's state at t + 1 + step tells.
            one = taught.loss(states[:, :-1], step + 1, self._logits)
            weight = self._options.step_decay**step
            total = total + weight * one.total
            if config.method == "eagle" and self._options.feature_weight:
                wanted = batch.states[self._last][:, step + 1 :]
                total = total + weight * self._options.feature_weight * taught.feature_loss(hidden, wanted, step + 1)
            found.append(one)
        return Losses(
            total,
            torch.stack([one.loss for one in found]),
            torch.stack([one.right for one in found]),
            torch.stack([one.count for one in found]),
        )

    def _logits(self, states: torch.Tensor) -> torch.Tensor:
        own = self.network.logits(states)
        return self._teacher.logits(states) if own is None else own

    def save(self, folder: Path) -> None:
        """Write the head: EAGLE-3's as speculators do, EAGLE-1's as SafeAILab does."""
        tensors = {name: one.detach().to("cpu", torch.bfloat16) for name, one in self.network.state_dict().items()}
        whole = self._config.draft_vocab_size == self._config.vocab_size
        ids = None if whole else self._tokens.cpu()
        target = Named(self._start.model, _architectures(self._start))
        write_eagle(folder, _saved(self._config), tensors, ids, _saved(self._config).layout, target)


def make_trainee(method: Method, start: TrainStart, options: EagleTrainOptions) -> EagleTrainee:
    """Make a head to train, or read one to go on with.

    Raises:
        InputError: the target shows no parts of itself, or its config lacks what a head's needs.
    """
    if start.target.parts is None:
        raise InputError(f"{method} can't be trained: the target shows no parts of itself")
    if start.heads is not None:
        config, network = read_eagle(start.heads, start.target, method=method)
        ids = network.d2t_ids
        tokens = ids if ids is not None else torch.arange(config.vocab_size)
        if method == "eagle":
            tokens = draft_tokens(start.counts, options.draft_vocab)
        elif "draft_vocab" in options.model_fields_set:
            known = tokens.cpu()  # as the counts are
            tokens = widened(known, start.counts, options.draft_vocab)
            config = _widen(network.float(), start, known, tokens) if len(tokens) > len(known) else config
        return EagleTrainee(config, network.float().requires_grad_(True), start, tokens, options)
    tokens = draft_tokens(start.counts, options.draft_vocab)
    config = _config(method, start, options, len(tokens)).for_target(start.target)
    network = EagleNetwork(config)
    _begin(network, start, tokens, from_target=options.from_target)
    return EagleTrainee(config, network, start, tokens, options)


def _config(method: Method, start: TrainStart, options: EagleTrainOptions, vocab: int) -> EagleConfig:
    target = start.target
    theirs: Any = target.parts.config  # type: ignore[union-attr]
    lacking = [name for name in _NEEDED if getattr(theirs, name, None) is None]
    if lacking:
        raise InputError(f"{method} can't be trained: the target's config has no {', '.join(lacking)}")
    heads = theirs.num_attention_heads
    rope = getattr(theirs, "rope_parameters", None) or {}
    layers = options.layers or _low_middle_high(target.num_layers)
    eagle3 = method == "eagle3"
    wrong = [one for one in layers if not 0 <= one < target.num_layers]
    if eagle3 and (wrong or len(set(layers)) < len(layers)):
        raise InputError(
            f"{method}: layers = {list(layers)}, and they must be distinct and among 0 to {target.num_layers - 1}: the "
            f"target has {target.num_layers} layers"
        )
    return EagleConfig(
        folder=Path(start.model),
        method=method,
        layout="speculators" if eagle3 else "safeailab",
        hidden_size=target.hidden_size,
        target_hidden_size=target.hidden_size,
        intermediate_size=theirs.intermediate_size,
        num_layers=options.num_layers,
        num_heads=heads,
        num_kv_heads=getattr(theirs, "num_key_value_heads", None) or heads,
        head_dim=getattr(theirs, "head_dim", None) or target.hidden_size // heads,
        rms_norm_eps=getattr(theirs, "rms_norm_eps", 1e-6),
        hidden_act=getattr(theirs, "hidden_act", "silu"),
        vocab_size=target.vocab_size,
        draft_vocab_size=vocab if eagle3 else target.vocab_size,
        rope={"rope_type": "default", "rope_theta": float(rope.get("rope_theta") or 10000.0)},
        max_positions=target.max_positions or 2048,
        features=len(layers) if eagle3 else 1,
        layer_ids=LayerIds(layers if eagle3 else None),
        norm_before_residual=eagle3,
        fc_norm=eagle3,
        norm_output=eagle3,
        own_head=eagle3,
        trained_for=start.model,
    )


def _low_middle_high(layers: int) -> tuple[int, ...]:
    """Return the states that a head reads by default; of a shallow target what its last three layers begin with."""
    usual = (2, layers // 2, layers - 3)
    return usual if usual[0] < usual[1] < usual[2] else tuple(range(max(0, layers - 3), layers))


@torch.no_grad()
def _begin(network: EagleNetwork, start: TrainStart, tokens: torch.Tensor, *, from_target: bool) -> None:
    """Give a new head its first weights: its head is the target's; its last layer the target's, where the shapes are."""
    config, parts = network.config, start.target.parts
    network.fc.weight.normal_(std=0.02)
    size = config.hidden_size
    network.fc.weight[:, -size:] += torch.eye(size)
    rows: Any = parts.head.narrow(tokens).module.weight  # type: ignore[union-attr]
    if network.lm_head is not None:
        network.lm_head.weight.copy_(rows)
    if not from_target:
        return
    theirs = {name: one.float().cpu() for name, one in parts.layer(-1).state_dict().items()}  # type: ignore[union-attr]
    for layer in network.layers:
        own = dict(layer.named_parameters())
        if "hidden_norm.weight" in own:  # its own input norm is the embeddings'
            own["input_layernorm.weight"] = own["hidden_norm.weight"]
        for name in [name for name in own if name in theirs]:  # in this order, since it draws
            mine, values = own[name], theirs[name]
            if mine.shape == values.shape:
                mine.copy_(values)
            elif mine.ndim == 2 and mine.shape == (values.shape[0], 2 * values.shape[1]):
                mine[:, values.shape[1] :] = values
                mine[:, : values.shape[1]].normal_(std=0.02)


@torch.no_grad()
def _widen(network: EagleNetwork, start: TrainStart, known: torch.Tensor, tokens: torch.Tensor) -> EagleConfig:
    """Give a head rows for more tokens: the target's, turned as its own were in training, by least squares."""
    own: Any = network.lm_head
    theirs = [start.target.parts.head.narrow(ids).module.weight.float() for ids in (known, tokens)]  # type: ignore[union-attr]
    # On the CPU, whose solver takes fewer tokens than the width too.
    turn = torch.linalg.lstsq(theirs[0].cpu(), own.weight.cpu()).solution
    rows = theirs[1] @ turn.to(theirs[1].device)
    rows[torch.searchsorted(tokens, known)] = own.weight
    network.lm_head = torch.nn.Linear(rows.shape[1], rows.shape[0], bias=False, device=rows.device)
    network.lm_head.weight.copy_(rows)
    network.d2t_ids = tokens.to(rows.device)
    network.config = replace(network.config, draft_vocab_size=len(tokens))
    return network.config


def _saved(config: EagleConfig) -> EagleConfig:
    """Return the config as it is written, with the layers that are read counted by inputs."""
    if config.method == "eagle":
        return replace(config, layout="safeailab")
    return replace(config, layout="speculators", layer_ids=LayerIds(config.feature_layers))


def _architectures(start: TrainStart) -> tuple[str, ...]:
    return tuple(getattr(start.target.parts.config, "architectures", None) or ())  # type: ignore[union-attr]
