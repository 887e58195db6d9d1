"""EAGLE heads in other layouts: the same tensors and the same head, or the key that the layout has no word for."""

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

import outrider
from eagle_files import (
    DRAFTED,
    LAYOUTS,
    VOCAB,
    Files,
    eagle1,
    eagle3,
    specforge,
    speculators,
    speculators_eagle1,
    vllm_eagle1,
)
from outrider import HeadsTarget, InputError, TargetInfo, export_heads
from outrider_drafters.eagle.checkpoint import check_source
from outrider_drafters.eagle.config import EagleConfig
from outrider_drafters.eagle.drafter import Eagle
from outrider_drafters.eagle.source import open_source
from support import prompt_of, tiny_model, tiny_target

BOTH, ALL = ("eagle", "speculators"), ("eagle", "specforge", "speculators")
ALONE = ("speculators",)
# In which layouts every published one can be written, from the tables of what these know.
WRITTEN: dict[str, tuple[str, ...]] = {
    "EAGLE-1": BOTH,
    "EAGLE-1, no bias": BOTH,
    "EAGLE-1, bias by its presence": BOTH,
    "EAGLE-1, no bias by its absence": BOTH,
    "EAGLE-1, attention bias": ("eagle",),
    "EAGLE-1, two layers": ("eagle",),
    "EAGLE-1, speculators": BOTH,
    "EAGLE-1, speculators, bias": BOTH,
    "EAGLE-1, vLLM": BOTH,
    "EAGLE-1, vLLM, bias": BOTH,
    "EAGLE-3": ALL,
    "EAGLE-3, whole vocabulary": ALL,
    "EAGLE-3, SpecForge": ALL,
    "EAGLE-3, SpecForge for SGLang": ALL,
    "EAGLE-3, SpecForge, whole vocabulary": ALL,
    "EAGLE-3, SpecForge, layers": ("specforge", "speculators"),
    "EAGLE-3, speculators": ALL,
    "EAGLE-3, speculators, whole vocabulary": ALL,
    "EAGLE-3, speculators, two layers": ALONE,
    "EAGLE-3, speculators, Qwen3": ALONE,
    "EAGLE-3, speculators, norm before fc": ALONE,
    "EAGLE-3, speculators, norms before fc": ALONE,
}
PAIRS = [(name, layout) for name, layouts in WRITTEN.items() for layout in layouts]
OWN = {"safeailab": "eagle", "specforge": "specforge", "speculators": "speculators"}


def mixed(files: Files) -> Files:
    """In several dtypes."""
    kinds = [torch.float16, torch.bfloat16, torch.float32]
    found = {
        name: one if name in ("d2t", "t2d") else one.to(kinds[index % 3])
        for index, (name, one) in enumerate(files.tensors.items())
    }
    return replace(files, tensors=found)


def config_of(folder: Path) -> EagleConfig:
    return check_source(open_source(folder))


def tensors_of(folder: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(folder / "model.safetensors")


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, values in one.items():
        assert values.dtype == other[name].dtype, name
        assert torch.equal(values, other[name]), name


def differing(one: EagleConfig, other: EagleConfig) -> set[str]:
    names = {each.name for each in fields(EagleConfig)} - {"folder", "layout", "positions_key"}
    return {name for name in names if getattr(one, name) != getattr(other, name)}


def target_of(
    info: TargetInfo | None = None, name: str = "some/target", load: Callable[[], TargetInfo] | None = None
) -> HeadsTarget:
    """A target of 8 layers, whose weights can be asked for only where a test gives them."""

    def never() -> TargetInfo:
        raise AssertionError("its weights are not needed")

    found = info or TargetInfo(VOCAB, 32, 8, 256, frozenset(), torch.float32, torch.device("meta"), None)
    return HeadsTarget(name, found, ("LlamaForCausalLM",), load or never)


def with_head(files: Files) -> tuple[Files, HeadsTarget | None]:
    """vLLM's heads hold a copy of the target's rows, by which they can be left out."""
    if "lm_head.weight" not in files.tensors or files.config.get("model_type") != "eagle":
        return files, None
    info = tiny_target().info
    rows = tiny_model().lm_head.weight.detach().to(torch.float16)
    head = {"lm_head.weight": rows}
    return replace(files, tensors=files.tensors | head), target_of(info, load=lambda: info)


def test_every_published_layout_is_in_the_table() -> None:
    assert WRITTEN.keys() == LAYOUTS.keys()


@pytest.mark.parametrize(("name", "layout"), PAIRS)
def test_a_head_goes_there_and_back_tensor_for_tensor(tmp_path: Path, name: str, layout: str) -> None:
    files, target = with_head(mixed(LAYOUTS[name]()))
    first, there, back = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    read = config_of(files.write(first))
    report = export_heads(first, layout, there, target)
    written = config_of(there)
    lost = set() if target is None else {"own_head", "trained_for"}
    assert (report.layout, OWN[written.layout]) == (written.layout, layout)
    assert differing(read, written) <= lost | ({"layer_ids"} if name == "EAGLE-3, SpecForge, layers" else set())
    plain = files.plain()
    whole = read.draft_vocab_size == read.vocab_size
    for key in {"d2t", "t2d"} if whole else set():
        plain.pop(key, None)
    if target is not None:
        del plain["lm_head.weight"]
    found = {
        key.replace("midlayer.", "layers.0.").replace("transformer.", "layers.0.").replace("fusion_fc.", "fc."): one
        for key, one in tensors_of(there).items()
    }
    if whole and layout == "specforge":
        assert torch.equal(found.pop("d2t"), torch.zeros(VOCAB, dtype=torch.long))
        assert torch.equal(found.pop("t2d"), torch.ones(VOCAB, dtype=torch.bool))
    same(found, plain)
    if read.layout in OWN:
        export_heads(there, OWN[read.layout], back)
        assert not differing(read, config_of(back))
        same(tensors_of(back), tensors_of(first))


@pytest.mark.parametrize(
    ("name", "layout"),
    [(name, layout) for name in WRITTEN for layout in ALL if layout not in WRITTEN[name]],
)
def test_all_other_pairs_are_refused_and_leave_nothing(tmp_path: Path, name: str, layout: str) -> None:
    files, target = with_head(LAYOUTS[name]())
    with pytest.raises(InputError, match=f"the layout '{layout}' has no word for|which are written as"):
        export_heads(files.write(tmp_path / "a"), layout, tmp_path / "b", target)
    assert [one.name for one in tmp_path.iterdir()] == ["a"]


# What the files must hold, by the published tables: 4 heads of 8, 2 of keys and values, width 32, inner width 48.
LAYER = {
    "self_attn.k_proj.weight": (16, 64),
    "self_attn.v_proj.weight": (16, 64),
    "self_attn.q_proj.weight": (32, 64),
    "self_attn.o_proj.weight": (32, 32),
    "mlp.gate_proj.weight": (48, 32),
    "mlp.up_proj.weight": (48, 32),
    "mlp.down_proj.weight": (32, 48),
    "input_layernorm.weight": (32,),
    "hidden_norm.weight": (32,),
    "post_attention_layernorm.weight": (32,),
}
AROUND = {"fc.weight": (32, 96), "norm.weight": (32,), "lm_head.weight": (8, 32), "d2t": (8,), "t2d": (64,)}
FIRST = {"eagle": "midlayer.", "specforge": "midlayer.", "speculators": "layers.0."}


@pytest.mark.parametrize("layout", ALL)
def test_names_and_shapes_of_eagle3(tmp_path: Path, layout: str) -> None:
    export_heads(eagle3().write(tmp_path / "a"), layout, tmp_path / "b")
    found = tensors_of(tmp_path / "b")
    expected = AROUND | {FIRST[layout] + name: shape for name, shape in LAYER.items()}
    assert {name: tuple(one.shape) for name, one in found.items()} == expected
    assert (found["d2t"].dtype, found["t2d"].dtype) == (torch.int64, torch.bool)
    assert [index + int(offset) for index, offset in enumerate(found["d2t"])] == list(DRAFTED)
    assert found["t2d"].nonzero().flatten().tolist() == list(DRAFTED)


@pytest.mark.parametrize(("layout", "fc", "first"), [("eagle", "fc.", "layers.0."), ("speculators", "fusion_fc.", "")])
def test_names_and_shapes_of_eagle1(tmp_path: Path, layout: str, fc: str, first: str) -> None:
    export_heads(eagle1().write(tmp_path / "a"), layout, tmp_path / "b")
    narrow = {name: (shape[0], 32) if shape[-1] == 64 else shape for name, shape in LAYER.items()}
    del narrow["input_layernorm.weight"], narrow["hidden_norm.weight"]
    expected = {(first or "transformer.") + name: shape for name, shape in narrow.items()}
    expected |= {f"{fc}weight": (32, 64), f"{fc}bias": (32,), "embed_tokens.weight": (64, 32)}
    assert {name: tuple(one.shape) for name, one in tensors_of(tmp_path / "b").items()} == expected


BODY: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "vocab_size": 64,
    "max_position_embeddings": 256,
    "attention_bias": False,
    "mlp_bias": False,
}
RAW: dict[str, Any] = BODY | {
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "torch_dtype": "float32",
    "tie_word_embeddings": False,
    "base_model_name_or_path": "some/target",
}


def json_of(folder: Path) -> Any:
    return json.loads((folder / "config.json").read_text())


def test_config_files_of_eagle3_key_by_key(tmp_path: Path) -> None:
    source = eagle3().write(tmp_path / "a")
    for layout in ALL:
        export_heads(source, layout, tmp_path / layout, target_of())
    drafts = {"draft_vocab_size": 8}
    assert json_of(tmp_path / "eagle") == RAW | drafts | {"architectures": ["LlamaForCausalLM"]}
    assert json_of(tmp_path / "specforge") == RAW | drafts | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "eagle_config": {"use_aux_hidden_state": True},
    }
    proposal = {"proposal_type": "greedy", "speculative_tokens": 5, "verifier_accept_k": 1, "accept_tolerance": 0.0}
    assert json_of(tmp_path / "speculators") == drafts | {
        "speculators_model_type": "eagle3",
        "speculators_version": "0.5.0",
        "architectures": ["Eagle3Speculator"],
        "torch_dtype": "float32",
        "tie_word_embeddings": False,
        "transformer_layer_config": BODY | {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
        "speculators_config": {
            "algorithm": "eagle3",
            "proposal_methods": [proposal],
            "default_proposal_method": "greedy",
            "verifier": {"name_or_path": "some/target", "architectures": ["LlamaForCausalLM"]},
        },
        # Written always: where it is left out one engine takes it for true, another for false.
        "norm_before_residual": False,
        "norm_before_fc": False,
        "fc_norm": False,
        "norm_output": False,
    }


def test_config_files_of_eagle1_key_by_key(tmp_path: Path) -> None:
    source = eagle1(attention_bias=True).write(tmp_path / "a")
    export_heads(source, "eagle", tmp_path / "eagle", target_of())
    expected = RAW | {"architectures": ["LlamaForCausalLM"], "bias": True, "qkv_bias": True}
    assert json_of(tmp_path / "eagle") == expected
    export_heads(speculators_eagle1(bias=True).write(tmp_path / "b"), "speculators", tmp_path / "c")
    found = json_of(tmp_path / "c")
    assert (found["architectures"], found["speculators_model_type"]) == (["EagleSpeculator"], "eagle")
    assert (found["layernorms"], found["fusion_bias"], found["speculators_version"]) == (False, True, "0.4.0")


def test_the_target_is_that_of_the_source_where_none_is_given(tmp_path: Path) -> None:
    source = speculators().write(tmp_path / "a")
    export_heads(source, "speculators", tmp_path / "b")
    verifier = {"name_or_path": "some/target", "architectures": ["LlamaForCausalLM"]}
    assert json_of(tmp_path / "b")["speculators_config"]["verifier"] == verifier
    export_heads(eagle3().write(tmp_path / "c"), "speculators", tmp_path / "d")
    assert json_of(tmp_path / "d")["speculators_config"]["verifier"] == {"name_or_path": None, "architectures": []}
    assert export_heads(source, "eagle", tmp_path / "e", target_of(name="another")).trained_for == "another"


ROPES: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 2.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 16.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "longrope": {
        "rope_type": "longrope",
        "factor": 4.0,
        "original_max_position_embeddings": 64,
        "short_factor": [1.0, 1.1, 1.2, 1.3],
        "long_factor": [2.0, 2.1, 2.2, 2.3],
    },
}


@pytest.mark.parametrize("layout", ALL)
@pytest.mark.parametrize("kind", ROPES)
def test_a_rotary_embedding_is_spelt_as_the_layout_does(tmp_path: Path, kind: str, layout: str) -> None:
    files = eagle3()
    files.config |= {"rope_theta": 500000.0, "rope_scaling": ROPES[kind]}
    source = files.write(tmp_path / "a")
    export_heads(source, layout, tmp_path / "b")
    found = json_of(tmp_path / "b")
    if layout == "speculators":
        assert found["transformer_layer_config"]["rope_parameters"] == ROPES[kind] | {"rope_theta": 500000.0}
    else:
        more = {"type": kind} if layout == "eagle" else {}
        assert (found["rope_theta"], found["rope_scaling"]) == (500000.0, ROPES[kind] | more)
    body = found["transformer_layer_config"] if layout == "speculators" else found
    assert body["max_position_embeddings"] == 256
    assert not differing(config_of(source), config_of(tmp_path / "b"))


def flagged(**layers: Any) -> Files:
    """speculators' EAGLE-3 of two Qwen3 layers, with more keys of these."""
    files = speculators(kind="qwen3", layers=2)
    files.config["transformer_layer_config"] |= layers
    return files


def biased(files: Files, *names: str, **keys: Any) -> Files:
    body = files.config.get("transformer_layer_config", files.config)
    body |= keys
    for name in [one for one in files.tensors if one.endswith(tuple(f"{part}.weight" for part in names))]:
        files.tensors[name.replace(".weight", ".bias")] = torch.randn(len(files.tensors[name]))
    return files


ATTENTION, MLP = ("q_proj", "k_proj", "v_proj", "o_proj"), ("gate_proj", "up_proj", "down_proj")


@pytest.mark.parametrize(
    ("files", "layout", "words"),
    [
        (speculators(norm_before_residual=True), "eagle", "norm_before_residual"),
        (speculators(norm_before_residual=True), "specforge", "norm_before_residual"),
        (speculators(norm_before_fc=True), "specforge", "norm_before_fc"),
        (speculators(fc_norm=True), "eagle", "fc_norm"),
        (speculators(norm_output=True), "eagle", "norm_output"),
        (speculators(norm_output=True), "specforge", "norm_output"),
        (specforge(norm_output=False), "eagle", "norm_output = false"),
        (specforge(norm_output=False), "speculators", "norm_output = false"),
        (flagged(), "specforge", "num_hidden_layers, q_norm and k_norm"),
        (
            flagged(sliding_window=8, layer_types=["full_attention", "sliding_attention"]),
            "eagle",
            "num_hidden_layers, q_norm and k_norm, sliding_window",
        ),
        (biased(eagle3(), *ATTENTION, attention_bias=True), "eagle", "attention_bias"),
        (biased(eagle3(), *ATTENTION, attention_bias=True), "specforge", "attention_bias"),
        (biased(eagle3(), *ATTENTION[:3], qkv_bias=True), "speculators", "qkv_bias"),
        (biased(eagle1(), *MLP, mlp_bias=True), "eagle", "mlp_bias"),
        (biased(flagged(), *MLP, mlp_bias=True), "speculators", "mlp_bias with q_norm"),
        (biased(eagle1(), *ATTENTION, attention_bias=True), "eagle", "attention_bias"),
        (specforge(ids=(0, 3, 5)), "eagle", "eagle_aux_hidden_state_layer_ids"),
    ],
)
def test_what_a_layout_has_no_word_for_is_named(tmp_path: Path, files: Files, layout: str, words: str) -> None:
    with pytest.raises(InputError, match=f"the layout '{layout}' has no word for {words} of this head; "):
        export_heads(files.write(tmp_path / "a"), layout, tmp_path / "b")


@pytest.mark.parametrize(
    "files",
    [
        flagged(sliding_window=8, layer_types=["full_attention", "sliding_attention"]),
        flagged(sliding_window=8, use_sliding_window=True, max_window_layers=1),
        biased(speculators(), *ATTENTION, attention_bias=True),
        biased(speculators(), *MLP, mlp_bias=True),
        speculators(eagle_aux_hidden_state_layer_ids=[1, 3, 4]),
        speculators(norm_before_fc=True, norm_before_residual=True, norm_output=True),
        speculators(fc_norm=True, norm_output=True),
        eagle3(wide=40),
    ],
)
def test_variants_that_only_speculators_can_say_stay_what_they_are(tmp_path: Path, files: Files) -> None:
    source = files.write(tmp_path / "a")
    export_heads(source, "speculators", tmp_path / "b")
    assert not differing(config_of(source), config_of(tmp_path / "b"))


def test_variants_of_specforge_stay_what_they_are(tmp_path: Path) -> None:
    normed = specforge(norm_output=False, fc_norm=True)
    normed.tensors |= {f"fc_norm.{index}.weight": torch.randn(32) for index in range(3)}
    source = normed.write(tmp_path / "a")
    export_heads(source, "specforge", tmp_path / "b")
    read = config_of(tmp_path / "b")
    assert not differing(config_of(source), read)
    assert (read.norm_logits, read.norm_output, read.fc_norm) == (False, False, True)


# Which layers: SafeAILab knows the default alone, SpecForge counts outputs, speculators inputs.


@pytest.mark.parametrize(
    ("files", "layout", "known", "expected"),
    [
        (specforge(ids=(0, 3, 5)), "speculators", False, [1, 4, 6]),
        (speculators(eagle_aux_hidden_state_layer_ids=[1, 4, 6]), "specforge", False, [0, 3, 5]),
        (speculators(eagle_aux_hidden_state_layer_ids=[2, 4, 5]), "specforge", False, [1, 3, 4]),
        (speculators(eagle_aux_hidden_state_layer_ids=[2, 4, 5]), "eagle", True, None),
        (specforge(ids=(1, 3, 4)), "eagle", True, None),
        # The default in the other numbering, as some published files have it.
        (specforge(ids=(2, 4, 5)), "speculators", True, [2, 4, 5]),
        (specforge(ids=(2, 4, 5)), "eagle", True, None),
        (specforge(ids=(2, 4, 5)), "specforge", False, [2, 4, 5]),
        (specforge(ids=(2, 5, 7)), "speculators", True, [3, 6, 8]),
    ],
)
def test_the_same_layers_are_read(
    tmp_path: Path, files: Files, layout: str, known: bool, expected: list[int] | None
) -> None:
    target = target_of()
    source = files.write(tmp_path / "a")
    if expected == [3, 6, 8]:  # not the default of a target of 12 layers
        target = target_of(replace(target.info, num_layers=12))
    export_heads(source, layout, tmp_path / "b", target if known else None)
    found = json_of(tmp_path / "b")
    assert found.get("eagle_config", found).get("eagle_aux_hidden_state_layer_ids") == expected
    ours = [config_of(one).for_target(target.info).feature_layers for one in (source, tmp_path / "b")]
    assert ours[0] == ours[1]


@pytest.mark.parametrize(
    ("files", "layout", "known", "message"),
    [
        (specforge(ids=(2, 30, 58)), "speculators", False, r"\[2, 30, 58\] may count outputs, or inputs .* -m MODEL"),
        (speculators(eagle_aux_hidden_state_layer_ids=[2, 4, 5]), "eagle", False, r"\[2, 4, 5\] are these.* -m MODEL"),
        (speculators(eagle_aux_hidden_state_layer_ids=[1, 4, 5]), "eagle", True, "has no word for eagle_aux"),
        (speculators(eagle_aux_hidden_state_layer_ids=[0, 4, 5]), "specforge", True, "no layer's output"),
        (speculators(eagle_aux_hidden_state_layer_ids=[3, 5, 6]), "specforge", True, "for the default inputs"),
    ],
)
def test_layers_that_a_layout_cannot_count_are_refused(
    tmp_path: Path, files: Files, layout: str, known: bool, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        export_heads(files.write(tmp_path / "a"), layout, tmp_path / "b", target_of() if known else None)


def test_another_number_of_features_needs_their_layers(tmp_path: Path) -> None:
    files = eagle3()
    files.tensors["fc.weight"] = torch.randn(32, 64)
    with pytest.raises(InputError, match="no word for 2 features without eagle_aux_hidden_state_layer_ids"):
        export_heads(files.write(tmp_path / "a"), "speculators", tmp_path / "b")
    files.config["eagle_aux_hidden_state_layer_ids"] = [2, 5]
    export_heads(files.write(tmp_path / "c"), "speculators", tmp_path / "d")
    assert config_of(tmp_path / "d").features == 2


# vLLM's EAGLE-1 holds a copy of the target's head.


def test_a_copy_of_the_targets_head_is_left_out_and_nothing_else(tmp_path: Path) -> None:
    info = tiny_target().info
    source = vllm_eagle1().write(tmp_path / "a")
    with pytest.raises(InputError, match="no word for lm_head.weight .* it is left out where .* -m MODEL tells"):
        export_heads(source, "eagle", tmp_path / "b")
    with pytest.raises(InputError, match="no word for lm_head.weight of this head, and it is not that of some/target"):
        export_heads(source, "eagle", tmp_path / "b", target_of(info, load=lambda: info))
    some = vllm_eagle1()
    some.tensors |= {"lm_head.weight": torch.randn(8, 32), "token_map": torch.tensor(DRAFTED)}
    some.config["truncated_vocab_size"] = 8
    with pytest.raises(InputError, match="of some tokens only"):
        export_heads(some.write(tmp_path / "c"), "eagle", tmp_path / "b", target_of(info, load=lambda: info))


# What the exported heads draft.


@pytest.mark.parametrize(
    ("name", "layout"),
    [(name, layout) for name, layout in PAIRS if "vLLM" not in name and not name.endswith(("presence", "absence"))],
)
def test_an_exported_head_drafts_what_the_original_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, layout: str
) -> None:
    target = tiny_target(0, num_hidden_layers=8)
    seen: list[tuple[list[int], list[int]]] = []
    propose = Eagle.propose

    def watched(self: Eagle, batch: Any) -> Any:
        trees = propose(self, batch)
        seen.append((trees.tokens.flatten().tolist(), trees.parents.flatten().tolist()))
        return trees

    monkeypatch.setattr(Eagle, "propose", watched)
    source = LAYOUTS[name]().write(tmp_path / "a")
    export_heads(source, layout, tmp_path / "b", target_of(target.info))
    drafted = []
    for folder in (source, tmp_path / "b"):
        word = {"name": config_of(folder).method, "options": {"heads": str(folder), "depth": 3, "nodes": 8}}
        outrider.generate(target, prompt_of(6), word, max_new_tokens=6, adaptive=False)
        drafted.append(list(seen))
        seen.clear()
    assert drafted[0] == drafted[1]
    assert sum(len(tokens) for tokens, _ in drafted[0]) >= 8
