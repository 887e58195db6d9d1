"""A target that two processes hold together: what they decode is what one decodes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import outrider
from outrider import InputError, ModelError
from outrider.cli.app import app, run_app
from outrider.compare.record import Record
from outrider.draft.contract import DraftView, TokenView
from outrider.draft.led import LedPace
from outrider.draft.pace import Pace, Plan, Taken
from outrider.draft.tree import DraftTree
from outrider.errors import DrafterError, GenerationError
from outrider.ranks import Ranks, launched, launched_later, was_heard
from ranked import decoded
from support import tiny_model


def together(*arguments: str, module: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a script, or a module, in two processes."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    return subprocess.run(
        [*launch, *(["-m"] if module else []), *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def test_two_processes_decode_what_one_does(model_folder: Path, tmp_path: Path) -> None:
    done = together(str(Path(__file__).with_name("ranked.py")), str(model_folder), str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    assert first["heads"] == [[8, 32]]  # of two heads one each
    served = first["texts"]
    alone = decoded(outrider.load(model_folder, dtype="float64"), [one.name for one in outrider.drafters()])
    assert {name: one for name, one in alone.items() if name in served} == served
    # What works on the target's own parts has nothing to work on; all else is served.
    assert {name.split()[0] for name in alone.keys() - served.keys()} <= {"self"}
    assert {"none 0.0", "ngram 1.0", "lookahead 0.0"} <= served.keys()
    assert served["the first's trees"][-1] > 15
    assert served["rejection"][-1] > 0
    assert served["stopped"][2] < 24
    assert served["raised"] == "drafter 'raises' failed in propose: OSError: no such luck"


def test_commands_speak_once(model_folder: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "abcabcabc"}\n')
    options = [
        "-m",
        str(model_folder),
        "--dtype",
        "float64",
        "--raw",
        "--max-new-tokens",
        "12",
        "--prompts",
        str(prompts),
    ]
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


def test_one_process_alone_can_hold_nothing_together(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="needs several processes: torchrun"):
        outrider.load(model_folder, tensor_parallel=True)
    with pytest.raises(InputError, match="leave device and device_map out"):
        outrider.load(model_folder, tensor_parallel=True, device="cpu")
    with pytest.raises(InputError, match="a loaded model keeps its tensor_parallel"):
        outrider.load(tiny_model(), tensor_parallel=True)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr("outrider.target.compat.tensor_parallel", dict)
    with pytest.raises(ModelError, match="has no plan for tensor parallelism"):
        outrider.load(model_folder, tensor_parallel=True)


class OwnError(DrafterError):
    """A plugin's own error, which others could not make from its text."""

    def __init__(self, name: str, count: int) -> None:
        super().__init__(f"{name} of {count}")


class Line:
    """A process group of one message, from the first process to the second."""

    def __init__(self, rank: int) -> None:
        self._rank = rank

    def rank(self) -> int:
        return self._rank


@pytest.mark.parametrize(
    ("raised", "heard"),
    [
        (DrafterError("drafter 'x' failed"), DrafterError("drafter 'x' failed")),
        (KeyboardInterrupt(), KeyboardInterrupt()),
        (ValueError("odd"), GenerationError("the first process failed: ValueError: odd")),
        (OSError(28, "full"), OSError(28, "full")),
        (OwnError("x", 3), DrafterError("x of 3")),
        (None, None),
    ],
)
def test_what_the_first_raises_all_raise(
    raised: BaseException | None, heard: BaseException | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    join(monkeypatch)

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
        for one in (first, second):
            assert (type(one), str(one)) == (type(heard), str(heard))
        assert (was_heard(first), was_heard(second)) == (False, True)


def test_what_others_cannot_be_sent_is_an_error_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    join(monkeypatch)
    with pytest.raises(GenerationError, match="the first process failed: "):
        Ranks(Line(0)).decided(lambda: lambda: None)
    with pytest.raises(GenerationError, match="the first process failed: "):
        Ranks(Line(1)).decided(lambda: lambda: None)


def test_that_a_process_has_ended_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(message: list[Any], **_: Any) -> None:
        raise RuntimeError(f"{len(message)} Connection closed by peer")

    monkeypatch.setattr("torch.distributed.broadcast_object_list", broken)
    monkeypatch.setattr("torch.distributed.get_global_rank", lambda group, rank: rank)
    with pytest.raises(GenerationError, match="has ended"):
        Ranks(Line(1)).decided(lambda: 1)
    with pytest.raises(GenerationError, match="has ended"), Ranks(Line(1)).interruptible():
        broken([])


@pytest.mark.parametrize("busy", [False, True])
def test_an_interrupt_comes_up_in_all_at_once(busy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    join(monkeypatch)
    first, second = Ranks(Line(0)), Ranks(Line(1))
    with first.interruptible():
        if not busy:
            signal.raise_signal(signal.SIGINT)  # is kept until the next decision
        with pytest.raises(KeyboardInterrupt):
            first.decided(lambda: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            second.decided(lambda: None)
        signal.raise_signal(signal.SIGINT)  # the launcher's
        assert first.decided(lambda: 3) == 3
        assert second.decided(lambda: 0) == 3
    with second.interruptible():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_first_alone_decides_how_far_to_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks differ: what the first drafted where the second would have paused was an error there."""
    join(monkeypatch)
    views = [DraftView(0, TokenView([1]), 8, 8)]
    first, second = (LedPace(Fixed(depth), Ranks(Line(rank))) for rank, depth in enumerate((3, 0)))
    cut, whole = first.plan(views), second.plan(views)
    assert (cut.depth, cut.views[0].max_depth) == (whole.depth, 3) == (3, 3)
    taken = Taken([DraftTree.chain([1, 2, 3])], [0], [1], 0.1, 0.1)
    first.learn(cut, taken)
    second.learn(whole, taken)
    assert first.won == second.won == 1.0


class Fixed(Pace):
    """Drafts equally deep each time, and counts how often it learns."""

    def __init__(self, depth: int) -> None:
        self._depth, self._learned = depth, 0.0

    @property
    def won(self) -> float:
        return self._learned

    def plan(self, views: Sequence[DraftView]) -> Plan:
        return Plan(tuple(replace(one, max_depth=self._depth) for one in views), self._depth, not self._depth)

    def learn(self, plan: Plan, taken: Taken) -> None:
        assert plan.depth == taken.trees[0].depth
        self._learned += 1.0


def join(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a message of the first process wait for the second."""
    line: list[Any] = []

    def broadcast(message: list[Any], **_: Any) -> None:
        if message[0] is None:
            message[:] = line
        else:
            line[:] = message

    monkeypatch.setattr("torch.distributed.broadcast_object_list", broadcast)
    monkeypatch.setattr("torch.distributed.get_global_rank", lambda group, rank: rank)


@pytest.mark.parametrize(
    ("environment", "several", "later"),
    [
        ({}, False, False),
        ({"WORLD_SIZE": "2"}, False, False),
        ({"WORLD_SIZE": "many", "RANK": "0"}, False, False),
        ({"WORLD_SIZE": "1", "RANK": "0"}, False, False),
        ({"WORLD_SIZE": "2", "RANK": "0"}, True, False),
        ({"WORLD_SIZE": "2", "RANK": "1"}, True, True),
    ],
)
def test_whether_there_are_several_processes(environment: dict[str, str], several: bool, later: bool) -> None:
    assert (launched(environment), launched_later(environment)) == (several, later)


def test_what_one_process_does_is_not_done_by_several(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    assert run_app(app, ["tune", "-m", "nothing", "-d", "ngram"], "outrider") == 2
    assert (
        "error: outrider tune runs in one process; torchrun is for generate, compare and train"
        in capsys.readouterr().err
    )
    assert run_app(app, ["train", "--help"], "outrider") == 0


def test_a_record_that_others_only_read_is_named_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    other = Record(path, {"a": 1}).read_only()
    other.keep({"b": 2})
    assert len(path.read_text().splitlines()) == 1
    assert str(path) in str(other.unreadable())
