"""The trace: every call of a plugin by name, so that one that hangs is the last one named."""

import re
from typing import Any

import pytest

import outrider
from outrider.plugins.registry import registry
from support import Scripted, prompt_of, right_chain, tiny_target

LINE = re.compile(r"trace \d+\.\d{6} s: (.*?)( \.\.\.| took \d+\.\d{6} s| raised \d+\.\d{6} s)")


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_TRACE_PLUGINS", "1")


def calls(err: str) -> list[tuple[str, str]]:
    """Who was called for what, and whether it began, was over or raised."""
    found = []
    for line in err.splitlines():
        match = LINE.fullmatch(line)
        assert match, line
        found.append((match[1], match[2].split()[0]))
    return found


@pytest.mark.usefixtures("traced", "fresh_registry")
def test_every_hook_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    known = registry()
    found = calls(capsys.readouterr().err)
    for record in known.plugins:
        who = f"plugin '{record.name}' ({record.origin})"
        own = [one for one in found if one[0].startswith(who)]
        assert own[:2] == [(f"{who} import {record.module}", "..."), (f"{who} import {record.module}", "took")]
        hooks = {what.removeprefix(f"{who} ") for what, _ in own[2:]}
        assert hooks <= {"register_drafters", "offer_heads"}
        assert ("register_drafters" in hooks) == bool(record.drafters)


@pytest.mark.usefixtures("traced")
def test_every_call_of_a_drafter_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with outrider.session(tiny_target(0, 0.1), "ngram", adaptive=False, max_new_tokens=8) as talk:
        talk.generate(prompt_of(6))
        talk.generate(prompt_of(2))
    found = [one for one in calls(capsys.readouterr().err) if one[0].startswith("drafter ")]
    methods = {what.removeprefix("drafter 'ngram' ") for what, _ in found}
    assert methods == {"is made", "needs", "begin", "propose", "observe", "truncate", "end"}
    for begun, over in zip(found[::2], found[1::2], strict=True):
        assert begun[0] == over[0]
        assert (begun[1], over[1]) == ("...", "took")


@pytest.mark.usefixtures("traced")
def test_a_drafter_that_hangs_is_the_last_one_named(capsys: pytest.CaptureFixture[str]) -> None:
    target, seen = tiny_target(), ""

    def hang(batch: Any) -> Any:
        nonlocal seen
        seen = capsys.readouterr().err
        raise KeyboardInterrupt

    drafter: Any = Scripted(target, right_chain([]))
    drafter.propose = hang
    with pytest.raises(KeyboardInterrupt):
        outrider.generate(target, prompt_of(5), drafter, max_new_tokens=8)
    assert calls(seen)[-1] == ("drafter 'scripted' propose", "...")
    assert ("drafter 'scripted' propose", "raised") in calls(capsys.readouterr().err)


@pytest.mark.parametrize("value", ["", "0", None])
def test_otherwise_nothing_is_said(
    value: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OUTRIDER_TRACE_PLUGINS", raising=False)
    if value is not None:
        monkeypatch.setenv("OUTRIDER_TRACE_PLUGINS", value)
    outrider.generate(tiny_target(), prompt_of(5), "ngram", max_new_tokens=4)
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("fresh_registry")
def test_another_value_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_TRACE_PLUGINS", "yes")
    with pytest.raises(outrider.InputError, match="OUTRIDER_TRACE_PLUGINS = 'yes': write 1 to trace"):
        registry()
