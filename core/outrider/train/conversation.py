"""A chat that the target writes both sides of, token by token."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from outrider.train.chats import Chat, Message
from outrider.train.template import ChatTemplate

_WINDOW: Final = 64


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a chat may get.

    Args:
        turns: user turns.
        user: tokens of a user turn; a chat whose first one is longer is dropped.
        answer: tokens of an answer; it is cut there.
        chat: tokens of the whole chat.
    """

    turns: int = 2
    user: int = 512
    answer: int = 512
    chat: int = 1024


class Conversation:
    """A line of `lockstep.write`: user turns of the model's own or given ones, and its answers.

    The model writes a user's turn where its template puts one (Xu et al. 2024, arXiv:2406.08464, section 2.1).

    Args:
        template: the model's.
        tokenizer: the model's.
        limits: how long the chat may get.
        messages: given ones, of which the last is the user's; without any, the model writes the user's turns.
        opening: how the first user turn begins, where the model writes it.
        user_temperature: of the user turns; answers have `answer_temperature`.
        answer_temperature: 0 is greedy.
    """

    def __init__(
        self,
        template: ChatTemplate,
        tokenizer: Any,
        limits: Limits,
        *,
        messages: Sequence[Message] = (),
        opening: str = "",
        user_temperature: float = 1.0,
        answer_temperature: float = 0.0,
    ) -> None:
        self._template, self._tokenizer, self._limits = template, tokenizer, limits
        self._heat = {"user": user_temperature, "assistant": answer_temperature}
        self._asks_itself = not messages
        self.messages: list[Message] = list(messages)
        self.finished, self.done, self.answered = False, False, 0
        self._role = "user" if self._asks_itself else "assistant"
        begun: list[int] = tokenizer(opening, add_special_tokens=False).input_ids if opening else []
        self._written = begun
        self.given = [*template.start, *begun] if self._asks_itself else self._given_ids()
        self._length = len(self.given)

    @property
    def temperature(self) -> float:
        """Of the next draw."""
        return self._heat[self._role]

    @property
    def chat(self) -> Chat:
        """The chat so far, without a user turn that has no answer."""
        answers = [at for at, message in enumerate(self.messages) if message["role"] == "assistant"]
        return Chat(tuple(self.messages[: answers[-1] + 1] if answers else ()), self.finished)

    def take(self, token: int) -> None:
        """Take in a token that the model drew."""
        self._length += 1
        ended, strange = token in self._template.ends, token in self._template.special
        if not strange:
            self._written.append(token)
        limit = self._limits.user if self._role == "user" else self._limits.answer
        full = len(self._written) >= limit or self._length >= self._limits.chat
        if strange or full or repeats(self._written):
            self._end_turn(ended=ended)

    def _end_turn(self, *, ended: bool) -> None:
        text = self._tokenizer.decode(self._written, skip_special_tokens=True).strip()
        if self._role == "user":
            if not ended or not text:
                self.done = True  # what the model would not have asked
                return
            self.messages.append({"role": "user", "content": text})
            self._go_on("assistant", self._template.answer)
            return
        if text:
            self.messages.append({"role": "assistant", "content": text})
            self.answered += len(self._written)
            self.finished = ended
        turns = sum(message["role"] == "user" for message in self.messages)
        if not ended or not text or not self._asks_itself or turns >= self._limits.turns:
            self.done = True
            return
        self._go_on("user", self._template.turn)

    def _go_on(self, role: str, between: Sequence[int]) -> None:
        """Begin another turn; what ended the last one is fed as the template writes it."""
        self._role, self._written = role, []
        self.given = list(between)
        self._length += len(between)

    def _given_ids(self) -> list[int]:
        text = self._tokenizer.apply_chat_template(self.messages, tokenize=False, add_generation_prompt=True)
        ids: list[int] = self._tokenizer(text, add_special_tokens=False).input_ids
        return ids


def repeats(tokens: Sequence[int]) -> bool:
    """Whether the last tokens go round in a loop: few different runs of three among the last 64."""
    last = tokens[-_WINDOW:]
    if len(last) < _WINDOW:
        return False
    return len(set(zip(last, last[1:], last[2:], strict=False))) < _WINDOW // 3
