"""The target's embeddings and head, for drafters that work on its hidden states."""

from dataclasses import dataclass
from typing import Any, Final

import torch
from transformers import PreTrainedModel

from outrider.errors import ModelError
from outrider.target import compat

_CAPS: Final = ("final_logit_softcapping", "logits_soft_cap", "logit_soft_cap")
_SAMPLE: Final = 8
_CLOSE: Final = {torch.float64: 1e-6, torch.float32: 1e-3}
_CLOSE_IN_HALF: Final = 0.05


@dataclass(frozen=True, slots=True)
class Head:
    """Makes logits of final states as the model does: its output embeddings, a factor, and a soft cap.

    Args:
        module: the model's output embeddings.
        factor: on what they give.
        cap: the logits' soft cap (cap tanh(x / cap)), or None.
    """

    module: Any
    factor: float = 1.0
    cap: float | None = None

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """Return logits `[..., vocab]` of states `[..., hidden]`, on the head's device."""
        weight = getattr(self.module, "weight", states)
        return self._finish(self.module(states.to(weight.device, weight.dtype)))

    def narrow(self, ids: torch.Tensor) -> "Head":
        """Return a head of some tokens only, on copies of their rows.

        Args:
            ids: `[tokens]` int64.

        Raises:
            ModelError: the head has no plain weight.
        """
        weight, bias = getattr(self.module, "weight", None), getattr(self.module, "bias", None)
        if weight is None or weight.ndim != 2 or not weight.is_floating_point():
            raise ModelError("the target's head has no plain weight whose rows could be taken")
        where = ids.to(weight.device)
        rows = torch.nn.Linear(weight.shape[1], len(ids), bias=bias is not None, device="meta")
        rows.weight = torch.nn.Parameter(weight.detach()[where], requires_grad=False)
        if bias is not None:
            rows.bias = torch.nn.Parameter(bias.detach()[where], requires_grad=False)
        return Head(rows, self.factor, self.cap)

    def _finish(self, logits: torch.Tensor) -> torch.Tensor:
        logits = logits if self.factor == 1.0 else logits * self.factor
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Makes of ids what the first decoder layer reads.

    Args:
        module: the model's input embeddings.
        factor: on what they give.
    """

    module: Any
    factor: float = 1.0

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        """Return embeddings `[..., hidden]` of ids, on the embeddings' device."""
        found: torch.Tensor = self.module(ids.to(self.module.weight.device))
        return found if self.factor == 1.0 else found * self.factor


@torch.no_grad()
def find(model: PreTrainedModel) -> tuple[Embeddings, Head]:
    """Find out how a model uses its embeddings and its head, from one forward.

    Factors (as in Granite, Cohere or Gemma) are measured; a soft cap is read off the config, which may name one that is not
    used. Where learned positions are added to the embeddings, these are taken without.

    Raises:
        ModelError: its logits are not those of its output embeddings on its final states.
    """
    inner, outer = model.get_input_embeddings(), model.get_output_embeddings()
    names = compat.ForwardNames.of(model)
    if outer is None or model.config.is_encoder_decoder:
        raise ModelError(f"{type(model).__name__} has no output embeddings that drafters could use")
    vocab: int = inner.weight.shape[0]  # type: ignore[assignment,index]
    ids = torch.arange(1, _SAMPLE + 1, device=inner.weight.device)[None] % vocab  # type: ignore[arg-type]
    output: Any = model(**{names.ids: ids}, output_hidden_states=True, use_cache=False)
    states = compat.hidden_states(output)
    named = [getattr(model.config.get_text_config(), name, None) for name in _CAPS]
    heads = (_fitted(outer, cap, states[-1], output.logits) for cap in (*filter(None, named), None))
    head = next((one for one in heads if _close(one(states[-1]), output.logits)), None)
    if head is None:
        raise ModelError(
            f"{type(model).__name__}'s logits are not those of its output embeddings on its final states, so drafters that "
            f"work on them can't serve it"
        )
    embeddings = Embeddings(inner)
    factor = _factor(states[0], embeddings(ids))
    scaled = Embeddings(inner, factor or 1.0)
    return (scaled if _close(scaled(ids), states[0]) else embeddings), head


def _fitted(module: Any, cap: float | None, states: torch.Tensor, logits: torch.Tensor) -> Head:
    """Return the head with a soft cap whose factor fits best."""
    plain = logits if cap is None else cap * torch.atanh((logits / cap).double().clamp(-1, 1))
    return Head(module, _factor(plain, Head(module)(states)) or 1.0, cap)


def _factor(found: torch.Tensor, raw: torch.Tensor) -> float | None:
    """Return the factor between two tensors by least squares, 1 where it is 1 up to rounding; None where there is nothing."""
    found, raw = found.double(), raw.to(found.device).double()
    finite = found.isfinite() & raw.isfinite()
    square = float((raw[finite] * raw[finite]).sum())
    if not square:
        return None
    factor = float((found[finite] * raw[finite]).sum()) / square
    return 1.0 if abs(factor - 1.0) < _CLOSE_IN_HALF / 50 else factor


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    limit = _CLOSE.get(other.dtype, _CLOSE_IN_HALF)
    one = one.to(other.device).double()
    return bool((one - other.double()).abs().max() <= limit * other.double().abs().max())
