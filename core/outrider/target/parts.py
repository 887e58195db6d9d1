"""The target's parts that drafters may use, read-only: views on the model's own modules, which stay as they are."""

import copy
from functools import cached_property
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from outrider.errors import ModelError
from outrider.target import compat
from outrider.target.head import Embeddings, Head, find


class Parts:
    """Parts of a model.

    Args:
        model: whose.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model

    @cached_property
    def _ends(self) -> tuple[Embeddings, Head]:
        return find(self._model)

    @property
    def embeddings(self) -> Embeddings:
        """Makes of ids what the first decoder layer reads.

        Raises:
            ModelError: the model has no head of its own.
        """
        return self._ends[0]

    @property
    def head(self) -> Head:
        """Makes of final states, after the last norm, the model's logits; checked against a forward at first use.

        Raises:
            ModelError: its logits come about in another way.
        """
        return self._ends[1]

    @property
    def config(self) -> Any:
        """A copy of the config of the model's text part."""
        return copy.deepcopy(self._model.config.get_text_config(decoder=True))

    def layer(self, index: int) -> Any:
        """Return a decoder layer, counted from 0, or from the end below it.

        Raises:
            ModelError: the model has no list of layers.
        """
        return self._model.get_submodule(self._list_of_layers())[index]  # type: ignore[index]

    def _list_of_layers(self) -> str:
        model: Any = self._model
        total = compat.decoder_layers(model)
        found = (name for name, part in model.named_modules() if isinstance(part, nn.ModuleList) and len(part) == total)
        where: str | None = next(found, None)
        if model.config.is_encoder_decoder or where is None:
            raise ModelError(f"{type(model).__name__} has no list of {total} decoder layers")
        return where

    def early_exit(self, layers: int) -> PreTrainedModel:
        """Return a model that leaves after the first decoder layers, with the target's norm and head.

        It shares every weight with the target: only the modules on the way to the list of layers are copied, without what is
        in them, and the list is a shorter one.

        Args:
            layers: how many decoder layers stay, at least one and fewer than the target has.

        Raises:
            ModelError: the model's layers are no list that could be shortened.
        """
        model, total = self._model, compat.decoder_layers(self._model)
        where = self._list_of_layers()
        if not 1 <= layers < total:
            raise ModelError(
                f"an early exit after {layers} layers: the target has {total}, so 1 to {total - 1} are possible"
            )
        config = _shortened(model.config, layers, total)
        *above, last = where.split(".")
        root: Any = _shell(model, config)
        part = root
        for name in above:
            part._modules[name] = _shell(part._modules[name], config)
            part = part._modules[name]
        part._modules[last] = nn.ModuleList(list(part._modules[last])[:layers])
        return root  # type: ignore[no-any-return]


def _shell(module: Any, config: Any) -> Any:
    """Copy a module, but nothing in it."""
    shell = copy.copy(module)
    shell._modules = dict(module._modules)
    # A hook that spreads layers over devices calls the module that it was made for; those of the layers stay.
    for name in ("forward", "_hf_hook", "_old_forward"):
        shell.__dict__.pop(name, None)
    if hasattr(shell, "config"):
        own = shell.config
        shell.config = config if type(own) is type(config) else config.get_text_config(decoder=True)
    return shell


def _shortened(config: Any, layers: int, total: int) -> Any:
    """Copy a config for fewer layers; what it lists for every layer is cut too."""
    config = copy.deepcopy(config)
    text = config.get_text_config(decoder=True)
    for name, value in list(vars(text).items()):
        if isinstance(value, list) and len(value) == total:
            setattr(text, name, value[:layers])
    text.num_hidden_layers = layers
    return config
