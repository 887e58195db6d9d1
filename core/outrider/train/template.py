"""A chat template's pieces: what stands before, between and after the messages."""

from dataclasses import dataclass
from typing import Any, Final

from outrider.errors import InputError, first_line

_USER: Final = "@@user@@"
_ANSWER: Final = "@@answer@@"
_NEXT: Final = "@@next@@"


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """The ids between a chat's messages, read off a tokenizer's template.

    Args:
        start: ids before the first user turn.
        answer: between a user turn and its answer.
        turn: between an answer and the next user turn.
        ends: ids that end a turn.
        special: all ids that are no text.
    """

    start: tuple[int, ...]
    answer: tuple[int, ...]
    turn: tuple[int, ...]
    ends: frozenset[int]
    special: frozenset[int]

    @classmethod
    def of(cls, tokenizer: Any) -> "ChatTemplate":
        """Read a tokenizer's template.

        Raises:
            InputError: there is none, it fails, or its turns don't end in a token of their own.
        """
        if not getattr(tokenizer, "chat_template", None):
            raise InputError("the model has no chat template; training text is made and read as chats")
        messages = [
            {"role": "user", "content": _USER},
            {"role": "assistant", "content": _ANSWER},
            {"role": "user", "content": _NEXT},
        ]
        try:
            text: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            start, rest = text.split(_USER)
            answer, rest = rest.split(_ANSWER)
            turn, _ = rest.split(_NEXT)
        except Exception as error:  # templates are programs
            raise InputError(f"the model's chat template does not hold plain turns: {first_line(error)}") from error
        pieces = [tuple(tokenizer(one, add_special_tokens=False).input_ids) for one in (start, answer, turn)]
        ends = {piece[0] for piece in pieces[1:] if piece}
        special = frozenset(tokenizer.all_special_ids)
        if not ends or not ends <= special:
            raise InputError("the model's chat template does not end its turns with a special token")
        return cls(pieces[0], pieces[1], pieces[2], frozenset(ends | {tokenizer.eos_token_id} - {None}), special)
