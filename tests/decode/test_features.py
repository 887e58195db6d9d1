"""What a drafter may look at inside the target, on every tier."""

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
import torch
import transformers

import outrider
from outrider import DraftTree, DraftView, Needs, OutcomeBatch, Target, layer_output
from outrider.draft.tree import MalformedTreeError
from support import VOCAB, Scripted, plain_loop, prompt_of, right_tree, tiny_model

SHAPE: dict[str, Any] = {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}


def _bloom() -> Any:
    torch.manual_seed(0)
    config = transformers.BloomConfig(vocab_size=VOCAB, hidden_size=32, n_layer=2, n_head=4, initializer_range=0.3)
    return transformers.BloomForCausalLM(config).double().eval()


def _lfm2() -> Any:
    torch.manual_seed(0)
    more: dict[str, Any] = {"num_key_value_heads": 2, "intermediate_size": 64, "initializer_range": 0.3}
    config = transformers.Lfm2Config(**SHAPE, **more, layer_types=["conv", "full_attention"])
    return transformers.Lfm2ForCausalLM(config).double().eval()


MODELS = {"tree": lambda: tiny_model(0), "paths": _bloom, "replay": _lfm2}


class Looking(Scripted):
    """Keeps all that it is shown."""

    wanted: ClassVar[Needs] = Needs(hidden=frozenset({0, layer_output(0), 2}), logits=True)

    def __init__(self, target: Target, script: Any) -> None:
        super().__init__(target, script)
        self.seen: dict[int, list[torch.Tensor]] = {}

    def needs(self) -> Needs:
        return self.wanted

    def observe(self, batch: OutcomeBatch) -> None:
        super().observe(batch)
        assert batch.rows
        for outcome in batch.rows:
            assert outcome.features is not None
            for layer in self.wanted.hidden:
                self.seen.setdefault(layer, []).append(outcome.features.hidden(layer))


@pytest.mark.parametrize("tier", MODELS)
@pytest.mark.parametrize("chunk", [None, 3])
def test_states_of_committed_tokens_are_those_of_a_full_capture(tier: str, chunk: int | None) -> None:
    model = MODELS[tier]()
    target, prompt = outrider.load(model), prompt_of(8)
    assert target.tier.name == tier
    text = prompt + plain_loop(model, prompt, 20)
    drafter = Looking(target, right_tree(text))
    outrider.generate(target, prompt, drafter, max_new_tokens=20, prefill_chunk_size=chunk)
    assert any(len(outcome.path) > 1 for outcome in drafter.outcomes)
    with torch.no_grad():
        full = model(torch.tensor([text[:-1]]), output_hidden_states=True).hidden_states
    for layer, parts in drafter.seen.items():
        states = torch.cat(parts)
        assert states.shape == (len(text) - 1, 32)
        assert torch.allclose(states, full[layer][0], atol=1e-5)
    chunks = [outcome for outcome in drafter.outcomes if not outcome.tokens]
    assert len(chunks) == (2 if chunk else 0)  # the prompt's last chunk comes with the first token


def test_states_and_logits_of_all_nodes_can_be_had() -> None:
    model = tiny_model(1)
    target, prompt = outrider.load(model), prompt_of(8)
    text = prompt + plain_loop(model, prompt, 12)
    drafter = Looking(target, right_tree(text))
    outrider.generate(target, prompt, drafter, max_new_tokens=12)
    ids = list(prompt)
    for outcome in drafter.outcomes:
        if len(outcome.tree):
            assert outcome.features is not None
            assert outcome.features.logits is not None
            assert len(outcome.features.hidden(1, every=True)) == 1 + len(outcome.tree)
            for node in range(len(outcome.tree)):
                path = [outcome.tree.tokens[step] for step in outcome.tree.path(node)]
                with torch.no_grad():
                    alone = model(torch.tensor([[*ids, *path]]), output_hidden_states=True)
                assert torch.allclose(outcome.features.logits[node + 1], alone.logits[0, -1], atol=1e-9)
                assert torch.allclose(
                    outcome.features.hidden(1, every=True)[node + 1], alone.hidden_states[1][0, -1], atol=1e-9
                )
        ids += outcome.tokens


def test_rows_of_a_batch_see_their_own_states() -> None:
    model = tiny_model(2)
    target, prompts = outrider.load(model), [prompt_of(9, 1), prompt_of(4, 2)]
    texts = [prompt + plain_loop(model, prompt, 10) for prompt in prompts]
    by_row: dict[int, list[torch.Tensor]] = {}

    class PerRow(Looking):
        def observe(self, batch: OutcomeBatch) -> None:
            for outcome in batch.rows:
                assert outcome.features is not None
                by_row.setdefault(outcome.row, []).append(outcome.features.hidden(2))

    drafter = PerRow(target, lambda ids: DraftTree())
    outrider.generate_batch(target, prompts, drafter, max_new_tokens=10)
    for text, parts in zip(texts, by_row.values(), strict=True):
        with torch.no_grad():
            full = model(torch.tensor([text[:-1]]), output_hidden_states=True).hidden_states
        assert torch.allclose(torch.cat(parts), full[2][0], atol=1e-9)


def test_nothing_is_captured_unless_asked_for() -> None:
    model = tiny_model(0)
    target, asked = outrider.load(model), []
    handle = model.register_forward_pre_hook(
        lambda module, args, kwargs: asked.append("output_hidden_states" in kwargs), with_kwargs=True
    )
    drafter = Scripted(target, lambda ids: DraftTree())
    outrider.generate(target, prompt_of(5), drafter, max_new_tokens=5)
    handle.remove()
    assert not any(asked)
    assert all(outcome.features is None for outcome in drafter.outcomes)


@pytest.mark.parametrize("layer", [-1, 3, True, "last"])
def test_a_layer_that_is_none_is_the_drafter_s_fault(layer: Any) -> None:
    target = outrider.load(tiny_model(0))

    class Wrong(Scripted):
        def needs(self) -> Needs:
            return Needs(hidden=frozenset({layer}))

    with pytest.raises(outrider.DrafterError, match=r"scripted.*hidden states of layer .* from 0 to 2"):
        outrider.generate(target, prompt_of(3), Wrong(target, lambda ids: DraftTree()), max_new_tokens=3)


def _with_scouts(tree: DraftTree) -> DraftTree:
    """Two scouts that repeat the root's first child and each other's token, one below the other."""
    size, token = len(tree), tree.tokens[0] if tree.tokens else 5
    more = ((token, -1), (token, -1), (9, size))
    tokens, parents = zip(*more, strict=True)
    return DraftTree(tree.tokens + tokens, tree.parents + parents, scouts=frozenset(range(size, size + len(more))))


@pytest.mark.parametrize("tier", MODELS)
def test_scouts_ride_along_and_are_never_verified(tier: str) -> None:
    model = MODELS[tier]()
    target, prompt = outrider.load(model), prompt_of(8)
    text = prompt + plain_loop(model, prompt, 20)

    class Scouting(Looking):
        def propose_row(self, view: DraftView) -> DraftTree:
            tree = super().propose_row(view)
            return _with_scouts(tree) if view.max_depth > 1 else tree

    drafter = Scouting(target, right_tree(text))
    result = outrider.generate(target, prompt, drafter, max_new_tokens=20, adaptive=False)
    assert list(result.token_ids) == text[8:]
    assert result.stats.num_accepted_draft_tokens > 4
    assert result.stats.num_draft_tokens == sum(one.tree.candidates for one in drafter.outcomes)
    ids: list[int] = list(prompt)
    for outcome in drafter.outcomes:
        assert not outcome.tree.scouts.intersection(outcome.path)
        for node in outcome.tree.scouts:
            assert outcome.features is not None
            assert outcome.features.logits is not None
            path = [outcome.tree.tokens[step] for step in outcome.tree.path(node)]
            with torch.no_grad():
                alone = model(torch.tensor([[*ids, *path]])).logits[0, -1]
            assert torch.allclose(outcome.features.logits[node + 1], alone, atol=1e-5)
        ids += outcome.tokens


def test_a_step_may_hold_scouts_alone() -> None:
    target, prompt = outrider.load(tiny_model(3)), prompt_of(6)
    drafter = Looking(target, lambda ids: DraftTree((7, 7), (-1, -1), scouts=frozenset({0, 1})))
    result = outrider.generate(target, prompt, drafter, max_new_tokens=8, adaptive=False)
    assert list(result.token_ids) == plain_loop(target.model, prompt, 8)
    assert result.stats.num_draft_tokens == result.stats.num_spec_steps == 0


@pytest.mark.parametrize(
    ("parents", "scouts", "message"),
    [((-1, 0), {0}, "hangs from the scout"), ((-1, -1), {4}, "not all among 2 nodes")],
)
def test_malformed_scouts_are_refused(parents: Sequence[int], scouts: set[int], message: str) -> None:
    with pytest.raises(MalformedTreeError, match=message):
        DraftTree((1, 2), tuple(parents), scouts=frozenset(scouts))
