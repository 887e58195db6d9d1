"""The target's parts: they are its own weights, and using them changes nothing."""

import copy

import pytest
import torch

from outrider import ModelError
from outrider.target.parts import Parts
from support import lively, prompt_of, tiny_model


@torch.no_grad()
def test_an_early_exit_is_the_first_layers_with_norm_and_head() -> None:
    model = tiny_model(0, num_hidden_layers=4)
    ids = torch.tensor([prompt_of(12)])
    states = model(ids, output_hidden_states=True).hidden_states
    for layers in (1, 2, 3):
        left = Parts(model).early_exit(layers)
        expected = model.lm_head(model.model.norm(states[layers]))
        assert torch.equal(left(ids).logits, expected)
        assert left.config.num_hidden_layers == layers


@pytest.mark.parametrize("kind", ["llama", "gemma2", "gpt2", "mistral", "qwen3", "bloom", "phi"])
def test_the_weights_are_shared_and_the_model_stays_as_it_is(kind: str) -> None:
    model = lively(kind, num_hidden_layers=3)
    before, config = model(torch.tensor([[1, 2, 3]])).logits, copy.deepcopy(model.config.to_dict())
    modules, states = list(model.modules()), list(model.state_dict())
    left = Parts(model).early_exit(2)
    own = {id(weight) for weight in model.parameters()}
    assert {id(weight) for weight in left.parameters()} < own
    left(torch.tensor([[1, 2, 3]]))
    assert model.config.to_dict() == config
    assert all(one is other for one, other in zip(modules, model.modules(), strict=True))
    assert list(model.state_dict()) == states
    assert torch.equal(model(torch.tensor([[1, 2, 3]])).logits, before)


@pytest.mark.parametrize("layers", [0, 3, 7])
def test_an_exit_lies_inside_the_model(layers: int) -> None:
    with pytest.raises(ModelError, match=f"after {layers} layers: the target has 3, so 1 to 2 are possible"):
        Parts(lively("llama", num_hidden_layers=3)).early_exit(layers)


def test_an_encoder_decoder_has_no_early_exit() -> None:
    model = lively("t5", num_decoder_layers=2, pad_token_id=0, decoder_start_token_id=0)
    with pytest.raises(ModelError, match="no list of 2 decoder layers"):
        Parts(model).early_exit(1)


KINDS = [
    "llama",
    "gemma2",
    "gemma",
    "gemma3_text",
    "gpt2",
    "mistral",
    "cohere",
    "cohere2",
    "granite",
    "bloom",
    "phi",
    "falcon_h1",
]


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tied", [False, True])
def test_embeddings_and_head_are_those_of_the_forward(kind: str, tied: bool) -> None:
    """Factors and soft caps of Gemma, Cohere, Granite, Falcon H1; learned positions of GPT-2 are left out."""
    config: dict[str, object] = {"tie_word_embeddings": tied}
    config |= {"logits_scaling": 3.0, "embedding_multiplier": 5.0} if kind == "granite" else {}
    config |= {"final_logit_softcapping": 4.0} if kind.startswith("gemma") else {}
    model = lively(kind, **config)
    parts, ids = Parts(model), torch.tensor([prompt_of(9)])
    output = model(ids, output_hidden_states=True)
    assert torch.allclose(parts.head(output.hidden_states[-1]), output.logits, rtol=1e-6, atol=1e-6)
    wanted = torch.tensor([7, 3, 60])
    assert torch.allclose(parts.head.narrow(wanted)(output.hidden_states[-1]), output.logits[..., wanted], atol=1e-6)
    expected = model.transformer.wte(ids) if kind == "gpt2" else output.hidden_states[0]
    if kind != "bloom":  # a norm comes before its first layer
        assert torch.allclose(parts.embeddings(ids), expected, rtol=1e-6, atol=1e-9)


def test_logits_that_come_about_otherwise_are_told() -> None:
    model = tiny_model(0)
    model.lm_head.register_forward_hook(lambda module, args, logits: logits + logits.roll(1, -1))
    assert Parts(model).head is not None  # the module's own hook is part of it
    model = tiny_model(0)
    forward = model.forward

    def other(*args: object, **kwargs: object) -> object:
        output = forward(*args, **kwargs)
        output.logits = output.logits.roll(1, -1)
        return output

    model.forward = other
    with pytest.raises(ModelError, match="logits are not those of its output embeddings"):
        _ = Parts(model).head
