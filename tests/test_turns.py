"""Sessions: every turn must be that of a fresh generation on the whole text, whatever happened in the turns before."""

import copy
import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import pytest
import torch

import outrider
from outrider import DraftTree, OutcomeBatch, Result, Target
from outrider.draft.contract import RowStart
from outrider.draft.features import Needs
from outrider.target.cache import RowLayer
from outrider.turns import Session
from support import VOCAB, Scripted, char_tokenizer, lively, plain_loop, prompt_of, tiny_model

MODELS: dict[str, Callable[[], Any]] = {
    "tree": lambda: tiny_model(1),
    "paths": lambda: lively("bloom"),
    "replay": lambda: lively("lfm2", layer_types=["conv", "full_attention"]),
    "encoder-decoder": lambda: lively("t5", num_decoder_layers=2, pad_token_id=0, decoder_start_token_id=0),
}
TIERS = ["tree", "paths", "replay"]
GREEDY: dict[str, Any] = {"max_new_tokens": 9}
SAMPLED: dict[str, Any] = {"max_new_tokens": 9, "temperature": 1.2, "top_k": 20, "repetition_penalty": 1.1, "seed": 7}
TEMPLATE = (
    "{% for one in messages %}{{ one.role[0] }} {{ one.content }}{% if one.name %} named{% endif %}. {% endfor %}a "
)


@cache
def _target(tier: str) -> Target:
    target = outrider.load(MODELS[tier](), tokenizer=char_tokenizer())
    assert target.tier.name == tier or tier == "encoder-decoder"
    return target


@cache
def _twin(target: Target) -> Any:
    """The same model, for a drafter that must go on where the target fails."""
    return copy.deepcopy(target.model)


@cache
def _chat_target(tier: str) -> Target:
    tokenizer = copy.deepcopy(char_tokenizer())
    tokenizer.chat_template = TEMPLATE
    return Target(_target(tier).model, tokenizer, type(_target(tier).tier))


def _assert_fresh(target: Target, session: Session, result: Result, **options: Any) -> None:
    """The turn's text is that of the ids before it, and the session's text ends with it."""
    ids = session.ids
    before = ids[: len(ids) - len(result.token_ids)]
    assert ids[len(before) :] == list(result.token_ids)
    fresh = outrider.generate(target, before, "none", **(options | {"seed": result.seed}))
    assert (result.token_ids, result.text) == (fresh.token_ids, fresh.text)
    assert result.stats.num_prompt_tokens == len(before)


class Guess(Scripted):
    """Right for two tokens where the target is greedy, and hears everything."""

    def __init__(self, target: Target, layer: int | None = None) -> None:
        super().__init__(target, lambda ids: self.guess(ids))
        self.model, self.layer = _twin(target), layer
        self.begun, self.truncated, self.heard = list[int](), list[int](), list[torch.Tensor]()
        self.raising: dict[str, BaseException] = {}

    def guess(self, ids: Sequence[int]) -> DraftTree:
        self._may_fail("propose")
        right = plain_loop(self.model, ids, 2)
        wrong = [(token + 1) % VOCAB for token in right]
        return DraftTree((wrong[0], right[0], right[1], wrong[1]), (-1, -1, 1, 2))

    def needs(self) -> Needs:
        return Needs() if self.layer is None else Needs(hidden=frozenset({self.layer}))

    def begin(self, rows: Sequence[RowStart]) -> None:
        self._may_fail("begin")
        self.begun += [start.row for start in rows]

    def observe(self, batch: OutcomeBatch) -> None:
        self._may_fail("observe")
        super().observe(batch)
        self.heard += [one.features.hidden(self.layer or 0) for one in batch.rows if one.features is not None]

    def truncate(self, row: int, length: int) -> None:
        self._may_fail("truncate")
        assert row in self.begun
        self.truncated.append(length)
        self.heard = [torch.cat(self.heard)[:length]] if self.heard else []

    def _may_fail(self, method: str) -> None:
        error = self.raising.pop(method, None)
        if error is not None:
            raise error


@contextmanager
def _fed(target: Target) -> Iterator[list[int]]:
    fed: list[int] = []

    def count(module: Any, args: Any, kwargs: Any) -> None:
        fed.append(kwargs["input_ids"].shape[1])

    handle = target.model.register_forward_pre_hook(count, with_kwargs=True)
    try:
        yield fed
    finally:
        handle.remove()


@contextmanager
def _failing(target: Target, place: str, error: BaseException, after: int = 0) -> Iterator[None]:
    """The model's forward fails at a place inside, at a call."""
    model: Any = target.model
    layers = next(part for part in model.modules() if isinstance(part, torch.nn.ModuleList))
    calls: list[int] = []

    def fail(module: Any, inputs: Any) -> None:
        calls.append(1)
        if len(calls) > after:
            raise error

    module = {"first layer": layers[0], "last layer": layers[-1], "head": model.get_output_embeddings()}[place]
    handle = module.register_forward_pre_hook(fail)
    try:
        yield
    finally:
        handle.remove()


@pytest.mark.parametrize("options", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("tier", TIERS)
def test_turns_are_those_of_fresh_generations(tier: str, options: dict[str, Any]) -> None:
    target = _target(tier)
    for drafter in ("none", "ngram", Guess(target)):
        with outrider.session(target, drafter, **options, adaptive=False) as session:
            prompts: tuple[Any, ...] = (prompt_of(12), "abc", torch.tensor([4, 4]), [], [5])
            for turn, prompt in enumerate(prompts):
                before = session.ids
                result = session.generate(prompt, prefill_chunk_size=5, seed=turn)
                assert session.ids[: len(before)] == before
                assert result.stats.num_accepted_draft_tokens > 0 or isinstance(drafter, str) or options is SAMPLED
                _assert_fresh(target, session, result, **options)
            for length in (30, 29, 3, 0):
                session.truncate(length)
                assert len(session.ids) == length
                _assert_fresh(target, session, session.generate([8, 9]), **options)


@pytest.mark.parametrize("tier", TIERS)
def test_a_later_turn_reads_only_what_is_new(tier: str) -> None:
    target = _target(tier)
    session = outrider.session(target, Guess(target), **GREEDY)
    with _fed(target) as fed:
        session.generate(prompt_of(40))
        assert fed[0] == 40
        fed.clear()
        session.generate([1, 2, 3])
        assert fed[0] == 4  # the last id of the turn before was not read yet
        assert sum(fed) < 4 + 8 * (5 if tier == "tree" else 6)
        session.truncate(20)
        fed.clear()
        session.generate([1, 2, 3])
        assert fed[0] == (23 if tier == "replay" else 3)


@pytest.mark.parametrize("tier", TIERS)
def test_a_chat_is_its_template_s_text(tier: str) -> None:
    target = _chat_target(tier)
    said: list[dict[str, str]] = []
    with outrider.session(target, "ngram", **GREEDY) as session:
        for message in ("hello", "how are you", "bye"):
            result = session.generate(message)
            said.append({"role": "user", "content": message})
            assert result.token_ids == outrider.generate(target, said, "none", **GREEDY).token_ids
            said.append({"role": "assistant", "content": result.text})
        said[2] = {"role": "user", "content": "how old are you"}
        result = session.generate([*said, {"role": "user", "content": "yes"}])
        said += [{"role": "user", "content": "yes"}, {"role": "assistant", "content": result.text}]
        with _fed(target) as fed:
            result = session.generate("no")
        said.append({"role": "user", "content": "no"})
        assert result.token_ids == outrider.generate(target, said, "none", **GREEDY).token_ids
        assert fed[0] < 60 < result.stats.num_prompt_tokens
        session.truncate(11)
        _assert_fresh(target, session, session.generate([3]), **GREEDY)


def test_messages_keep_what_the_template_asks_for() -> None:
    target = _chat_target("tree")
    said: Any = [{"role": "user", "content": "hello", "name": None}]
    session = outrider.session(target, "none", **GREEDY)
    said += [{"role": "assistant", "content": session.generate(said).text}, {"role": "user", "content": "you"}]
    assert session.generate("you").token_ids == outrider.generate(target, said, "none", **GREEDY).token_ids


@pytest.mark.parametrize("steps", [0, 1, 2])
@pytest.mark.parametrize("how", ["closed", "left", "forgotten"])
@pytest.mark.parametrize("tier", TIERS)
def test_a_turn_may_be_given_up(tier: str, how: str, steps: int) -> None:
    target = _target(tier)
    session = outrider.session(target, Guess(target), **GREEDY)
    session.generate(prompt_of(12))
    session.truncate(8)
    stream = session.stream([1, 2, 3])
    taken = [token for _ in range(steps) for token in next(stream).tokens]
    if how == "closed":
        stream.close()
    elif how == "left":
        with stream:
            pass
    else:
        del stream
        gc.collect()
    assert session.ids[8:] == [1, 2, 3, *taken]
    _assert_fresh(target, session, session.generate([4, 5]), **GREEDY)


@pytest.mark.parametrize("method", ["begin", "truncate", "propose", "observe"])
@pytest.mark.parametrize("tier", TIERS)
def test_a_drafter_may_fail(tier: str, method: str) -> None:
    target = _target(tier)
    drafter = Guess(target)
    session = outrider.session(target, drafter, **GREEDY, adaptive=False)
    if method != "begin":
        session.generate(prompt_of(12))
        session.truncate(5)
    stream, seen = session.stream([1, 2, 3]), list[int]()
    if method in ("propose", "observe"):
        seen += next(stream).tokens
    drafter.raising[method] = ArithmeticError("broken")
    with pytest.raises(outrider.DrafterError, match=f"failed in {method}: ArithmeticError: broken"):
        next(stream)
    assert list(stream) == []
    assert session.ids[-3 - len(seen) :] == [1, 2, 3, *seen]
    _assert_fresh(target, session, session.generate([4, 5]), **GREEDY)


@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt()], ids=["error", "interrupt"])
@pytest.mark.parametrize("place", ["first layer", "last layer", "head"])
@pytest.mark.parametrize("tier", TIERS)
def test_the_model_may_fail_at_any_place(tier: str, place: str, error: BaseException) -> None:
    """In the first prefill, in a later one's second chunk, in a step, and in what follows a step."""
    target = _target(tier)
    session = outrider.session(target, Guess(target), prefill_chunk_size=3, **GREEDY)
    for new, cut, steps, after in (([1, 2], 0, 0, 0), (prompt_of(9), 0, 0, 1), ([3], 6, 2, 0), ([3, 4, 5, 6], 4, 0, 1)):
        session.truncate(min(cut, len(session.ids)))
        stream = session.stream(new)
        for _ in range(steps):
            next(stream)
        with _failing(target, place, error, after), pytest.raises(type(error)):
            stream.result()
        _assert_fresh(target, session, session.generate([4, 5]), **GREEDY)


def test_memory_may_run_out_in_the_first_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    target = _target("tree")
    session = outrider.session(target, "none", **GREEDY)
    with monkeypatch.context() as patch:
        patch.setattr(RowLayer, "_grow", lambda *_: (_ for _ in ()).throw(MemoryError()))
        with pytest.raises(MemoryError):
            session.generate([1, 2])
    _assert_fresh(target, session, session.generate([3]), **GREEDY)


@pytest.mark.parametrize("what", ["nothing", "the same", "cut", "closed", "failed prefill", "failed step"])
@pytest.mark.parametrize("tier", TIERS)
def test_a_drafter_has_the_states_of_every_id_once(tier: str, what: str) -> None:
    target = _target(tier)
    drafter = Guess(target, layer=1)
    session = outrider.session(target, drafter, prefill_chunk_size=4, **GREEDY)
    with suppress(RuntimeError), _failing(target, "last layer", RuntimeError(), 2 if what == "failed prefill" else 99):
        session.generate(prompt_of(20))
    if what == "cut":
        session.truncate(9)
    if what in ("closed", "failed step"):
        stream = session.stream([1, 2])
        next(stream), next(stream)
        with _failing(target, "head", RuntimeError(), 0 if what == "failed step" else 99), suppress(RuntimeError):
            next(stream)
        stream.close()
    session.generate([] if what == "the same" else [5, 6, 7])
    with torch.no_grad():
        model: Any = target.model
        expected = model(torch.tensor([session.ids[:-1]]), output_hidden_states=True).hidden_states[1][0]
    heard = torch.cat(drafter.heard)
    assert heard.shape == expected.shape
    assert torch.allclose(heard, expected, atol=1e-6)


def test_sessions_in_threads_share_a_target() -> None:
    for tier in TIERS:
        target, failed = _target(tier), list[BaseException]()

        def talk(seed: int, target: Target = target, failed: list[BaseException] = failed) -> None:
            try:
                with outrider.session(target, Guess(target, layer=1), **SAMPLED) as session:
                    for turn in range(3):
                        _assert_fresh(target, session, session.generate(prompt_of(7, seed + turn)), **SAMPLED)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=talk, args=(10 * seed,)) for seed in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed


def test_turns_come_one_after_another() -> None:
    target = _target("tree")
    drafter = Guess(target)
    session = outrider.session(target, drafter, **GREEDY)
    stream = session.stream([1, 2, 3])
    for busy in (lambda: session.stream([1]), lambda: session.generate([1]), lambda: session.truncate(1)):
        with pytest.raises(outrider.InputError, match="the session's last turn is not over"):
            busy()
    first = stream.result()
    _assert_fresh(target, session, first, **GREEDY)
    for length in (-1, 99, True, 1.0):
        with pytest.raises(outrider.InputError, match=f"length = {length}: must be a whole number from 0 to 12"):
            session.truncate(length)  # type: ignore[arg-type]
    for wrong in ([VOCAB], [1.5], "", 3):
        with pytest.raises(outrider.InputError):
            session.generate(wrong)  # type: ignore[arg-type]
    with pytest.raises(outrider.InputError, match="max_new_tokens = 0"):
        session.generate([1], max_new_tokens=0)
    second = session.stream([4])
    next(second)
    stream.close()  # an old turn's end is not the new one's
    with pytest.raises(outrider.InputError, match="is not over"):
        session.generate([1])
    session.close()
    assert list(second) == []
    session.close()
    assert drafter.ended == drafter.begun
    assert len(drafter.ended) == 1
    for closed in (lambda: session.stream([1]), lambda: session.generate([1]), lambda: session.truncate(1)):
        with pytest.raises(outrider.InputError, match="the session is closed"):
            closed()


@pytest.mark.parametrize("tier", TIERS)
def test_a_drafter_is_told_where_the_text_goes_on(tier: str) -> None:
    target = _target(tier)
    drafter = Guess(target)
    with outrider.session(target, drafter, **GREEDY) as session:
        session.generate(prompt_of(12))
        session.truncate(6)
        session.generate([5])
        session.stream([1, 2]).close()
        session.truncate(3)
        session.generate([1])
    assert len(drafter.begun) == len(drafter.ended) == 1
    assert all(length <= most for length, most in zip(drafter.truncated, (6, 3), strict=True))
    never = Guess(target)
    outrider.session(target, never).close()
    assert never.begun == never.ended == []


def test_what_can_t_be_served_in_a_session_is_refused() -> None:
    target = _target("tree")
    static: dict[str, Any] = {"cache_implementation": "static", "max_new_tokens": 2}
    for begin in (lambda: outrider.session(target, **static), lambda: outrider.session(target).generate([1], **static)):
        with pytest.raises(outrider.InputError, match="static"):
            begin()
    with pytest.raises(outrider.InputError, match="Did you mean 'max_new_tokens'"):
        outrider.session(target, max_new_token=3)


def test_an_encoder_decoder_reads_a_new_source_or_is_refused() -> None:
    target = _target("encoder-decoder")
    with suppress(outrider.InputError), outrider.session(target, "none", **GREEDY) as session:
        for source in (prompt_of(9, 5), prompt_of(7, 6)):
            text = [*session.ids, *source]
            result = session.generate(source)
            assert result.token_ids == outrider.generate(target, text, "none", **GREEDY).token_ids
