"""EAGLE heads in every published layout: read whole and unchanged, or refused with the reason."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from eagle_files import DRAFTED, LAYOUTS, SIZE, VOCAB, Files, eagle1, eagle3, specforge, speculators, vllm_eagle1
from medusa_layouts import VLLM, random_weights, vllm_names, write
from outrider import InputError, TargetInfo
from outrider_drafters.eagle.checkpoint import read_eagle
from support import tiny_model

TARGET = TargetInfo(VOCAB, SIZE, 8, 256, frozenset(), torch.float32, torch.device("cpu"), None)


@pytest.mark.parametrize("kind", ["safetensors", "bin", "sharded"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_is_read_tensor_by_tensor(tmp_path: Path, name: str, kind: str) -> None:
    files = LAYOUTS[name]()
    config, network = read_eagle(files.write(tmp_path, kind), TARGET)
    written = files.plain()
    marks, offsets = written.pop("t2d", None), written.pop("d2t", None)
    loaded = network.state_dict()
    assert loaded.keys() == written.keys()
    for key, one in written.items():
        assert torch.equal(loaded[key], one), key
    whole = marks is None or bool(marks.all())
    assert (network.d2t_ids is None) == whole
    if offsets is not None and not whole:
        assert network.d2t_ids is not None
        assert network.d2t_ids.tolist() == list(DRAFTED)
    assert config.method == ("eagle" if "EAGLE-1" in name else "eagle3")
    assert config.draft_vocab_size == (len(DRAFTED) if not whole else VOCAB)
    assert not any(weight.requires_grad for weight in network.parameters())


@pytest.mark.parametrize(
    ("name", "layout", "layers"),
    [
        ("EAGLE-1", "safeailab", (8,)),
        ("EAGLE-1, speculators", "speculators", (8,)),
        ("EAGLE-1, vLLM", "vllm-eagle", (8,)),
        ("EAGLE-3", "safeailab", (2, 4, 5)),
        ("EAGLE-3, SpecForge", "specforge", (2, 4, 5)),
        ("EAGLE-3, SpecForge, layers", "specforge", (1, 4, 6)),
        ("EAGLE-3, speculators", "speculators", (2, 4, 5)),
    ],
)
def test_layouts_are_told_apart(tmp_path: Path, name: str, layout: str, layers: tuple[int, ...]) -> None:
    config, _ = read_eagle(LAYOUTS[name]().write(tmp_path), TARGET)
    assert (config.layout, config.feature_layers) == (layout, layers)


def test_a_head_takes_the_targets_dtype(tmp_path: Path) -> None:
    """But not its angles and ids."""
    _, network = read_eagle(eagle3().write(tmp_path), replace(TARGET, dtype=torch.bfloat16))
    assert {one.dtype for one in network.state_dict().values()} == {torch.bfloat16}
    assert network.rotary.frequencies.dtype == network.double().rotary.frequencies.dtype == torch.float32
    assert network.d2t_ids is not None
    assert network.d2t_ids.dtype == torch.int64


# Which layers: files count inputs (vLLM, speculators) or outputs (SpecForge, SGLang), and some of the latter inputs too.


@pytest.mark.parametrize(
    ("ids", "layers", "expected"),
    [
        ((1, 29, 57), 61, (2, 30, 58)),
        ((2, 30, 58), 61, (2, 30, 58)),
        ((1, 3, 4), 8, (2, 4, 5)),
        ((0, 1, 6), 8, (1, 2, 7)),
    ],
)
def test_both_ways_of_counting_layers_in_eagle_config(
    tmp_path: Path, ids: tuple[int, ...], layers: int, expected: tuple[int, ...]
) -> None:
    config, _ = read_eagle(specforge(ids=ids).write(tmp_path), replace(TARGET, num_layers=layers))
    assert config.feature_layers == expected


def test_layers_of_speculators_are_inputs_and_any_may_be_set(tmp_path: Path) -> None:
    folder = speculators(eagle_aux_hidden_state_layer_ids=[1, 3, 4]).write(tmp_path)
    assert read_eagle(folder, TARGET)[0].feature_layers == (1, 3, 4)
    assert read_eagle(folder, TARGET, feature_layers=(2, 4, 8))[0].feature_layers == (2, 4, 8)


def test_the_number_of_features_is_that_of_the_weights(tmp_path: Path) -> None:
    files = eagle3()
    files.tensors["fc.weight"] = torch.randn(SIZE, 2 * SIZE)
    folder = files.write(tmp_path)
    with pytest.raises(
        InputError, match="reads 2 layers, and these are 3 by default: 2, 4, 5; name them by the option layers"
    ):
        read_eagle(folder, TARGET)
    assert read_eagle(folder, TARGET, feature_layers=(2, 5))[0].features == 2


# Reduced vocabularies: d2t holds offsets.


def _changed(change: Callable[[Files], Any]) -> Files:
    files = eagle3()
    change(files)
    return files


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda files: files.tensors.update(d2t=torch.tensor(DRAFTED)),
            "d2t leads to id 70, and the target has 0 to 63",
        ),
        (lambda files: files.tensors.update(d2t=torch.arange(8)), "d2t and t2d disagree"),
        (lambda files: files.tensors.update(d2t=torch.zeros(8, dtype=torch.long)), "d2t and t2d disagree"),
        (lambda files: files.tensors.update(d2t=torch.tensor([100, *[0] * 7])), "d2t leads to id 100"),
        (lambda files: files.tensors.update(d2t=torch.tensor([-1, *[0] * 7])), "d2t leads to id -1"),
        (lambda files: files.tensors.update(d2t=torch.tensor([5, 4, 3, 2, 1, 0, 0, 0])), "distinct ids in order"),
        (lambda files: files.tensors.update(d2t=torch.zeros(7, dtype=torch.long)), r"d2t has the shape \[7\].*\[8\]"),
        (lambda files: files.tensors.update(d2t=torch.zeros(8)), "d2t is torch.float32, and must be whole numbers"),
        (lambda files: files.tensors.pop("d2t"), "lacks d2t, without which the 8 tokens"),
        (lambda files: files.tensors.update(t2d=torch.ones(9, dtype=torch.bool)), r"t2d has the shape \[9\].*\[64\]"),
        (lambda files: files.config.update(draft_vocab_size=9), r"d2t has the shape \[8\].*\[9\]"),
    ],
)
def test_a_wrong_map_of_the_vocabulary_is_refused(tmp_path: Path, change: Callable[[Files], Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        read_eagle(_changed(change).write(tmp_path), TARGET)
    assert str(tmp_path) in str(refused.value)


def test_marks_may_be_left_out_and_a_map_of_ids_is_read_as_such(tmp_path: Path) -> None:
    files = eagle3()
    del files.tensors["t2d"]
    _, network = read_eagle(files.write(tmp_path / "one"), TARGET)
    assert network.d2t_ids is not None
    assert network.d2t_ids.tolist() == list(DRAFTED)
    files = vllm_eagle1()
    files.tensors |= {"lm_head.weight": torch.randn(8, SIZE), "token_map": torch.tensor(DRAFTED[::-1])}
    files.config["truncated_vocab_size"] = 8
    _, network = read_eagle(files.write(tmp_path / "two"), TARGET)
    assert network.d2t_ids is not None
    assert network.d2t_ids.tolist() == list(DRAFTED[::-1])


def test_proposals_lie_in_the_reduced_vocabulary(tmp_path: Path) -> None:
    _, network = read_eagle(eagle3().write(tmp_path), TARGET)
    logits = network.logits(torch.randn(1, 500, SIZE))
    assert logits is not None
    assert network.d2t_ids is not None
    assert set(network.d2t_ids[logits.argmax(-1)].flatten().tolist()) == set(DRAFTED)


# What is missing, unexpected, of another dtype or another shape.


@pytest.mark.parametrize("name", ["EAGLE-1", "EAGLE-3", "EAGLE-3, speculators, Qwen3"])
def test_weights_that_are_no_numbers_to_multiply_by_are_refused(tmp_path: Path, name: str) -> None:
    """Whole numbers lack the scales that belong to them, and what is not finite would never draft."""
    key = next(key for key in LAYOUTS[name]().tensors if key.endswith("up_proj.weight"))
    for index, (value, message) in enumerate([(3, "and a weight must be float16"), (torch.nan, "not finite")]):
        for kind in ("safetensors", "bin"):
            files = LAYOUTS[name]()
            one = files.tensors[key]
            files.tensors[key] = one.to(torch.int8) if value == 3 else one.masked_fill(one == one.max(), value)
            with pytest.raises(InputError, match=message) as refused:
                read_eagle(files.write(tmp_path / f"{index}{kind}", kind), TARGET)
            assert key in str(refused.value)


@pytest.mark.parametrize("name", ["EAGLE-1", "EAGLE-3"])
def test_what_is_another_s_is_told(tmp_path: Path, name: str) -> None:
    tiny_model().save_pretrained(tmp_path / "model")
    with pytest.raises(InputError, match=r"model holds no heads .* holds a whole model \(LlamaForCausalLM, 2 layers\)"):
        read_eagle(tmp_path / "model", TARGET)
    write(tmp_path / "medusa", "model.safetensors", vllm_names(random_weights(bias=False)), **VLLM)
    with pytest.raises(InputError, match="holds heads of medusa .vLLM: 3 heads.; pick -d medusa, not -d eagle3"):
        read_eagle(tmp_path / "medusa", TARGET, method="eagle3")
    files = LAYOUTS[name]()
    files.tensors = {f"module.{key}": one for key, one in files.tensors.items()}
    with pytest.raises(InputError, match="names of its tensors begin with 'module.'"):
        read_eagle(files.write(tmp_path / "wrapped"), TARGET)


@pytest.mark.parametrize(
    "name", ["EAGLE-1", "EAGLE-1, speculators", "EAGLE-1, vLLM", "EAGLE-3", "EAGLE-3, speculators"]
)
def test_missing_and_unexpected_tensors_are_named_exactly(tmp_path: Path, name: str) -> None:
    files = LAYOUTS[name]()
    gone = next(key for key in files.tensors if key.endswith("up_proj.weight"))
    files.tensors[f"{gone}s"] = files.tensors.pop(gone)
    files.tensors["more"] = torch.ones(1)
    with pytest.raises(InputError) as refused:
        read_eagle(files.write(tmp_path), TARGET)
    text = str(refused.value)
    more = ", ".join(sorted([f"{gone}s", "more"]))
    assert f"model.safetensors lacks {gone} and has unexpected {more}, by {tmp_path}/config.json" in text


def test_a_dropped_layer_is_named_whole(tmp_path: Path) -> None:
    files = speculators(layers=2)
    gone = [key for key in files.tensors if key.startswith("layers.1.")]
    for key in gone:
        del files.tensors[key]
    with pytest.raises(InputError) as refused:
        read_eagle(files.write(tmp_path), TARGET)
    listed = str(refused.value).partition(" lacks ")[2].partition(", by ")[0]
    assert sorted(listed.split(", ")) == sorted(gone)


@pytest.mark.parametrize("name", ["EAGLE-1", "EAGLE-1, vLLM", "EAGLE-3", "EAGLE-3, speculators, norms before fc"])
def test_every_tensor_of_another_shape_is_named_with_both(tmp_path: Path, name: str) -> None:
    for index, (key, one) in enumerate(LAYOUTS[name]().tensors.items()):
        files = LAYOUTS[name]()
        files.tensors[key] = torch.cat([one, one[:1]])
        with pytest.raises(InputError) as refused:
            read_eagle(files.write(tmp_path / str(index)), TARGET)
        text = str(refused.value)
        assert f"{index}/model.safetensors: " in text
        # A longer fc of EAGLE-3, or gate, is seen by what it contradicts.
        assert str(list(one.shape)) in text
        assert str([one.shape[0] + 1, *one.shape[1:]]) in text
        assert key in text


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_half_a_folder_is_refused(tmp_path: Path, missing: str) -> None:
    folder = eagle3().write(tmp_path)
    (folder / missing).unlink()
    with pytest.raises(InputError, match=missing):
        read_eagle(folder, TARGET)
    with pytest.raises(InputError, match="no such folder"):
        read_eagle(folder / "nowhere", TARGET)


# Another target, and another kind of head.


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": 48}, "this eagle3 head was made for hidden states of width 32, and the target has .* 48"),
        ({"vocab_size": 65}, "this eagle3 head was made for a vocabulary of 64, and the target has a vocabulary of 65"),
        ({"num_layers": 2}, "reads the target's hidden states 2, 1, -1 by default; .* the target has 2 layers"),
        ({"num_layers": 6}, "hidden states 2, 3, 3 by default; they are not distinct, since the target has 6 layers"),
    ],
)
def test_another_target_is_refused(tmp_path: Path, change: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_eagle(eagle3().write(tmp_path), replace(TARGET, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("files", "given", "message"),
    [
        (
            specforge(ids=(1, 2, 8)),
            None,
            r"layer 9 .* 0 to 7, since the target has 8 layers; name others by the option layers",
        ),
        (specforge(ids=(1, 2, 7)), None, r"layer 8 is not one of 0 to 7"),
        (specforge(ids=(1, 1, 2)), None, "not distinct"),
        (speculators(eagle_aux_hidden_state_layer_ids=[1, 2, 8]), None, "layer 8 is not one of 0 to 7"),
        (eagle3(), (1, 2, 9), "layer 9 is not one of 0 to 8"),
        (eagle3(), (1, 2), "reads 3 layers, and these are 2"),
        (eagle1(), (1, 2, 3), "EAGLE-1 heads read the final states"),
    ],
)
def test_layers_out_of_range_are_refused(
    tmp_path: Path, files: Files, given: tuple[int, ...] | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_eagle(files.write(tmp_path), TARGET, feature_layers=given)


def test_another_kind_of_head_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds an eagle3 head; pick it with -d eagle3, not -d eagle"):
        read_eagle(eagle3().write(tmp_path / "one"), TARGET, method="eagle")
    files = speculators()
    files.config["speculators_model_type"] = "eagle"
    with pytest.raises(InputError, match=r"has unexpected .*hidden_norm"):
        read_eagle(files.write(tmp_path / "two"), TARGET)
    files.config["speculators_model_type"] = "dflash"
    with pytest.raises(InputError, match="speculators_model_type is 'dflash', and must be eagle or eagle3"):
        read_eagle(files.write(tmp_path / "three"), TARGET)
    files = eagle1()
    files.tensors["fc.weight"] = torch.randn(SIZE, 3 * SIZE)
    with pytest.raises(
        InputError, match=r"fc.weight has the shape \[32, 96\], and by .*config.json it must have \[32, 64\]"
    ):
        read_eagle(files.write(tmp_path / "four"), TARGET)


def test_a_head_of_another_width_than_its_target_brings_embeddings(tmp_path: Path) -> None:
    wide = replace(TARGET, hidden_size=40)
    config, network = read_eagle(eagle3(wide=40).write(tmp_path / "one"), wide)
    assert (config.hidden_size, config.target_hidden_size) == (32, 40)
    assert network.fuse(torch.randn(1, 2, 120)).shape == (1, 2, 32)
    with pytest.raises(
        InputError, match=r"lacks embed_tokens.weight, which a head of width 32 for a target of width 40"
    ):
        read_eagle(eagle3(wide=40, bare=True).write(tmp_path / "two"), wide)


# Keys of the config file.


@pytest.mark.parametrize(
    ("files", "change", "message"),
    [
        (eagle3(), {"residual_multiplier": 0.2}, "unknown key residual_multiplier, which may change what"),
        (eagle3(), {"quantization_config": {}}, "unknown key quantization_config"),
        (eagle3(), {"hidden_size": "32"}, "hidden_size is '32', and must be a whole number of at least 1"),
        (eagle3(), {"num_attention_heads": 0}, "num_attention_heads is 0"),
        (eagle3(), {"norm_before_residual": 1}, "norm_before_residual is 1, and must be true or false"),
        (eagle3(), {"hidden_act": "sili"}, "hidden_act is 'sili'"),
        (eagle3(), {"model_type": "gemma"}, "model_type is 'gemma', and must be one of llama"),
        (eagle3(), {"norm_output": True}, "norm_output means one thing to SpecForge and another to speculators"),
        (eagle3(), {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5, and must be 1"),
        (
            eagle3(),
            {"num_key_value_heads": 3},
            "num_attention_heads is 4 and num_key_value_heads 3, which must divide it",
        ),
        (eagle3(), {"head_dim": 7}, "head_dim is 7, and must be even"),
        (
            eagle3(),
            {"num_attention_heads": 6},
            r"head_dim is 5 \(hidden_size by 6 num_attention_heads, as none is given\)",
        ),
        (eagle3(), {"hidden_act": "prelu"}, "hidden_act is 'prelu', and must be an activation .* without weights"),
        (eagle3(), {"rope_theta": "far"}, "rope_theta is 'far', and must be a number above 0"),
        (eagle3(), {"rope_theta": -1.0}, "rope_theta is -1.0, and must be a number above 0"),
        (eagle3(), {"rope_scaling": {"type": ["linear"]}}, "rope_scaling.type is .*, and must be the name of a kind"),
        (eagle3(), {"rope_scaling": {"type": "linear", "factor": 0.0}}, "its rotary embedding .* can't be made"),
        (
            eagle3(),
            {"rope_scaling": {"type": "longrope", "original_max_position_embeddings": 1.5}},
            "rope_scaling.original_max_position_embeddings is 1.5, and must be a whole number",
        ),
        (eagle3(), {"wandb": "x"}, "unknown key wandb, .*; delete what is only its trainer's"),
        (eagle3(), {"sliding_window": 16}, "layer_types doesn't say of which layers"),
        (eagle3(), {"layer_types": ["chunked_attention"]}, "layer_types is"),
        (eagle3(), {"eagle_aux_hidden_state_layer_ids": [1, "2"]}, "must be a list of whole numbers"),
        (eagle3(), {"rope_scaling": {"type": "linear", "faktor": 2}}, "unknown key rope_scaling.faktor"),
        (eagle3(), {"rope_scaling": {"type": "lineal", "factor": 2.0}}, "its rotary embedding .* can't be made"),
        (eagle3(), {"attention_bias": True}, "lacks midlayer.self_attn.k_proj.bias, midlayer"),
        (eagle3(), {"norm_before_fc": True}, "lacks input_norm.weight"),
        (eagle3(), {"norm_before_fc": True, "fc_norm": True}, "exclude each other"),
        (eagle1(bias=True), {"bias": False}, "has unexpected fc.bias"),
        (eagle1(bias=False), {"bias": True}, "lacks fc.bias"),
        (speculators(fc_norm=True), {"fc_norm": False}, "has unexpected fc_norm.0.weight, fc_norm.1"),
        (speculators(), {"layernorms": True}, "layernorms is True, and must be false"),
        (vllm_eagle1(), {"add_para_norm": True}, "add_para_norm is True"),
        (specforge(), {"eagle_config": {"use_mtp_layernorm": True}}, "eagle_config.use_mtp_layernorm is True"),
        (specforge(), {"eagle_config": {"new": 1}}, "unknown key eagle_config.new"),
        (specforge(), {"eagle_config": [1]}, "eagle_config is .*, and must be an object"),
    ],
)
def test_a_wrong_key_is_named(tmp_path: Path, files: Files, change: dict[str, Any], message: str) -> None:
    replace(files, config=files.config | change).write(tmp_path)
    with pytest.raises(InputError, match=message) as refused:
        read_eagle(tmp_path, TARGET)
    assert "config.json" in str(refused.value)


def test_a_lossy_setting_is_refused(tmp_path: Path) -> None:
    files = speculators()
    files.config["speculators_config"]["proposal_methods"][0]["verifier_accept_k"] = 3
    with pytest.raises(InputError, match="verifier_accept_k 3, which is lossy; set it to 1"):
        read_eagle(files.write(tmp_path), TARGET)


def test_norm_output_means_two_things(tmp_path: Path) -> None:
    for index, (files, expected) in enumerate(
        [
            (specforge(norm_output=True), (False, True)),
            (specforge(norm_output=False), (False, False)),
            (specforge(), (False, True)),
            (speculators(norm_output=True), (True, True)),
            (speculators(norm_output=False), (False, True)),
        ]
    ):
        config, _ = read_eagle(files.write(tmp_path / str(index)), TARGET)
        assert (config.norm_output, config.norm_logits) == expected


def test_sliding_layers_are_those_that_the_file_names(tmp_path: Path) -> None:
    for index, (keys, expected) in enumerate(
        [
            ({"sliding_window": 8, "layer_types": ["full_attention", "sliding_attention"]}, (8, {1})),
            ({"sliding_window": 8, "use_sliding_window": False}, (None, set())),
            ({"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1}, (8, {1})),
            ({"sliding_window": None}, (None, set())),
        ]
    ):
        files = speculators(layers=2, kind="qwen3")
        files.config["transformer_layer_config"] |= keys
        config, _ = read_eagle(files.write(tmp_path / str(index)), TARGET)
        assert (config.sliding_window, set(config.sliding_layers)) == expected
