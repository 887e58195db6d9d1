"""Training a draft model from some of the target's own layers, on what the target would say (distillation).

Embeddings and head stay the target's and are not stored: they are most of a small model, and the target has them in memory
(DistillSpec, Zhou et al. 2023, arXiv:2310.08461, for the loss).
"""

from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import nn

from outrider import DrafterOptions, InputError, Losses, ModelError, TrainBatch, Trainee, TrainStart
from outrider_drafters.draft_model.shared import read_body
from outrider_drafters.files import write_files
from outrider_drafters.teaching import Teacher, draft_tokens


class DraftModelTrainOptions(DrafterOptions):
    """Options of training `draft-model`."""

    layers: tuple[int, ...] | None = Field(
        default=None, description="the target's layers that it begins with, counted from 0; by default first and last"
    )
    draft_vocab: int = Field(default=8192, ge=0, description="tokens that are compared, the commonest; 0 is all")
    from_target: bool = Field(default=True, description="begin with the weights of these layers, not with random ones")


class DraftModelTrainee(Trainee):
    """A few decoder layers between the target's embeddings and its head.

    Args:
        body: the layers and the last norm, as a transformers model without embeddings.
        prefix: of its tensors' names in a whole model.
        start: what it is trained for.
        tokens: `[draft vocab]` int64, the target's ids that are compared.
    """

    def __init__(self, body: nn.Module, prefix: str, start: TrainStart, tokens: torch.Tensor) -> None:
        super().__init__()
        self.body, self._prefix, self._start = body, prefix, start
        parts: Any = start.target.parts
        # Not as a part of this module, which would be trained and moved.
        self._embed: Any = parts.embeddings.module.__call__
        self._teacher = Teacher(parts, tokens)
        self.layers = (start.target.num_layers,)

    def forward(self, batch: TrainBatch) -> Losses:
        """Compare what it says after every token with the target."""
        with torch.no_grad():
            embeds = self._embed(batch.ids)
        output: Any = self.body(inputs_embeds=embeds.float(), use_cache=False)
        taught = self._teacher.of(batch, batch.states[self.layers[0]])
        one = taught.loss(output.last_hidden_state[:, :-1], 0, self._teacher.logits)
        return Losses(one.total, one.loss[None], one.right[None], one.count[None])

    def save(self, folder: Path) -> None:
        """Write a transformers model without its embeddings."""
        tensors = {
            f"{self._prefix}.{name}": one.detach().to("cpu", torch.bfloat16)
            for name, one in self.body.state_dict().items()
        }
        config = self.body.config.to_dict()  # type: ignore[union-attr,operator]
        config |= {"base_model_name_or_path": self._start.model, "shares_embeddings": True, "dtype": "bfloat16"}
        write_files(folder, config, "model.safetensors", tensors)


def make_trainee(start: TrainStart, options: DraftModelTrainOptions) -> DraftModelTrainee:
    """Make a draft model to train, or read one to go on with.

    Raises:
        InputError: the target's layers can't be taken, or the options name others than it has.
    """
    target, parts = start.target, start.target.parts
    if parts is None:
        raise InputError("draft-model can't be trained: the target shows no parts of itself")
    tokens = draft_tokens(start.counts, options.draft_vocab)
    if start.heads is not None:
        body, prefix = read_body(start.heads)
        return DraftModelTrainee(body.float().requires_grad_(True), prefix, start, tokens)
    layers = options.layers or (0, target.num_layers - 1)
    wrong = [one for one in layers if not 0 <= one < target.num_layers]
    if wrong or len(layers) >= target.num_layers:
        raise InputError(
            f"draft-model: layers = {list(layers)}, and the target has layers 0 to {target.num_layers - 1}; take fewer than all"
        )
    try:
        shared = parts.early_exit(len(layers))
        body, prefix = _copied(shared, [parts.layer(one) for one in layers], from_target=options.from_target)
    except ModelError as error:
        raise InputError(f"draft-model can't be trained: {error}") from error
    return DraftModelTrainee(body, prefix, start, tokens)


def _copied(shared: Any, layers: list[Any], *, from_target: bool) -> tuple[nn.Module, str]:
    """Return a copy of a model's body with these layers, without embeddings, and the body's name in the model."""
    made: Any = type(shared)(shared.config).float()
    place = next(n for n, part in made.named_modules() if isinstance(part, nn.ModuleList) and len(part) == len(layers))
    if from_target:
        made.load_state_dict({name: one.float() for name, one in shared.state_dict().items()})
        for mine, theirs in zip(made.get_submodule(place), layers, strict=True):
            mine.load_state_dict({name: one.float() for name, one in theirs.state_dict().items()})
    prefix = made.base_model_prefix
    body = getattr(made, prefix)
    body.set_input_embeddings(None)
    body.requires_grad_(True)
    return body, prefix
