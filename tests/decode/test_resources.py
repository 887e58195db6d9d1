"""What a call costs beside its text: tensors left behind, gradients, reads from the device."""

import gc
from typing import Any

import pytest
import torch

import outrider
from support import SCRIPTS, Scripted, plain_loop, prompt_of, tiny_target

PROMPT = prompt_of(7)


def _live_tensors() -> int:
    gc.collect()
    return sum(torch.is_tensor(one) for one in gc.get_objects())


def test_nothing_is_left_behind_after_many_calls() -> None:
    """Case S12."""
    target = tiny_target(0, 0.1)

    def call(times: int) -> None:
        for seed in range(times):
            with torch.enable_grad():
                outrider.generate(
                    target, PROMPT, "ngram", max_new_tokens=6, temperature=1.0, seed=seed, output_logits=True
                )

    call(20)
    before = _live_tensors()
    call(200)
    assert _live_tensors() <= before + 5


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "seed": 1}], ids=["greedy", "sampled"])
def test_reads_from_the_device_are_few(sampling: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Case S18: counted on a CPU, where each would be a stall on a GPU; a sampled walk on a CPU reads once a token."""
    target = tiny_target()
    text = PROMPT + plain_loop(target.model, PROMPT, 40)
    counts = {"reads": 0}
    for name in ("item", "tolist", "__bool__", "__int__", "__float__"):
        original = getattr(torch.Tensor, name)

        def counted(self: torch.Tensor, *args: Any, original: Any = original) -> Any:
            counts["reads"] += 1
            return original(self, *args)

        monkeypatch.setattr(torch.Tensor, name, counted)
    result = outrider.generate(
        target, PROMPT, Scripted(target, SCRIPTS["right chain"](text)), max_new_tokens=40, **sampling
    )
    # the draft's own tensors once, the target's draws once (greedy) or once a token
    assert counts["reads"] <= 12 + 3 * result.stats.num_steps + (result.stats.num_tokens if sampling else 0)
