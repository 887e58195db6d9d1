"""The text is that of plain decoding, whatever the lengths, the stops and the processors."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from outrider.check.check import Case, Check, CheckFailedError, Make, hold
from outrider.check.targets import REPETITIVE, VARIED, plain_text, prompt, tiny_target
from outrider.generation import generate
from outrider.target.model import Target

_SAMPLING: Final[tuple[dict[str, Any], ...]] = (
    {"temperature": 0.5},
    {"temperature": 1.0, "top_k": 3},
    {"temperature": 1.0, "top_k": 1},
    {"temperature": 2.0, "top_p": 0.5},
    {"temperature": 1.0, "min_p": 0.2},
    {"repetition_penalty": 1.3},
    {"no_repeat_ngram_size": 2},
    {"bad_words_ids": [[1], [2, 3], [9]]},
    {"min_new_tokens": 6, "eos_token_id": 5},
    {"forced_eos_token_id": 5},
)


def checks() -> Iterator[Check]:
    """Yield the checks."""
    yield Check(
        "greedy-equality",
        "basic",
        "greedy text is that of plain decoding, past the target's own length too (C8)",
        _greedy,
    )
    yield Check("stops", "basic", "an end-of-text token may come anywhere in a draft, and cuts it there (C8)", _stops)
    yield Check(
        "seed-equality",
        "sampling",
        "the same seed gives the same text as without a drafter, with every kind of processor (C9)",
        _seeds,
    )


def _greedy(make: Make) -> None:
    for seed in range(10):
        for spread in (VARIED, REPETITIVE):
            target = tiny_target(seed % 4, spread)

            def run(case: Case, target: Target = target) -> None:
                _same(target, make, case, max_new_tokens=case.count)

            ids = prompt((1, 2, 3, 20, 40)[seed % 5], seed)
            hold(Case(tuple(ids), (1, 2, 40)[seed % 3]), run)
    target = tiny_target(1)
    for length, count in ((100, 60), (500, 20)):  # the target was made for 512
        hold(Case(tuple(prompt(length, 5)), count), lambda case: _same(target, make, case, max_new_tokens=case.count))


def _same(target: Target, make: Make, case: Case, **options: Any) -> None:
    found = generate(target, case.ids, make(target.info), adaptive=False, **options).token_ids
    _compare(found, plain_text(target, case.ids, case.count))


def _compare(found: Sequence[int], expected: Sequence[int]) -> None:
    if list(found) != list(expected):
        pairs = enumerate(zip(found, expected, strict=False))
        place = next((i for i, pair in pairs if pair[0] != pair[1]), min(len(found), len(expected)))
        raise CheckFailedError(f"new token {place} is not that of plain decoding")


def _stops(make: Make) -> None:
    target = tiny_target(0, REPETITIVE)
    ids = prompt(8, 2) * 2
    text = plain_text(target, ids, 16)
    for place, token in enumerate(text):
        if text.index(token) == place:
            _stop_at(make, target, Case(tuple(ids), 16, f"end of text {token}"), token)
    for seed in range(4):
        _stop_in_cycle(make, tiny_target(seed, REPETITIVE))


def _stop_in_cycle(make: Make, target: Target) -> None:
    """A text that runs in circles: what copies from it drafts, rightly, across the stop."""
    ids = prompt(6, 2)
    ids = [*ids, *plain_text(target, ids, 40)]
    for token in sorted(set(plain_text(target, ids, 8)))[:6]:
        _stop_at(make, target, Case(tuple(ids), 8, f"end of text {token}"), token)


def _stop_at(make: Make, target: Target, case: Case, token: int) -> None:
    def run(case: Case) -> None:
        options: dict[str, Any] = {"max_new_tokens": case.count, "eos_token_id": token}
        found = generate(target, case.ids, make(target.info), adaptive=False, **options).token_ids
        expected = plain_text(target, case.ids, case.count)
        _compare(found, expected[: expected.index(token) + 1] if token in expected else expected)

    hold(case, run)


def _seeds(make: Make) -> None:
    for seed, options in enumerate(_SAMPLING):
        target = tiny_target(seed % 4, REPETITIVE)
        settings: dict[str, Any] = {"seed": seed, "do_sample": True, **options}

        def run(case: Case, target: Target = target, settings: dict[str, Any] = settings) -> None:
            more = settings | {"max_new_tokens": case.count}
            found = generate(target, case.ids, make(target.info), adaptive=False, **more).token_ids
            _compare(found, generate(target, case.ids, "none", **more).token_ids)
            for rule in ("rejection", "block"):  # their text is another, with the same law
                generate(target, case.ids, make(target.info), adaptive=False, rule=rule, **more)

        named = ", ".join(f"{name} {value}" for name, value in options.items())
        hold(Case(tuple(prompt(9, seed)), 20, named), run)
