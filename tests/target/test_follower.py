"""A model that reads along: its logits are those of a fresh forward on the same text, whatever was guessed before."""

import random
from typing import Any

import pytest
import torch

import outrider
from outrider import ROOT, Follower
from support import VOCAB, lively, prompt_of, tiny_model


@torch.no_grad()
def fresh(model: Any, ids: list[int]) -> torch.Tensor:
    logits: torch.Tensor = model(torch.tensor([ids])).logits[0, -1]
    return logits


def close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    # Some models take their softmax in float32.
    return bool((found - expected).abs().max() < 1e-6 * expected.abs().max())


def models() -> dict[str, Any]:
    return {
        "llama": tiny_model(0),
        "mistral with a window": lively("mistral", sliding_window=8),
        "bloom": lively("bloom"),
    }


@pytest.mark.parametrize("kind", ["llama", "mistral with a window", "bloom"])
@pytest.mark.parametrize("rows", [1, 3])
def test_chains_of_guesses_are_taken_back_exactly(kind: str, rows: int) -> None:
    model = models()[kind]
    follower, draw = Follower(outrider.load(model)), random.Random(0)
    names = [10 + row for row in range(rows)]
    texts = [prompt_of(5 + 3 * row, row) for row in range(rows)]
    follower.begin(names)
    for step in range(12):
        logits = follower.read(names, texts)
        guesses: list[list[int]] = [[] for _ in names]
        for _ in range(4):
            assert all(
                close(row, fresh(model, text + own)) for row, text, own in zip(logits, texts, guesses, strict=True)
            )
            chosen = [draw.randrange(VOCAB) for _ in names]
            for own, token in zip(guesses, chosen, strict=True):
                own.append(token)
            logits = follower.guess(torch.tensor(chosen)[:, None])[:, 0]
        for row, (text, own) in enumerate(zip(texts, guesses, strict=True)):
            kept = (step + row) % 6  # from nothing to the whole draft
            text += own[:kept] + ([] if kept == 5 else [draw.randrange(VOCAB)])


@pytest.mark.parametrize("kind", ["llama", "mistral with a window"])
def test_trees_of_guesses_see_their_own_branch_alone(kind: str) -> None:
    model = models()[kind]
    follower, draw = Follower(outrider.load(model)), random.Random(1)
    rows, texts = [7, 3], [prompt_of(4), prompt_of(11, 1)]
    assert follower.trees
    follower.begin(rows)
    for _ in range(8):
        follower.read(rows, texts)
        tokens: list[list[int]] = [[], []]
        parents: list[list[int]] = [[], []]
        for level in range(3):
            first = len(tokens[0]) - 3
            below = [[ROOT if level == 0 else first + draw.randrange(3) for _ in range(3)] for _ in rows]
            new = [draw.sample(range(VOCAB), 3) for _ in rows]
            logits = follower.guess(torch.tensor(new), torch.tensor(below))
            for row in range(2):
                tokens[row] += new[row]
                parents[row] += below[row]
                for at in range(3):
                    node, path = len(tokens[row]) - 3 + at, list[int]()
                    while node != ROOT:
                        path.insert(0, tokens[row][node])
                        node = parents[row][node]
                    assert close(logits[row, at], fresh(model, texts[row] + path))
        for row in range(2):  # a branch that came true, as far as chance has it
            node, path = draw.randrange(9), list[int]()
            while node != ROOT:
                path.insert(0, tokens[row][node])
                node = parents[row][node]
            texts[row] += [*path[: draw.randrange(4)], draw.randrange(VOCAB)]


@pytest.mark.parametrize("kind", ["llama", "bloom"])
def test_rows_come_go_and_sit_out(kind: str) -> None:
    model = models()[kind]
    follower = Follower(outrider.load(model))
    texts = {row: prompt_of(3 + row, row) for row in range(5)}
    follower.begin([0, 1, 2])
    follower.begin([3, 4])
    for rows in ([0, 1, 2, 3, 4], [4, 1], [2, 3, 0], [1]):
        logits = follower.read(rows, [texts[row] for row in rows])
        assert all(close(one, fresh(model, texts[row])) for row, one in zip(rows, logits, strict=True))
        guesses = torch.tensor([[row + 20] for row in rows])
        after = follower.guess(guesses)[:, 0]
        assert all(close(one, fresh(model, [*texts[row], row + 20])) for row, one in zip(rows, after, strict=True))
        for row in rows:
            texts[row] += [row + 20, row + 30]
    follower.end([1, 4])
    follower.forget(2, 4)
    texts[2][4:] = [9, 9]
    logits = follower.read([0, 2, 3], [texts[row] for row in (0, 2, 3)])
    assert all(close(one, fresh(model, texts[row])) for row, one in zip((0, 2, 3), logits, strict=True))
    follower.end([0, 2, 3, 99])


def test_every_token_is_fed_once() -> None:
    model, fed = tiny_model(0), list[int]()
    follower = Follower(outrider.load(model))
    handle = model.register_forward_pre_hook(
        lambda module, args, kwargs: fed.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    follower.begin([0])
    text = prompt_of(50)
    for _ in range(10):
        follower.read([0], [text])
        for token in (1, 2, 3):
            follower.guess(torch.tensor([[token]]))
        text += [1, 2, 4]  # two of three came true
    handle.remove()
    assert fed == [50, 1, 1, 1] + [1, 1, 1, 1] * 9


def test_guesses_of_a_model_without_tree_masks_do_not_branch() -> None:
    follower = Follower(outrider.load(lively("bloom")))
    assert not follower.trees
    follower.begin([0])
    follower.read([0], [[1, 2, 3]])
    with pytest.raises(outrider.ModelError, match="masks no trees, so its guesses are chains"):
        follower.guess(torch.tensor([[1, 2]]), torch.tensor([[ROOT, ROOT]]))
