"""A session: turns of one text, each of which reads only what is new."""

import sys
import threading
import weakref
from collections.abc import Mapping
from typing import Any, Self

from outrider.decode.loop import Emitted, open_cache, pace_of, read_prompts, take_step
from outrider.decode.request import Request, check_options, read_request
from outrider.decode.row import Row
from outrider.decode.stats import Stats, timing
from outrider.draft.cost import Costs
from outrider.draft.features import Needs
from outrider.draft.guard import Guard
from outrider.draft.pace import Pace
from outrider.errors import InputError
from outrider.generation import Collected, Result, Stream, prepare
from outrider.plugins.words import DrafterWord
from outrider.prompt import Prompt, encode
from outrider.target.model import Target


class Turn:
    """The steps of one turn; whether it ends or is given up, the session can go on from what was committed."""

    def __init__(self, target: Target, drafter: Guard, needs: Needs, row: Row, held: "Held") -> None:
        self._target, self._drafter, self._needs, self._row, self._held = target, drafter, needs, row, held
        self._started = self._over = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Emitted:
        if self._over:
            raise StopIteration
        row, held = self._row, self._held
        before = len(row.ids)
        try:
            if not self._started:
                self._started = True
                emitted = self._first()
            else:
                emitted = take_step(self._target, self._drafter, [row], held.cache, self._needs, held.pace)
        except BaseException:
            # What the caller never saw is no part of the text; what the cache and the drafter hold is not known any more.
            row.ids[before:] = []
            row.view.replace(before, ())
            held.cache, held.same = None, 0
            self.close()
            raise
        if emitted[0][1].finish_reason is not None:
            self.close()
        return emitted

    def _first(self) -> Emitted:
        row, held = self._row, self._held
        with timing([row.stats], "seconds"), timing([row.stats], "prefill_seconds"):
            # What is in the cache can stay as far as the text is the same; the last id is read again for its logits.
            stays = 0
            if held.cache is not None:
                stays = min(held.same, len(row.ids) - 1, self._target.tier.lengths(held.cache)[0])
                # A token's state goes with the token after it, which is another one now.
                stays = max(0, stays - 1) if self._needs.hidden else stays
            if held.cache is None or not self._target.tier.truncate(held.cache, stays):
                stays, held.cache = 0, open_cache(self._target, [row], self._needs)
            if held.begun:
                # States are heard again from where the prefill reads; what goes by the ids alone keeps all that are the same.
                self._drafter.truncate(row.id, stays if self._needs else held.same)
            else:
                try:
                    self._drafter.begin([row.start()])
                except BaseException:
                    self._drafter.end([row.id])
                    raise
                held.begun = True
            held.same = sys.maxsize
            held.settle_pace(self._target, self._drafter, row)
            return read_prompts(self._target, self._drafter, [row], held.cache, self._needs)

    def close(self) -> None:
        """Give the turn up, or let it go where it has ended."""
        if not self._over:
            self._over = True
            self._held.lock.release()

    def __del__(self) -> None:
        self.close()


class Held:
    """What a session keeps between turns.

    `same` is how many ids the next turn has in common with what cache and drafter hold.
    """

    def __init__(self) -> None:
        self.cache: Any = None
        self.same = 0
        self.begun = False
        self.pace = Pace()
        self.lock = threading.Lock()
        self._adaptive: bool | Costs = False

    def settle_pace(self, target: Target, drafter: Guard, row: Row) -> None:
        """Go on at the pace of the turns before, or begin another where this turn asks for it."""
        if row.request.adaptive != self._adaptive:
            self.pace, self._adaptive = pace_of(target, drafter, [row]), row.request.adaptive
        self.pace.restart()


class Session:
    """A conversation, or a text that grows and is edited; made by `outrider.session`.

    Every turn gives what a fresh generation on the whole text so far would give with the same seed. Sessions share nothing but
    the target, so that each may run in a thread of its own.
    """

    def __init__(self, target: Target, drafter: Guard, chat: bool | None, options: Mapping[str, Any]) -> None:
        if target.model.config.is_encoder_decoder:
            raise InputError("an encoder-decoder has no session: its text does not go on from what it reads")
        _check(options)
        self._target, self._drafter, self._chat, self._options = target, drafter, chat, dict(options)
        self._needs = drafter.needs()
        self._held = Held()
        self._row: Row | None = None
        self._messages: list[dict[str, str]] = []
        self._reply: Collected | None = None
        self._turn: weakref.ref[Turn] | None = None  # a turn that the caller has dropped is over
        self._closed = False

    @property
    def ids(self) -> list[int]:
        """All ids of the text so far."""
        return [] if self._row is None else list(self._row.ids)

    def truncate(self, length: int) -> None:
        """Forget what the text holds beyond its first `length` ids; what was a chat goes on as bare ids.

        Raises:
            InputError: the text is not that long.
        """
        if isinstance(length, bool) or not isinstance(length, int) or not 0 <= length <= len(self.ids):
            raise InputError(f"length = {length!r}: must be a whole number from 0 to {len(self.ids)}")
        self._claim()
        try:
            if self._row is not None:
                self._row.ids[length:] = []
                self._row.view.replace(length, ())
            self._messages, self._reply = [], None
        finally:
            self._held.lock.release()

    def stream(self, prompt: Prompt, **options: Any) -> Stream:
        """Begin a turn and yield its steps; see `generate`."""
        self._claim()
        try:
            messages, ids = self._encode(prompt)
            _check(options)
            request = read_request(self._target, ids, self._options | options)
            row = self._resume(request)
        except BaseException:
            self._held.lock.release()
            raise
        turn = Turn(self._target, self._drafter, self._needs, row, self._held)
        self._messages = messages
        stream = Stream(self._target, self._drafter.drafter.name, row, turn)
        self._reply, self._turn = stream.collected, weakref.ref(turn)
        return stream

    def generate(self, prompt: Prompt, **options: Any) -> Result:
        """Make a turn.

        Args:
            prompt: with a chat template, the user's next message, or all messages of the chat; without one (or with
                `chat=False`), text that goes on after the text so far; or ids that do.
            **options: as in `outrider.generate`, over those of the session.

        Raises:
            InputError: a wrong prompt or option, or the last turn is not over.
        """
        with self.stream(prompt, **options) as steps:
            return steps.result()

    def close(self) -> None:
        """End the session; the drafter forgets its text."""
        if self._closed:
            return
        turn = self._turn() if self._turn is not None else None
        if turn is not None:
            turn.close()
        self._closed = True
        if self._row is not None and self._held.begun:
            self._drafter.end([self._row.id])
        self._held.cache = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _claim(self) -> None:
        if self._closed:
            raise InputError("the session is closed")
        if not self._held.lock.acquire(blocking=False):
            raise InputError("the session's last turn is not over: take its steps to the end, or close it")

    def _encode(self, prompt: Prompt) -> tuple[list[dict[str, str]], list[int]]:
        """Return the chat so far with this turn, and the ids of the whole text."""
        tokenizer = self._target.tokenizer
        chat = self._chat if self._chat is not None else bool(getattr(tokenizer, "chat_template", None))
        if isinstance(prompt, str) and chat:
            said = list(self._messages)
            if said and self._reply is not None:
                said.append({"role": "assistant", "content": self._reply.text})
            said.append({"role": "user", "content": prompt})
            return said, encode(self._target, said)
        ids = encode(self._target, prompt, None if not isinstance(prompt, str) else False)
        if not isinstance(prompt, str) and len(prompt) and isinstance(prompt[0], Mapping):
            messages: Any = prompt
            return [dict(one) for one in messages], ids
        so_far = self.ids
        if isinstance(prompt, str) and so_far:
            ids = list(tokenizer(prompt, add_special_tokens=False).input_ids)
        return [], [*so_far, *ids]

    def _resume(self, request: Request) -> Row:
        if self._row is None:
            self._row = Row(request, Stats())
            self._held.same = 0
        else:
            self._held.same = min(self._held.same, self._row.resume(request, Stats()))
        return self._row


def _check(options: Mapping[str, Any]) -> None:
    check_options(options)
    if options.get("cache_implementation") == "static":
        raise InputError("cache_implementation = 'static' is not served in a session, whose text grows; leave it out")


def session(
    target: Target,
    drafter: DrafterWord = "ngram",
    drafter_options: Mapping[str, Any] | None = None,
    *,
    chat: bool | None = None,
    **options: Any,
) -> Session:
    """Begin a session.

    Args:
        target: from `outrider.load`; any number of sessions may share it.
        drafter: as in `generate`; its rows live as long as the session.
        drafter_options: as in `generate`.
        chat: take text prompts as messages of a chat; by default where the model has a template.
        **options: as in `generate`, for all turns.

    Raises:
        InputError: a wrong option or drafter.
    """
    return Session(target, prepare(target, drafter, drafter_options), chat, options)
