"""Every registered drafter, made to raise in every method at every time: it is named, what was emitted stays the target's own,
and nothing of the rows is left."""

import warnings
from collections import Counter
from typing import Any

import pytest

import outrider
from outrider import Drafter
from support import plain_loop, prompt_of, registered, tiny_target

NAMES = [record.name for record in outrider.drafters()]
METHODS = ("needs", "begin", "propose", "observe", "truncate", "end")


def _raising(drafter: Drafter[Any], method: str, at: int, calls: Counter[str]) -> None:
    """Let the call of a number, counted from 0, raise; all calls are counted."""
    for name in METHODS:
        original = getattr(drafter, name)

        def call(*arguments: Any, name: str = name, original: Any = original) -> Any:
            calls[name] += 1
            if name == method and calls[name] == at + 1:
                raise RuntimeError("broken on purpose")
            return original(*arguments)

        setattr(drafter, name, call)


def _mended(drafter: Drafter[Any]) -> None:
    for name in METHODS:
        vars(drafter).pop(name, None)


def _rows_left(drafter: Drafter[Any]) -> list[str]:
    """Dictionaries by row that still hold some."""
    return [name for name, value in vars(drafter).items() if name == "_rows" and isinstance(value, dict) and value]


@pytest.mark.parametrize("method", METHODS[:4])
@pytest.mark.parametrize("name", NAMES)
def test_it_is_named_and_the_text_up_to_there_is_the_target_s(name: str, method: str) -> None:
    target, prompt = tiny_target(1, 0.1), prompt_of(8) * 2
    expected = plain_loop(target.model, prompt, 24)
    drafter = outrider.make_drafter(registered(target)[name], None, target.info)
    for at in (0, 1, 3) if method in ("propose", "observe") else (0,):
        calls: Counter[str] = Counter()
        _raising(drafter, method, at, calls)
        emitted: list[int] = []
        named = f"drafter '{name}' failed in {method}: RuntimeError: broken on purpose"
        stream = outrider.stream(target, prompt, drafter, max_new_tokens=24, adaptive=False)
        with pytest.raises(outrider.DrafterError, match=named), stream as steps:  # noqa: PT012
            for step in steps:
                emitted += step.tokens
        assert emitted == expected[: len(emitted)]
        # Those that look inside hear the prompt in pieces, before the first token.
        assert (len(emitted) > 0) or (method != "propose" and at < 3)
        assert calls["end"] >= (method != "needs")
        _mended(drafter)
        assert not _rows_left(drafter)
        again = outrider.generate(target, prompt, drafter, max_new_tokens=24, adaptive=False)
        assert list(again.token_ids) == expected


@pytest.mark.parametrize("name", NAMES)
def test_one_that_can_not_end_is_named_and_the_text_is_whole(name: str) -> None:
    target, prompt = tiny_target(1, 0.1), prompt_of(8) * 2
    drafter = outrider.make_drafter(registered(target)[name], None, target.info)
    _raising(drafter, "end", 0, Counter())
    with pytest.warns(UserWarning, match=f"drafter '{name}' failed in end: RuntimeError: broken on purpose"):
        result = outrider.generate(target, prompt, drafter, max_new_tokens=12, adaptive=False)
    assert list(result.token_ids) == plain_loop(target.model, prompt, 12)


@pytest.mark.parametrize("method", ["begin", "propose", "observe", "truncate"])
@pytest.mark.parametrize("name", NAMES)
def test_a_session_goes_on_after_it(name: str, method: str) -> None:
    """A later turn reads the text again and is the target's own; what failed was told."""
    target, calls = tiny_target(1, 0.1), Counter[str]()
    drafter = outrider.make_drafter(registered(target)[name], None, target.info)
    _raising(drafter, method, {"begin": 0, "truncate": 0}.get(method, 2), calls)
    with outrider.session(target, drafter, adaptive=False, max_new_tokens=12) as talk:
        failures: list[str] = []
        for turn in range(4):
            try:
                talk.generate(prompt_of(5, turn))
            except outrider.DrafterError as error:
                failures.append(str(error))
        assert failures == [f"drafter '{name}' failed in {method}: RuntimeError: broken on purpose"]
        before = talk.ids
        result = talk.generate(prompt_of(3, 9))
        assert list(result.token_ids) == plain_loop(target.model, [*before, *prompt_of(3, 9)], 12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _mended(drafter)
        assert not _rows_left(drafter)


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_ends_all_its_rows(name: str) -> None:
    target, calls = tiny_target(1, 0.1), Counter[str]()
    drafter = outrider.make_drafter(registered(target)[name], None, target.info)
    _raising(drafter, "propose", 1, calls)
    with pytest.raises(outrider.DrafterError, match=f"drafter '{name}' failed in propose"):
        outrider.generate_batch(target, [prompt_of(6), prompt_of(9, 1)], drafter, max_new_tokens=12, adaptive=False)
    _mended(drafter)
    assert calls["end"] >= 1
    assert not _rows_left(drafter)
