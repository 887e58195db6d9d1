import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import transformers

import outrider
from environments import ROOT, Environment, build_wheel
from outrider.plugins.registry import reload
from outrider.target.embedded import fetch
from support import char_tokenizer, tiny_model

# A shell starts what runs in its background deaf to Ctrl-C, which tests press.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _quiet_transformers() -> None:
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()


@pytest.fixture(scope="session")
def smollm2_folder() -> Path:
    return fetch("smollm2")


@pytest.fixture(scope="session")
def smollm2(smollm2_folder: Path) -> outrider.Target:
    return outrider.load("smollm2", dtype="float32", device="cpu")


@pytest.fixture
def fresh_registry() -> Iterator[None]:
    """Forget the installed plugins before and after a test that changes them."""
    reload()
    yield
    reload()


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with a tokenizer of one character a token."""
    folder = tmp_path_factory.mktemp("model")
    tiny_model(3, 0.1).save_pretrained(folder)
    char_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(ROOT, tmp_path_factory.mktemp("wheels") / "out")


@pytest.fixture
def environment(wheel: Path, tmp_path: Path) -> Environment:
    """An environment in which nothing but outrider's wheel is installed."""
    made = Environment(tmp_path / "venv")
    made.install(wheel)
    return made
