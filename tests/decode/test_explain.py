from typing import Any

import pytest
import torch

import outrider
from outrider.decode.explain import ROWS
from support import VOCAB, Scripted, plain_loop, prompt_of, right_tree, tiny_model, tiny_target


def _half(seed: int) -> outrider.Target:
    return outrider.load(tiny_model(seed, 0.3, torch.bfloat16))


def test_in_float64_nothing_parts() -> None:
    target, prompt = tiny_target(1, 0.1), prompt_of(9, 1)
    for options in ({}, {"temperature": 1.0}, {"temperature": 0.7, "top_p": 0.9}):
        settings: dict[str, Any] = {"max_new_tokens": 40, "seed": 3, **options}
        result = outrider.generate(target, prompt, "ngram", **settings)
        found = outrider.explain(target, prompt, result.token_ids, **settings)
        assert found.partings == ()
        assert found.positions == 40
        assert found.logit_difference < 1e-5


@pytest.mark.parametrize("options", [{}, {"temperature": 1.0}], ids=["greedy", "sampled"])
def test_in_half_precision_every_parting_is_a_near_tie(options: dict[str, Any]) -> None:
    """Random weights have many near ties; each must be explained by what row count alone does."""
    partings = 0
    for seed in range(12):
        target, prompt = _half(seed), prompt_of(9, seed)
        settings: dict[str, Any] = {"max_new_tokens": 40, "seed": seed, **options}
        text = [*prompt, *outrider.generate(target, prompt, "none", **settings).token_ids]
        result = outrider.generate(target, prompt, Scripted(target, right_tree(text)), **settings)
        found = outrider.explain(target, prompt, result.token_ids, **settings)
        assert found.faults == ()
        assert all(parting.gap is not None and parting.gap <= found.allowed_gap for parting in found.partings)
        partings += len(found.partings)
    assert partings > 0, "nothing parted, so nothing was tested"


def _leak(self: Any) -> torch.Tensor:
    return torch.ones(1, self.width + 1, self.width + 1, dtype=torch.bool).tril()


@pytest.mark.parametrize("fault", ["leak", "stale row"])
def test_a_planted_fault_is_told_from_a_near_tie(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = 0
    for seed in range(4):
        target, prompt = _half(seed), prompt_of(9, seed)
        text = prompt + plain_loop(target.model, prompt, 40)
        with monkeypatch.context() as patch:
            if fault == "leak":
                patch.setattr("outrider.draft.batch.TreeBatch.ancestors", _leak)
            else:
                patch.setattr("outrider.target.cache.RowLayer.move", lambda self, columns, start: None)
            broken = outrider.generate(target, prompt, Scripted(target, right_tree(text)), max_new_tokens=40)
        faults += len(outrider.explain(target, prompt, broken.token_ids, broken.seed).faults)
    assert faults > 0


def test_a_leak_into_one_layer_is_a_fault_however_small_the_gap() -> None:
    """The gap of such a leak can be a near tie's; the trees themselves tell."""

    def leak(module: Any, args: Any, kwargs: Any) -> Any:
        mask = kwargs.get("attention_mask")
        if mask is not None and mask.shape[2] > 1:
            width = mask.shape[2]
            kwargs["attention_mask"] = mask.clone()
            kwargs["attention_mask"][..., -width:] = torch.ones(width, width, dtype=torch.bool).tril()
        return args, kwargs

    verdicts = []
    for seed in range(6):
        target, prompt = _half(seed), prompt_of(9, seed)
        text = prompt + plain_loop(target.model, prompt, 40)
        layer: Any = target.model.get_decoder().layers[1].self_attn
        handle = layer.register_forward_pre_hook(leak, with_kwargs=True)
        broken = outrider.generate(target, prompt, Scripted(target, right_tree(text)), max_new_tokens=40)
        found = outrider.explain(target, prompt, broken.token_ids, broken.seed)
        handle.remove()
        verdicts += [(one.gap or 0.0) <= found.allowed_gap for one in found.partings if one.verdict == "fault"]
        assert len(found.faults) == len(found.partings)
    assert any(verdicts), "no leak hid behind a small gap, so nothing was tested"


def test_a_wrong_token_is_a_fault() -> None:
    target, prompt = tiny_target(), prompt_of(6)
    tokens = list(outrider.generate(target, prompt, "none", max_new_tokens=2 * ROWS).token_ids)
    wrong = (tokens[3] + 1) % VOCAB
    found = outrider.explain(target, prompt, [*tokens[:3], wrong], 1)
    assert [(one.position, one.token, one.plain_token) for one in found.faults] == [(3, wrong, tokens[3])]


def test_what_has_no_plain_text_is_not_explained() -> None:
    target, prompt = tiny_target(), prompt_of(6)
    with pytest.raises(outrider.InputError, match="no tokens"):
        outrider.explain(target, prompt, [], 1)
    with pytest.raises(outrider.InputError, match="under the rule block"):
        outrider.explain(target, prompt, [1], 1, temperature=1.0, rule="block")
