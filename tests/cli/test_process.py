"""The command as a process of its own: signals, pipes and closed streams."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support import char_tokenizer, tiny_model

COMMAND = [sys.executable, "-m", "outrider"]


@pytest.fixture(scope="module")
def generate(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder: Path = tmp_path_factory.mktemp("model")
    tiny_model(3, 0.1).save_pretrained(folder)
    char_tokenizer().save_pretrained(folder)
    return [*COMMAND, "generate", "-m", str(folder), "--max-new-tokens", "300"]


def test_ctrl_c_while_it_starts_is_quiet() -> None:
    process = subprocess.Popen([*COMMAND, "drafters"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    time.sleep(0.6)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode in (130, 0)  # 0 where all was imported by then
    assert err == ""


def test_a_closed_pipe_is_no_error(generate: list[str]) -> None:
    for extra in ([], ["--json"]):
        process = subprocess.Popen(
            [*generate, "-p", "hello", *extra], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        err = process.stderr.read()
        assert process.wait(60) == 0
        assert "Traceback" not in err
        assert "error" not in err


@pytest.mark.parametrize(
    ("redirection", "message", "status"),
    [("<&-", "there is none", 2), (">/dev/full", "No space left on device", 1), (">&-", "no standard output", 1)],
)
def test_streams_that_cannot_be_used_are_one_line(
    generate: list[str], redirection: str, message: str, status: int
) -> None:
    prompt = "-" if "<" in redirection else "hello"
    done = subprocess.run(
        ["bash", "-c", f'"$@" {redirection}', "bash", *generate, "-p", prompt],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == status
    assert message in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("error")]) == 1
    assert "Traceback" not in done.stderr


def test_a_prompt_that_is_no_text_is_one_line(generate: list[str]) -> None:
    done = subprocess.run([*generate, "-p", "-"], input=b"h\xff\xfe", capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr.decode().startswith("error: the prompt on stdin is no UTF-8 text")


def test_the_version_is_told() -> None:
    done = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("outrider 0.")
