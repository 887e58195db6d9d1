from typing import Any

import pytest
import torch

import outrider
from outrider import DraftTree, Target, TreeBatch
from outrider.target.cache import RowCache
from outrider.target.tier import Opening
from support import VOCAB, Scripted, Watched, lively, plain_loop, prompt_of, right_tree, tiny_model, tiny_target

TREE = DraftTree((3, 9, 4, 9, 11, 5, 30), (-1, -1, 0, 0, 1, 4, 4))


@torch.no_grad()
def _alone(model: Any, ids: list[int], tree: DraftTree, node: int) -> torch.Tensor:
    """The logits of a node's path, run alone on the untouched model."""
    path = [tree.tokens[step] for step in tree.path(node)]
    logits: torch.Tensor = model(torch.tensor([[*ids, *path]])).logits[0, -1]
    return logits


def _forward(target: Target, cache: RowCache, rows: list[list[int]], trees: list[DraftTree]) -> torch.Tensor:
    return target.forward(cache, [ids[-1] for ids in rows], TreeBatch.pack(trees)).logits


def _error(target: Target, logits: torch.Tensor, ids: list[int], tree: DraftTree) -> float:
    alone = [_alone(target.model, ids, tree, node) for node in range(-1, len(tree))]
    return (logits[: len(tree) + 1] - torch.stack(alone)).abs().max().item()


@pytest.mark.parametrize("seed", range(5))
def test_tree_logits_are_those_of_each_path_alone(seed: int) -> None:
    target, ids = tiny_target(seed), prompt_of(12, seed)
    cache = target.open(1)
    target.prefill(cache, [ids[:-1]])
    assert _error(target, _forward(target, cache, [ids], [TREE])[0], ids, TREE) < 1e-9


@pytest.mark.parametrize(("attention", "tolerance"), [("sdpa", 1e-9), ("eager", 1e-5)])
def test_siblings_do_not_see_each_other(attention: str, tolerance: float) -> None:
    """Eager softmax runs in float32, even in a float64 model."""
    target = Target(tiny_model(1, attn_implementation=attention))
    ids, siblings = prompt_of(4), DraftTree((5, 6), (-1, -1))
    cache = target.open(1)
    target.prefill(cache, [ids[:-1]])
    assert _error(target, _forward(target, cache, [ids], [siblings])[0], ids, siblings) < tolerance


def test_windows_hold_at_logical_positions() -> None:
    """A tree behind a context longer than a sliding window, over a cache that keeps every column."""
    import transformers

    shape: dict[str, Any] = {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    kinds = ["sliding_attention", "full_attention"]
    shape |= {"num_key_value_heads": 2, "intermediate_size": 64}
    for config in (
        transformers.MistralConfig(**shape, sliding_window=6),
        transformers.Gemma3TextConfig(**shape, head_dim=8, sliding_window=6, layer_types=kinds),
    ):
        torch.manual_seed(0)
        model: Any = transformers.AutoModelForCausalLM.from_config(config).double().eval()
        target, ids = Target(model), prompt_of(15)
        cache = target.open(1)
        target.prefill(cache, [ids[:-1]])
        assert _error(target, _forward(target, cache, [ids], [TREE])[0], ids, TREE) < 1e-9


def test_the_accepted_path_is_kept_and_the_rest_dropped() -> None:
    target, ids = tiny_target(2), prompt_of(9, 2)
    cache = target.open(1, Opening(4))  # too small, so that the buffers grow on the way
    target.prefill(cache, [ids[:-1]])
    for path in ([1, 4, 6], [], [0, 3], [1, 4]):
        _forward(target, cache, [ids], [TREE])
        target.commit(cache, len(TREE), [path])
        ids = ids + [TREE.tokens[node] for node in path] + [17]
        assert len(cache) == len(ids) - 1
        assert cache.positions.tolist() == [list(range(len(ids) - 1))]
        _assert_cache_is_that_of_a_prefill(target, cache, ids[:-1])
    assert _error(target, _forward(target, cache, [ids], [TREE])[0], ids, TREE) < 1e-9


def _assert_cache_is_that_of_a_prefill(target: Target, cache: RowCache, ids: list[int]) -> None:
    fresh = target.open(1)
    target.prefill(fresh, [ids])
    for kept, expected in zip(cache.layers.layers, fresh.layers.layers, strict=True):
        for name in ("keys", "values"):
            assert torch.allclose(getattr(kept, name), getattr(expected, name), atol=1e-12, rtol=0)


def test_rows_of_different_lengths_share_a_cache_with_holes() -> None:
    """Two rows accept paths of different lengths, and both go on as if alone."""
    target = tiny_target(3)
    rows = [prompt_of(8, 1), prompt_of(8, 2)]
    trees = [TREE, DraftTree.chain([40, 41])]
    cache = target.open(2)
    target.prefill(cache, [ids[:-1] for ids in rows])
    for paths in ([[1, 4, 5], [0]], [[], [0, 1]], [[0, 2], []]):
        logits = _forward(target, cache, rows, trees)
        for row, ids in enumerate(rows):
            assert _error(target, logits[row], ids, trees[row]) < 1e-9
        target.commit(cache, len(TREE), paths)
        rows = [ids + [tree.tokens[n] for n in path] + [7] for ids, tree, path in zip(rows, trees, paths, strict=True)]
        for row, ids in enumerate(rows):
            held = cache.positions[row][cache.positions[row] >= 0].tolist()
            assert held == list(range(len(ids) - 1))
    assert not cache.solid
    plain = _forward(target, cache, rows, [DraftTree(), DraftTree()])  # a lone root must not see the holes either
    for row, ids in enumerate(rows):
        assert _error(target, plain[row], ids, DraftTree()) < 1e-9


def test_the_prompt_is_read_without_logits_for_all_of_it() -> None:
    target = tiny_target()
    seen: list[int] = []
    handle = target.model.lm_head.register_forward_hook(lambda module, inputs, output: seen.append(output.shape[1]))
    try:
        target.prefill(target.open(1), [prompt_of(40)])
    finally:
        handle.remove()
    assert seen == [1]


def test_the_model_and_its_config_stay_as_they_were() -> None:
    model = tiny_model(4)
    before = (model.config.to_dict(), dict(vars(model.config)), model.config._attn_implementation)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    target, ids = Target(model), prompt_of(6)
    cache = target.open(1)
    target.prefill(cache, [ids[:-1]])
    _forward(target, cache, [ids], [TREE])
    assert (model.config.to_dict(), dict(vars(model.config)), model.config._attn_implementation) == before
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


def test_logits_carry_no_gradient() -> None:
    target, ids = tiny_target(), prompt_of(6)
    cache = target.open(1)
    with torch.enable_grad():
        first = target.prefill(cache, [ids[:-1]])
        then = _forward(target, cache, [ids], [TREE])
    assert first.grad_fn is None
    assert then.grad_fn is None
    layer: Any = cache.layers.layers[0]
    assert layer.keys.grad_fn is None


@pytest.mark.parametrize("kind", ["mistral", "gemma3_text", "llama4_text"])
def test_a_sliding_layer_holds_no_more_than_it_can_see(kind: str) -> None:
    """Twice the window and a step's nodes, however long the text gets."""
    names = {"mistral": "sliding_window", "gemma3_text": "sliding_window", "llama4_text": "attention_chunk_size"}
    kinds = {
        "gemma3_text": ["sliding_attention", "full_attention"],
        "llama4_text": ["chunked_attention", "full_attention"],
    }
    more: dict[str, Any] = {names[kind]: 8, "max_position_embeddings": 512}
    if kind in kinds:
        more["layer_types"] = kinds[kind]
    if kind == "llama4_text":
        more |= {"num_local_experts": 2, "intermediate_size_mlp": 64, "attn_temperature_tuning": False}
        more |= {"moe_layers": [], "no_rope_layers": [1, 1]}
    target = Watched(outrider.load(lively(kind, **more)))
    assert target.tier.name == "tree"
    prompt = prompt_of(30)
    text = prompt + plain_loop(target.model, prompt, 150)
    result = outrider.generate(
        target, prompt, Scripted(target, right_tree(text)), max_new_tokens=150, prefill_chunk_size=5
    )
    assert list(result.token_ids) == text[30:]
    (cache,) = target.caches
    held = [layer.used - layer.start for layer in cache.layers.layers]
    widths = [layer.buffers[0].shape[-2] for layer in cache.layers.layers]
    assert held[0] < 2 * 8
    assert widths[0] <= 8 * (8 + 13)
    assert held[-1] == (179 if kind in kinds else held[0])


def test_a_session_that_goes_back_behind_a_window_reads_again() -> None:
    target = outrider.load(lively("mistral", sliding_window=8))
    with outrider.session(target, "ngram", max_new_tokens=20) as turns:
        for length in (30, 29, 12, 1):
            turns.generate(prompt_of(25, length))
            turns.truncate(length)
            before = turns.ids
            result = turns.generate([5, 6])
            fresh = outrider.generate(target, [*before, 5, 6], "none", max_new_tokens=20)
            assert result.token_ids == fresh.token_ids
            turns.truncate(0)
