from collections.abc import Iterator
from pathlib import Path

import pytest
import transformers

import outrider
from outrider.plugins.registry import reload
from outrider.target.embedded import fetch


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
