import threading
from typing import Any

import pytest
import torch

import outrider
from outrider import Target
from outrider.target.attention import PositionTable, build_masks
from support import prompt_of, tiny_model, tiny_target


def _table(context: int) -> PositionTable:
    """A root and two siblings behind a context."""
    columns = torch.cat([torch.arange(context), torch.tensor([context, context + 1, context + 1])])[None]
    queries = columns[:, context:]
    visible = torch.ones(1, 3, context + 3, dtype=torch.bool)
    visible[0, :, context:] = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 0, 1]])
    return PositionTable(queries, columns, visible)


def _cache(target: Target, length: int) -> Any:
    cache = target.open(1)
    target.prefill(cache, [prompt_of(length)])
    return cache.layers


def test_a_mask_lets_through_ancestors_and_the_committed() -> None:
    target = tiny_target()
    mask = build_masks(target.model, _table(4), _cache(target, 4))
    assert isinstance(mask, torch.Tensor)
    assert mask[0, 0].int().tolist() == [
        [1, 1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 1, 1, 0],
        [1, 1, 1, 1, 1, 0, 1],
    ]


def test_holes_are_seen_by_nobody() -> None:
    target = tiny_target()
    table = _table(4)
    table.columns[0, 2] = -1
    table.visible[0, :, 2] = False
    mask = build_masks(target.model, table, _cache(target, 4))
    assert isinstance(mask, torch.Tensor)
    assert not mask[0, 0, :, 2].any()


def test_eager_attention_gets_what_it_adds() -> None:
    target = Target(tiny_model(0, dtype=torch.float32, attn_implementation="eager"))
    mask = build_masks(target.model, _table(4), _cache(target, 4))
    assert isinstance(mask, torch.Tensor)
    assert mask.dtype == torch.float32
    assert mask[0, 0, 1].tolist() == [0.0] * 6 + [torch.finfo(torch.float32).min]


def test_layers_that_transformers_builds_no_mask_for_are_refused() -> None:
    model = tiny_model(0)
    model.config.layer_types = ["full_attention", "mystery"]
    with pytest.raises(outrider.ModelError, match="layers of kind full_attention, mystery"):
        build_masks(model, _table(4), _cache(tiny_target(), 4))


def test_plain_calls_from_another_thread_are_not_disturbed() -> None:
    """Two targets decode while a third model is called plainly: nothing global is set in between."""
    prompt, model = prompt_of(9), tiny_model(7)
    expected = model(torch.tensor([prompt])).logits
    found: list[bool] = []
    stop = threading.Event()

    def call() -> None:
        while not stop.is_set():
            with torch.no_grad():
                found.append(torch.equal(model(torch.tensor([prompt])).logits, expected))

    thread = threading.Thread(target=call)
    thread.start()
    try:
        texts = [outrider.generate(tiny_target(seed, 0.1), prompt, "ngram", max_new_tokens=40) for seed in (0, 1)]
    finally:
        stop.set()
        thread.join()
    plain = [outrider.generate(tiny_target(seed, 0.1), prompt, "none", max_new_tokens=40) for seed in (0, 1)]
    assert [one.token_ids for one in texts] == [one.token_ids for one in plain]
    assert found
    assert all(found)
