"""A target that two processes hold together: what they decode is what one decodes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import outrider
from outrider import InputError, ModelError
from outrider.decode.loop import pace_of
from outrider.decode.request import read_request
from outrider.decode.row import Row
from outrider.decode.stats import Stats
from outrider.draft.adaptive import Adaptive
from outrider.draft.guard import Guard
from outrider.draft.pace import Pace
from outrider.draft.plain import Plain
from outrider.errors import DrafterError, GenerationError
from outrider.ranks import Ranks
from ranked import decoded
from support import char_tokenizer, tiny_model


def together(*arguments: str, module: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a script, or a module, in two processes."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    return subprocess.run(
        [*launch, *(["-m"] if module else []), *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("model")
    tiny_model(3, 0.1).save_pretrained(where)
    char_tokenizer().save_pretrained(where)
    return where


def test_two_processes_decode_what_one_does(folder: Path, tmp_path: Path) -> None:
    done = together(str(Path(__file__).with_name("ranked.py")), str(folder), str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    assert first["heads"] == [[8, 32]]  # of two heads one each
    served = first["texts"]
    alone = decoded(outrider.load(folder, dtype="float64"), [one.name for one in outrider.drafters()])
    assert {name: one for name, one in alone.items() if name in served} == served
    # What works on the target's own parts has nothing to work on; all else is served.
    assert {name.split()[0] for name in alone.keys() - served.keys()} <= {"self"}
    assert {"none 0.0", "ngram 1.0", "lookahead 0.0"} <= served.keys()
    assert served["the first's trees"][-1] > 15
    assert served["rejection"][-1] > 0
    assert served["stopped"][2] < 24
    assert served["raised"] == "drafter 'raises' failed in propose: OSError: no such luck"


def test_commands_speak_once(folder: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "abcabcabc"}\n')
    options = ["-m", str(folder), "--dtype", "float64", "--raw", "--max-new-tokens", "12", "--prompts", str(prompts)]
    saved, record = tmp_path / "run.json", tmp_path / "runs.jsonl"
    done = together(
        "outrider",
        "compare",
        *options,
        "-d",
        "ngram",
        "--runs",
        "1",
        "--save",
        str(saved),
        "--resume",
        str(record),
        module=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("where the time goes") == 1
    found = json.loads(saved.read_text())
    assert {one["verdict"]["kind"] for one in found["figures"]} == {"identical"}
    assert len(record.read_text().splitlines()) == 3
    again = together("outrider", "generate", *options, "-d", "none", "--temperature", "0", "--json", module=True)
    assert again.returncode == 0, again.stderr[-3000:]
    (line,) = again.stdout.splitlines()
    assert json.loads(line)["token_ids"] == found["runs"][0]["token_ids"]


def test_one_process_alone_can_hold_nothing_together(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="needs several processes: torchrun"):
        outrider.load(folder, tensor_parallel=True)
    with pytest.raises(InputError, match="leave device and device_map out"):
        outrider.load(folder, tensor_parallel=True, device="cpu")
    with pytest.raises(InputError, match="a loaded model keeps its tensor_parallel"):
        outrider.load(tiny_model(), tensor_parallel=True)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr("outrider.target.compat.tensor_parallel", dict)
    with pytest.raises(ModelError, match="has no plan for tensor parallelism"):
        outrider.load(folder, tensor_parallel=True)


class Line:
    """A process group of one message, from the first process to the second."""

    def __init__(self, rank: int) -> None:
        self._rank = rank

    def rank(self) -> int:
        return self._rank


def test_only_the_first_keeps_the_time() -> None:
    target = outrider.load(tiny_model())
    row = Row(read_request(target, [1, 2], {"max_new_tokens": 3}), Stats())
    for rank, kind in ((0, Adaptive), (1, Pace)):
        target.ranks = Ranks(Line(rank))
        assert type(pace_of(target, Guard(Plain(target.info, Plain.Options())), [row])) is kind


@pytest.mark.parametrize(
    ("raised", "heard"),
    [
        (DrafterError("drafter 'x' failed"), DrafterError("drafter 'x' failed")),
        (KeyboardInterrupt(), KeyboardInterrupt()),
        (ValueError("odd"), GenerationError("the first process failed: ValueError: odd")),
        (None, None),
    ],
)
def test_what_the_first_raises_all_raise(
    raised: BaseException | None, heard: BaseException | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    line: list[Any] = []

    def broadcast(message: list[Any], **_: Any) -> None:
        if message[0] is None:
            message[:] = line
        else:
            line[:] = message

    monkeypatch.setattr("torch.distributed.broadcast_object_list", broadcast)
    monkeypatch.setattr("torch.distributed.get_global_rank", lambda group, rank: rank)

    def make() -> str:
        if raised is not None:
            raise raised
        return "mine"

    def never() -> str:
        raise AssertionError("only the first decides")

    def outcome(rank: int, what: Callable[[], str]) -> Any:
        try:
            return Ranks(Line(rank)).decided(what, lambda own: f"not {own}")
        except BaseException as error:
            return error

    first, second = outcome(0, make), outcome(1, never)
    if raised is None:
        assert (first, second) == ("mine", "not mine")
    else:
        assert first is raised
        assert (type(second), str(second)) == (type(heard), str(heard))
