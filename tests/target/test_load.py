from pathlib import Path

import pytest
import torch

import outrider
from support import char_tokenizer, plain_loop, prompt_of, tiny_model


def test_a_folder_is_loaded_with_its_tokenizer(tmp_path: Path) -> None:
    model = tiny_model(0, dtype=torch.float32)
    model.save_pretrained(tmp_path)
    char_tokenizer().save_pretrained(tmp_path)
    target = outrider.load(tmp_path, dtype="float64")
    assert target.model.dtype == torch.float64
    result = outrider.generate(target, "hello", "ngram", max_new_tokens=12)
    ids = char_tokenizer()("hello").input_ids
    assert list(result.token_ids) == plain_loop(target.model, ids, 12)
    assert result.text == char_tokenizer().decode(result.token_ids)


def test_the_default_on_a_cpu_is_float32(tmp_path: Path) -> None:
    tiny_model(0, dtype=torch.bfloat16).save_pretrained(tmp_path)
    assert outrider.load(tmp_path, device="cpu").model.dtype == torch.float32
    assert outrider.load(tmp_path, device="cpu", dtype="auto").model.dtype == torch.bfloat16
    assert outrider.load(tmp_path, device="cpu", dtype=torch.float64).model.dtype == torch.float64


def test_a_model_without_a_tokenizer_takes_ids_only(tmp_path: Path) -> None:
    tiny_model(0).save_pretrained(tmp_path)
    target = outrider.load(tmp_path)
    assert outrider.generate(target, prompt_of(3), "none", max_new_tokens=3).text == ""
    with pytest.raises(outrider.InputError, match="without a tokenizer"):
        outrider.generate(target, "hello")


@pytest.mark.parametrize("name", ["./nowhere", "nowhere", "/no/such/folder", "smolm2"])
def test_a_missing_model_is_named(name: str) -> None:
    with pytest.raises(outrider.ModelError, match=f"model '{name}': no such folder"):
        outrider.load(name)


def test_a_near_miss_of_an_embedded_model_is_suggested() -> None:
    with pytest.raises(outrider.ModelError, match="Did you mean 'smollm2'"):
        outrider.load("smolm2")


def test_a_folder_that_holds_no_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(outrider.ModelError, match="can't be loaded"):
        outrider.load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(outrider.ModelError, match="can't be loaded"):
        outrider.load(tmp_path)


def test_wrong_dtypes_and_devices_are_named(tmp_path: Path) -> None:
    tiny_model(0).save_pretrained(tmp_path)
    with pytest.raises(outrider.InputError, match="dtype 'float23' is none of .* Did you mean 'float32'"):
        outrider.load(tmp_path, dtype="float23")
    with pytest.raises(outrider.InputError, match="device 'gpu' can't be used"):
        outrider.load(tmp_path, device="gpu")
    with pytest.raises(outrider.InputError, match="keeps its dtype"):
        outrider.load(tiny_model(0), dtype="float32")


def test_what_is_no_model_is_named() -> None:
    with pytest.raises(outrider.InputError, match="a Linear can't be a target"):
        outrider.load(torch.nn.Linear(2, 2))


def test_an_empty_name_and_a_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(outrider.ModelError, match="which model"):
        outrider.load("")
    (tmp_path / "model.safetensors").write_text("")
    with pytest.raises(outrider.ModelError, match="is a file; give the folder"):
        outrider.load(tmp_path / "model.safetensors")
