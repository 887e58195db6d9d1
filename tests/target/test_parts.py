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
