from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import outrider
from outrider import InputError
from outrider.plugins.loader import LoadedPlugin, PluginRecord
from outrider.plugins.offers import find_heads
from outrider.plugins.registry import Registry
from outrider.target.fingerprint import Fingerprint, read_fingerprint
from support import OPTIONS, tiny_model, tiny_target


def registry_offering(*folders: tuple[str, Path]) -> Registry:
    def offer_heads(offer: Any) -> None:
        for drafter, folder in folders:
            offer(drafter, folder)

    record = PluginRecord("test", "test", "1", "test", "loaded")
    own = [LoadedPlugin(record, (), (SimpleNamespace(function=offer_heads, argnames=("offer",)),))]
    found = Registry(own)
    found._drafters |= outrider.registry()._drafters
    return found


def fingerprint(**config: Any) -> Fingerprint:
    found = Fingerprint.of(tiny_target(**config).info)
    assert found is not None
    return found


def test_a_target_is_known_in_any_dtype() -> None:
    exact = fingerprint()
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        other = Fingerprint.of(outrider.load(tiny_model(dtype=dtype)).info)
        assert other is not None
        assert exact.matches(other)
        assert other.matches(exact)


def test_other_models_are_told_apart() -> None:
    assert not fingerprint().matches(fingerprint(seed=1))
    assert not fingerprint().matches(fingerprint(num_hidden_layers=3))
    model = tiny_model()
    with torch.no_grad():  # as a fine-tuned one differs
        model.model.layers[-1].mlp.down_proj.weight.mul_(1.05)
    other = Fingerprint.of(outrider.load(model).info)
    assert other is not None
    assert not fingerprint().matches(other)


def test_it_is_written_and_read(tmp_path: Path) -> None:
    fingerprint().write(tmp_path, "tiny")
    name, found = read_fingerprint(tmp_path)
    assert (name, found.matches(fingerprint())) == ("tiny", True)
    (tmp_path / "target.json").write_text("{}")
    with pytest.raises(InputError, match="target.json can't be read"):
        read_fingerprint(tmp_path)


def test_heads_are_found_by_what_the_target_is(tmp_path: Path) -> None:
    for name, seed in (("one", 0), ("two", 1)):
        (tmp_path / name).mkdir()
        fingerprint(seed=seed).write(tmp_path / name, name)
    known = registry_offering(("eagle3", tmp_path / "one"), ("eagle3", tmp_path / "two"), ("medusa", tmp_path / "one"))
    assert find_heads("eagle3", tiny_target(seed=1).info, known) == tmp_path / "two"
    assert find_heads("medusa", tiny_target().info, known) == tmp_path / "one"
    with pytest.raises(
        InputError, match=r"no package offers it \(there is some for one\): give a folder, medusa\[heads=FOLDER\]"
    ):
        find_heads("medusa", tiny_target(seed=1).info, known)
    with pytest.raises(InputError, match=r"draft-model\[model=FOLDER\], or train one with `outrider train draft-model"):
        find_heads("draft-model", tiny_target().info, known)


def test_a_folder_without_a_fingerprint_makes_the_plugin_fail(tmp_path: Path) -> None:
    known = registry_offering(("eagle3", tmp_path))
    (record,) = known.plugins
    assert record.status == "failed"
    assert "has no target.json" in record.detail
    assert not known.offers


@pytest.mark.parametrize("drafter", ["eagle", "eagle3", "medusa", "draft-model"])
def test_without_a_folder_the_error_says_how_to_get_one(drafter: str) -> None:
    with pytest.raises(InputError, match=f"drafter '{drafter}' needs .* no package offers it"):
        outrider.make_drafter(drafter, {}, tiny_target().info)


def test_offered_heads_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a package offers is taken where no folder is named, and a named one wins."""
    target = tiny_target()
    folder = Path(OPTIONS["medusa"](target)["heads"])
    fingerprint().write(folder, "tiny")
    known = registry_offering(("medusa", folder))
    monkeypatch.setattr("outrider.plugins.offers.registry", lambda: known)
    found = outrider.generate(target, [1, 2, 3], "medusa", max_new_tokens=12, adaptive=False)
    assert found.stats.num_draft_tokens > 0
    with pytest.raises(InputError, match="no such folder"):
        outrider.make_drafter("medusa", {"heads": "nowhere"}, target.info)
