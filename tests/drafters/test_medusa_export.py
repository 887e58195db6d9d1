"""Medusa's heads in other layouts: the same tensors, and the target's rows where a layout wants or spares them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

import outrider
from medusa_layouts import BOTH, FILE, LAYOUTS, MAP, VLLM, faster_names, random_weights, vllm_names, write
from outrider import DrafterError, HeadsTarget, InputError, TargetInfo, export_heads
from outrider_drafters.medusa.drafter import Medusa
from support import prompt_of, tiny_model, tiny_target

FILES = {"medusa": "model.safetensors", "fasterdecoding": FILE}
Shapes = dict[str, tuple[int, ...]]
WITHOUT = ("version 2", "version 2 of some tokens", "vllm, the target's output")
ROWS = tiny_model().lm_head.weight.detach()


def target(name: str = "some/target") -> HeadsTarget:
    """The tiny target, whose output rows are `ROWS`."""
    return HeadsTarget(name, tiny_target().info, ("LlamaForCausalLM",), lambda: tiny_target().info)


def unloaded() -> HeadsTarget:
    def never() -> TargetInfo:
        raise AssertionError("its weights are not needed")

    return HeadsTarget("some/target", tiny_target().info, (), never)


def tensors_of(folder: Path, layout: str) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(folder / FILES[layout])


def config_of(folder: Path) -> Any:
    return json.loads((folder / "config.json").read_text())


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, values in one.items():
        assert values.dtype == other[name].dtype, name
        assert torch.equal(values, other[name]), name


def with_biases(named: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """By the first implementation's names, whose blocks always have biases."""
    zeros = {
        name.replace("weight", "bias"): torch.zeros(len(one))
        for name, one in named.items()
        if ".linear.weight" in name and name.replace("weight", "bias") not in named
    }
    return named | zeros


@pytest.mark.parametrize("name", LAYOUTS)
def test_heads_become_vllms_and_those_of_the_first_implementation(tmp_path: Path, name: str) -> None:
    weights, writer = LAYOUTS[name]
    source = writer(tmp_path / "a", weights)
    rows = [ROWS if weights.token_map is None else ROWS[weights.token_map]]
    shared = len(weights.outputs) < len(weights.blocks)
    held = replace(weights, outputs=weights.outputs or rows)
    export_heads(source, "medusa", tmp_path / "b", target() if name in WITHOUT else unloaded())
    same(tensors_of(tmp_path / "b", "medusa"), vllm_names(held))
    assert config_of(tmp_path / "b")["original_lm_head"] is shared
    held = replace(weights, outputs=weights.outputs * (len(weights.blocks) if len(weights.outputs) == 1 else 1))
    export_heads(source, "fasterdecoding", tmp_path / "c", None)
    same(tensors_of(tmp_path / "c", "fasterdecoding"), with_biases(faster_names(held)))
    assert config_of(tmp_path / "c").get("version") == (None if weights.outputs else "2")


@pytest.mark.parametrize("name", LAYOUTS)
def test_heads_go_to_vllm_and_back_tensor_for_tensor(tmp_path: Path, name: str) -> None:
    weights, writer = LAYOUTS[name]
    source = writer(tmp_path / "a", weights)
    own = "fasterdecoding" if "vllm" not in name else "medusa"
    other = "medusa" if own == "fasterdecoding" else "fasterdecoding"
    export_heads(source, own, tmp_path / "b", target())
    export_heads(tmp_path / "b", other, tmp_path / "c", target())
    report = export_heads(tmp_path / "c", own, tmp_path / "d", target())
    first, last = tensors_of(tmp_path / "b", own), tensors_of(tmp_path / "d", own)
    if own == "medusa" and weights.blocks[0][0][1] is None:  # biases of zeros, which add nothing
        biases = [last.pop(key) for key in list(last) if key.endswith(".bias")]
        assert len(biases) == len(weights.blocks)
        assert not any(one.any() for one in biases)
    same(last, first)
    assert report.vocab_size == 64
    assert report.misfit is None


def test_names_shapes_and_config_of_vllm(tmp_path: Path) -> None:
    source = write(tmp_path / "a", FILE, faster_names(random_weights(2, 2, outputs=0, token_map=MAP)), version="2")
    export_heads(source, "medusa", tmp_path / "b", target())
    blocks: Shapes = {f"blocks.{head}.layers.{layer}.weight": (32, 32) for head in (0, 1) for layer in (0, 1)}
    blocks |= {f"blocks.{head}.layers.{layer}.bias": (32,) for head in (0, 1) for layer in (0, 1)}
    found = tensors_of(tmp_path / "b", "medusa")
    expected = blocks | {"lm_heads.0.weight": (8, 32), "token_map": (8,)}
    assert {name: tuple(one.shape) for name, one in found.items()} == expected
    assert found["token_map"].tolist() == MAP
    assert config_of(tmp_path / "b") == {
        "model_type": "medusa",
        "architectures": ["MedusaModel"],
        "hidden_size": 32,
        "vocab_size": 64,
        "truncated_vocab_size": 8,
        "num_heads": 2,
        "num_hidden_layers": 2,
        "medusa_fc_bias": True,
        "original_lm_head": True,
        "torch_dtype": "float32",
        "base_model_name_or_path": "some/target",
    }


def test_names_shapes_and_config_of_the_first_implementation(tmp_path: Path) -> None:
    source = write(tmp_path / "a", "model.safetensors", vllm_names(random_weights(2, 1, bias=False)), **VLLM_TWO)
    export_heads(source, "fasterdecoding", tmp_path / "b")
    expected: Shapes = {f"{head}.0.linear.weight": (32, 32) for head in (0, 1)}
    expected |= {f"{head}.1.weight": (64, 32) for head in (0, 1)}
    expected |= {f"{head}.0.linear.bias": (32,) for head in (0, 1)}
    found = tensors_of(tmp_path / "b", "fasterdecoding")
    assert {name: tuple(one.shape) for name, one in found.items()} == expected
    assert config_of(tmp_path / "b") == {"medusa_num_heads": 2, "medusa_num_layers": 1, "vocab_size": 64}


VLLM_TWO = VLLM | {"num_heads": 2, "medusa_fc_bias": False}


def test_rows_keep_the_dtype_that_they_have_in_the_target(tmp_path: Path) -> None:
    named = {name: one.bfloat16() for name, one in faster_names(random_weights(outputs=0)).items()}
    source = write(tmp_path / "a", FILE, named, **BOTH, version="2")
    export_heads(source, "medusa", tmp_path / "b", target())
    found = tensors_of(tmp_path / "b", "medusa")
    assert found["lm_heads.0.weight"].dtype == ROWS.dtype == torch.float64
    assert found["blocks.0.layers.0.weight"].dtype == torch.bfloat16


def test_only_the_targets_very_rows_are_left_out(tmp_path: Path) -> None:
    for index, (rows, version) in enumerate(
        [(ROWS, "2"), (ROWS.float(), "2"), (ROWS.bfloat16(), None), (ROWS + 1e-9, None)]
    ):
        heads = replace(random_weights(), outputs=[rows])
        more = VLLM | {"original_lm_head": True, "medusa_fc_bias": True}
        source = write(tmp_path / f"{index}", "model.safetensors", vllm_names(heads), **more)
        export_heads(source, "fasterdecoding", tmp_path / f"{index}b", target())
        assert config_of(tmp_path / f"{index}b").get("version") == version


@pytest.mark.parametrize("name", WITHOUT)
def test_heads_without_output_layers_need_the_target_for_vllm(tmp_path: Path, name: str) -> None:
    weights, writer = LAYOUTS[name]
    with pytest.raises(InputError, match="use the target's own output rows, which vLLM wants in the file; -m MODEL"):
        export_heads(writer(tmp_path / "a", weights), "medusa", tmp_path / "b")
    assert [one.name for one in tmp_path.iterdir()] == ["a"]


def test_what_vllm_could_not_know_is_refused(tmp_path: Path) -> None:
    some = write(tmp_path / "a", FILE, faster_names(random_weights(token_map=MAP)))
    with pytest.raises(InputError, match="tells vocab_size, and these heads don't; -m MODEL tells"):
        export_heads(some, "medusa", tmp_path / "b")
    export_heads(some, "medusa", tmp_path / "b", unloaded())
    assert config_of(tmp_path / "b")["vocab_size"] == 64
    turned = write(tmp_path / "c", FILE, faster_names(random_weights(token_map=list(range(63, -1, -1)))))
    with pytest.raises(InputError, match="vLLM reads no token_map of the whole vocabulary"):
        export_heads(turned, "medusa", tmp_path / "d", unloaded())


def test_a_target_that_makes_logits_by_more_than_rows_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "a", FILE, faster_names(random_weights(outputs=0)), version="2")
    model: Any = tiny_model()
    model.lm_head.bias = nn.Parameter(torch.ones(64, dtype=torch.float64))
    info = outrider.load(model).info
    with pytest.raises(InputError, match="the target's head has a bias, for which no layout of heads has a word"):
        export_heads(source, "medusa", tmp_path / "b", HeadsTarget("one", info, (), lambda: info))


def test_heads_of_another_target_are_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    source = write(tmp_path / "a", FILE, faster_names(random_weights(hidden=16)))
    with pytest.raises(InputError, match="the target's hidden width is 32"):
        export_heads(source, "medusa", tmp_path / "b", unloaded())


def test_a_map_of_other_ids_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "a", FILE, faster_names(random_weights(token_map=[1, 1, 2])))
    with pytest.raises((InputError, DrafterError), match="holds an id twice"):
        export_heads(source, "fasterdecoding", tmp_path / "b")


@pytest.mark.parametrize("layout", FILES)
@pytest.mark.parametrize("name", LAYOUTS)
def test_exported_heads_draft_what_the_originals_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, layout: str
) -> None:
    seen: list[tuple[list[int], list[int]]] = []
    propose = Medusa.propose

    def watched(self: Medusa, batch: Any) -> Any:
        trees = propose(self, batch)
        seen.append((trees.tokens.flatten().tolist(), trees.parents.flatten().tolist()))
        return trees

    monkeypatch.setattr(Medusa, "propose", watched)
    weights, writer = LAYOUTS[name]
    source = writer(tmp_path / "a", weights)
    export_heads(source, layout, tmp_path / "b", target())
    drafted = []
    for folder in (source, tmp_path / "b"):
        word = {"name": "medusa", "options": {"heads": str(folder), "nodes": 8}}
        outrider.generate(tiny_target(), prompt_of(6), word, max_new_tokens=6, adaptive=False)
        drafted.append(list(seen))
        seen.clear()
    assert drafted[0] == drafted[1]
    assert sum(len(tokens) for tokens, _ in drafted[0]) >= 8
