"""Coupled drafts: tokens chosen with the very noise that the target will draw with. They stay `match`, and need no trust."""

from typing import Any, ClassVar

import pytest
import torch

import outrider
from outrider import DrafterOptions, DraftTree, DraftView, RowDrafter, Target
from outrider.draft.contract import API
from support import prompt_of, tiny_model, tiny_target


class Small(RowDrafter[DrafterOptions]):
    """Another model's chain or tree: the largest of log q, with or without the target's noise."""

    name: ClassVar[str] = "small"
    requires_api: ClassVar[tuple[int, int]] = API

    def __init__(self, target: Target, model: Any, shape: tuple[int, ...], coupled: bool) -> None:
        super().__init__(target.info, DrafterOptions())
        self.model, self.shape, self.coupled = model, shape, coupled

    def propose_row(self, view: DraftView) -> DraftTree:
        tokens: list[int] = []
        parents: list[int] = []
        level: list[tuple[int, list[int]]] = [(-1, list(view.ids))]
        noise = None
        for depth, count in enumerate(self.shape[: view.max_depth], 1):
            noise = view.noise(depth, torch.arange(self.target.vocab_size)) if self.coupled else None
            following = []
            for node, ids in level:
                scores = self.model(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
                for token in (scores if noise is None else scores + noise).topk(count).indices.tolist():
                    following.append((len(tokens), [*ids, token]))
                    tokens.append(token)
                    parents.append(node)
            level = following
        return DraftTree(tuple(tokens), tuple(parents), coupled=noise is not None)


def _noisy_copy(target: Target, amount: float) -> Any:
    """The target's weights with noise: a draft model that is often right."""
    model: Any = tiny_model(0)
    model.load_state_dict(target.model.state_dict())
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(1)
        for weight in model.parameters():
            weight += amount * weight.std() * torch.randn_like(weight)
    return model


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 2, 1)])
def test_the_text_is_the_same_and_more_is_accepted(shape: tuple[int, ...]) -> None:
    target = tiny_target(0)
    model = _noisy_copy(target, 0.3)
    accepted = {True: 0, False: 0}
    for seed in range(12):
        options: dict[str, Any] = {"max_new_tokens": 24, "temperature": 1.0, "top_k": 0, "seed": seed}
        plain = outrider.generate(target, prompt_of(5, seed), "none", **options).token_ids
        for coupled in (True, False):
            result = outrider.generate(
                target, prompt_of(5, seed), Small(target, model, shape, coupled), **options, adaptive=False
            )
            assert result.token_ids == plain
            accepted[coupled] += result.stats.num_accepted_draft_tokens
    assert accepted[True] > 1.5 * accepted[False] > 0


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_a_coupled_draft_of_the_target_s_own_law_is_accepted_whole(temperature: float) -> None:
    target = tiny_target(0)

    class Warm:
        """The target's law at the temperature of the request."""

        def __call__(self, ids: torch.Tensor) -> Any:
            output = target.model(ids)
            output.logits = output.logits / temperature
            return output

    options: dict[str, Any] = {"max_new_tokens": 21, "temperature": temperature, "top_k": 0, "seed": 3}
    result = outrider.generate(target, prompt_of(5), Small(target, Warm(), (1, 1, 1), True), **options, adaptive=False)
    assert result.stats.num_steps == 5
    assert result.stats.mean_acceptance_length == 4.0


def test_noise_is_offered_under_match_alone_and_only_where_the_target_draws() -> None:
    target, seen = tiny_target(0), list[bool]()

    class Looking(Small):
        def propose_row(self, view: DraftView) -> DraftTree:
            seen.append(view.noise(1, torch.arange(3)) is not None)
            return DraftTree()

    drafter = Looking(target, None, (1,), True)
    options: dict[str, Any] = {"max_new_tokens": 3, "seed": 1}
    outrider.generate(target, [1, 2], drafter, temperature=1.0, **options)
    outrider.generate(target, [1, 2], drafter, **options)
    outrider.generate(target, [1, 2], drafter, temperature=1.0, rule="block", **options)
    assert seen == [True, False, False]
