"""The embedded default: a real chat model under a real drafter, in float32."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import outrider
from outrider.compare.prompts import BUILTIN
from outrider.prompt import encode
from outrider.prompt_file import NamedPrompt
from support import Scripted, right_tree, transformers_generate

CODE_EDIT = BUILTIN[1].text
# Texts in which one token is followed now by this and now by that.
DIVIDED = (
    "".join(f"{('POST', 'GET')[n % 2]} /item/{n % 3} {'200 OK' if n % 3 else '404 Not Found'}\n" for n in range(14)),
    "1 2 1 3 1 2 1 2 1 3 1 3 1 2 1 3 1 1 2 1 3 1 2 1",
)


def test_a_fetched_model_is_complete(smollm2_folder: Path) -> None:
    names = {path.name for path in smollm2_folder.iterdir()}
    assert {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "chat_template.jinja",
    } <= names
    assert "quantization_config" not in json.loads((smollm2_folder / "config.json").read_text())


@pytest.mark.parametrize("prompt", BUILTIN, ids=lambda prompt: prompt.name)
def test_the_text_is_that_of_generate(smollm2: outrider.Target, prompt: NamedPrompt) -> None:
    ids = encode(smollm2, prompt.text)
    expected = transformers_generate(smollm2.model, ids, max_new_tokens=48)
    result = outrider.generate(smollm2, prompt.text, "ngram", max_new_tokens=48)
    assert list(result.token_ids) == expected
    assert result.text == smollm2.tokenizer.decode(expected, skip_special_tokens=True)


def _command(drafter: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "outrider", "generate", "-m", "smollm2", "-d", drafter, "--json"]
    command += ["-p", CODE_EDIT, "--max-new-tokens", "48", "--dtype", "float32", "--device", "cpu", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    "arguments", [["--temperature", "0"], ["--temperature", "1", "--seed", "11"]], ids=["greedy", "sampled"]
)
def test_the_command_gives_the_same_ids_with_and_without_a_drafter(arguments: list[str]) -> None:
    drafted, plain = _command("ngram", *arguments), _command("none", *arguments)
    assert drafted["token_ids"] == plain["token_ids"]
    assert drafted["text"] == plain["text"]
    assert drafted["stats"]["num_accepted_draft_tokens"] > 0
    assert plain["stats"]["num_draft_tokens"] == 0


@pytest.mark.parametrize("seed", range(3))
def test_sampled_text_is_the_same_whatever_the_drafter(smollm2: outrider.Target, seed: int) -> None:
    options: dict[str, Any] = {"max_new_tokens": 40, "temperature": 1.0, "top_p": 0.9, "top_k": 0, "seed": seed}
    plain = outrider.generate(smollm2, CODE_EDIT, "none", **options)
    drafted = outrider.generate(smollm2, CODE_EDIT, "ngram", **options)
    assert drafted.token_ids == plain.token_ids


def test_a_sibling_that_is_not_the_first_is_accepted(smollm2: outrider.Target) -> None:
    for prompt in DIVIDED:
        ids = encode(smollm2, prompt, chat=False)
        plain = outrider.generate(smollm2, ids, "none", max_new_tokens=48).token_ids
        drafter = Scripted(smollm2, right_tree([*ids, *plain]))
        result = outrider.generate(smollm2, ids, drafter, max_new_tokens=48, adaptive=False)
        assert result.token_ids == plain
        paths = [(outcome.tree, node) for outcome in drafter.outcomes for node in outcome.path]
        assert len(paths) > 30
        assert all(node != tree.children(tree.parents[node])[0] for tree, node in paths)


def test_a_code_edit_takes_few_steps(smollm2: outrider.Target) -> None:
    """Counted, not timed: the drafter is alive."""
    stats = outrider.generate(smollm2, CODE_EDIT, "ngram", max_new_tokens=96, adaptive=False).stats
    assert stats.mean_acceptance_length is not None
    assert stats.mean_acceptance_length > 4


def test_in_bfloat16_plain_decoding_is_that_of_generate(smollm2_folder: Path) -> None:
    """The plain loop feeds what `generate` feeds, so that it is the same in every dtype."""
    target = outrider.load(smollm2_folder, dtype="bfloat16", device="cpu")
    assert target.model.dtype == torch.bfloat16
    ids = encode(target, BUILTIN[2].text)
    expected = transformers_generate(target.model, ids, max_new_tokens=32)
    assert list(outrider.generate(target, ids, "none", max_new_tokens=32).token_ids) == expected
