"""`outrider check`: a line a check, failures with their smallest input, and the exit status."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]

FAULTY = """
from outrider import DraftTree, DrafterOptions, RowDrafter

class TooDeep(RowDrafter[DrafterOptions]):
    name = "too-deep"
    requires_api = (0, 1)

    def propose_row(self, view):
        return DraftTree.chain([1, 2, 3, 4])
"""


@pytest.fixture
def faulty(tmp_path: Path) -> str:
    (tmp_path / "deep.py").write_text(FAULTY)
    return f"{tmp_path / 'deep.py'}::TooDeep"


def test_a_line_a_check_and_status_0(run_outrider: Run) -> None:
    status, out, err = run_outrider("check", "ngram", "--tier", "batch", "--tier", "features")
    lines = out.splitlines()
    assert (status, err) == (0, "")
    assert [line.split()[:3] for line in lines[:3]] == [
        ["passed", "batch", "batch-rows"],
        ["passed", "batch", "batch-order"],
        ["skipped", "features", "chunked-prompt"],
    ]
    assert lines[2].endswith("(it needs no features)")
    assert lines[-1] == "2 passed, 1 skipped"


def test_a_failure_comes_with_its_smallest_input_and_status_1(run_outrider: Run, faulty: str) -> None:
    status, out, _ = run_outrider("check", faulty, "--only", "depth-room", "--only", "batch-rows")
    assert status == 1
    assert out.splitlines()[0].startswith("failed    basic     depth-room")
    assert "\ndepth-room: drafter 'too-deep' failed in propose: ValueError: a tree of 4 nodes" in out
    assert "smallest input: prompt [37] of 1 ids, max_depth 1" in out
    assert out.splitlines()[-1] == "1 failed, 1 passed"


def test_json_is_one_object(run_outrider: Run, faulty: str) -> None:
    status, out, _ = run_outrider("check", faulty, "--only", "depth-room", "--json")
    found = json.loads(out)
    assert status == 1
    assert (found["drafter"], found["passed"]) == (faulty, False)
    (check,) = found["checks"]
    assert (check["check"], check["tier"], check["status"]) == ("depth-room", "basic", "failed")
    assert "smallest input" in check["detail"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ngran"], "Did you mean 'ngram'?"),
        (["ngram", "--only", "depth"], "unknown check 'depth'"),
        (["ngram", "--tier", "tree"], "unknown tier 'tree'. Did you mean 'trees'?"),
        (["ngram", "-o", "max_m=3"], "unknown option 'max_m'"),
        (["medusa[heads=/none]"], "/none"),
    ],
)
def test_bad_input_is_one_line_and_status_2(run_outrider: Run, arguments: list[str], message: str) -> None:
    status, out, err = run_outrider("check", *arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1
