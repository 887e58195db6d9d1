"""outrider's pytest plugin, for the test suites of drafters.

It is loaded in every run of pytest, so nothing of outrider is imported before a test asks for it.
"""

from collections.abc import Callable
from typing import Any

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes `drafter_check` once for every check."""
    if "drafter_check" in metafunc.fixturenames:
        from outrider.check.pytesting import every_check

        metafunc.parametrize("drafter_check", every_check(), ids=lambda check: check.name)


@pytest.fixture
def tiny_outrider_target() -> Any:
    """A target on a tiny random model, on which a draft costs next to nothing."""
    from outrider.check.targets import tiny_target

    return tiny_target()


@pytest.fixture
def run_outrider(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Return what runs the command line, and returns its status, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        from outrider.cli.app import app, run_app

        status = run_app(app, list(arguments), "outrider")
        found = capsys.readouterr()
        return status, found.out, found.err

    return run
