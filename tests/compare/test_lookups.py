from typing import Any

import pytest

from outrider.compare import lookups as module
from outrider.compare.lookups import lookups
from outrider.compare.runner import Contestant, Outcome
from outrider.prompt_file import NamedPrompt
from outrider.target.model import Target
from support import tiny_target


def _absent(target: Target, draft_tokens: int, max_new_tokens: int) -> Contestant:
    raise ImportError


def _wrong(target: Target, draft_tokens: int, max_new_tokens: int) -> Contestant:
    def contestant(prompt: NamedPrompt) -> Outcome:
        return [1] * max_new_tokens, 1000.0, {}

    return contestant


def test_lookups_are_set_beside_plain_decoding(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Packages that are not there are named; a text that is not plain decoding's is told."""
    monkeypatch.setattr(module, "_PEERS", {"absent": _absent, "wrong": _wrong})
    lookups(tiny_target(), [NamedPrompt("one", "abcabcabc")], rounds=2, max_new_tokens=12)
    printed = capsys.readouterr()
    assert "absent is not installed and left out" in printed.err
    rows = {line.split("│")[2].strip(): line.split("│") for line in printed.out.splitlines() if "│ one" in line}
    assert list(rows) == ["plain", "ngram", "transformers", "wrong"]
    assert [row[7].strip() for row in rows.values()] == ["yes", "yes", "yes", "no"]
    assert rows["plain"][5].strip() == "1.00 (1.00-1.00)"
    assert rows["wrong"][5].strip() == "0.00 (0.00-0.00)"
