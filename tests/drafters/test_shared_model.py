"""Draft models that use the target's embeddings and head."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import outrider
from outrider import InputError, TrainStart
from outrider_drafters.draft_model.training import DraftModelTrainOptions, make_trainee
from support import plain_loop, prompt_of, tiny_model, tiny_target


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A draft model of the tiny target's own second layer."""
    start = TrainStart(tiny_target().info, "tiny", torch.ones(64, dtype=torch.long))
    found = tmp_path / "draft"
    found.mkdir()
    make_trainee(start, DraftModelTrainOptions(layers=(1,))).save(found)
    return found


def test_it_drafts_with_the_targets_own_embeddings(folder: Path) -> None:
    target, prompt = tiny_target(), prompt_of(9)
    before = {name: one.clone() for name, one in target.model.state_dict().items()}
    found = outrider.generate(target, prompt, f"draft-model[model={folder}]", max_new_tokens=24, adaptive=False)
    assert list(found.token_ids) == plain_loop(target.model, prompt, 24)
    assert found.stats.num_draft_tokens > 0
    assert not {"embed_tokens", "lm_head"} & {name.split(".")[-2] for name in load_file(folder / "model.safetensors")}
    drafter = outrider.make_drafter("draft-model", {"model": str(folder)}, target.info)
    own = drafter._model.model  # type: ignore[attr-defined]
    assert own.get_input_embeddings() is target.model.get_input_embeddings()
    assert all(torch.equal(one, before[name]) for name, one in target.model.state_dict().items())


def test_its_layers_are_those_that_were_written(folder: Path) -> None:
    drafter = outrider.make_drafter("draft-model", {"model": str(folder)}, tiny_target().info)
    held = drafter._model.model.state_dict()  # type: ignore[attr-defined]
    stored = load_file(folder / "model.safetensors")
    assert all(torch.equal(held[name], one.to(held[name].dtype)) for name, one in stored.items())


def test_inspect_says_what_it_is(folder: Path) -> None:
    found = outrider.inspect_heads(folder, tiny_target().info)
    assert (found.drafter, found.parts, found.trained_for, found.misfit) == ("draft-model", "1 layer", "tiny", None)
    other = outrider.load(tiny_model(hidden_size=64)).info
    misfit = "uses the embeddings of a target of width 32 and vocabulary 64, and this one has width 64"
    assert misfit in (outrider.inspect_heads(folder, other).misfit or "")
    with pytest.raises(InputError, match=misfit):
        outrider.make_drafter("draft-model", {"model": str(folder)}, other)


def test_broken_folders_are_refused(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    for wrong, message in (
        ({one: values for one, values in tensors.items() if one != name}, f"'{name}' has shape none"),
        (tensors | {"more": torch.zeros(3)}, r"'more' has shape \[3\], and by config.json it must have none"),
        (
            tensors | {name: torch.zeros(3, 3)},
            rf"'{name}' has shape \[3, 3\], and by config.json it must have \[64, 32\]",
        ),
    ):
        save_file(wrong, folder / "model.safetensors")
        for act in (
            outrider.inspect_heads,
            lambda path: outrider.make_drafter("draft-model", {"model": str(path)}, INFO),
        ):
            with pytest.raises(InputError, match=message):
                act(folder)
    shutil.copy(folder / "config.json", folder / "old.json")
    (folder / "config.json").write_text(json.dumps({"shares_embeddings": True, "model_type": "none"}))
    with pytest.raises(InputError, match="holds no draft model"):
        outrider.inspect_heads(folder)


INFO = tiny_target().info
