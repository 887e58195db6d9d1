"""Text from tokens as they come: never half a character, never one taken back."""

from collections.abc import Sequence
from typing import Any


class Detokenizer:
    """Turns a growing list of ids into pieces of text.

    A piece is held back while its bytes are no whole character yet. Only the ids since the last complete piece are decoded
    again, with one piece before them, because tokenizers write a token differently at the start of a text.

    Args:
        tokenizer: any tokenizer of transformers, or None for no text at all.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._before = 0
        self._done = 0

    def push(self, tokens: Sequence[int], *, last: bool = False) -> tuple[str, ...]:
        """Return for every new id the text that it completes; with `last` nothing is held back."""
        if self._tokenizer is None:
            return ("",) * len(tokens)
        return tuple(self._piece(token, last and index == len(tokens) - 1) for index, token in enumerate(tokens))

    def _piece(self, token: int, last: bool) -> str:
        self._ids.append(token)
        known = self._decode(self._ids[self._before : self._done])
        text = self._decode(self._ids[self._before :])
        if not last and (len(text) <= len(known) or text.endswith("\N{REPLACEMENT CHARACTER}")):
            return ""
        self._before, self._done = self._done, len(self._ids)
        return text[len(known) :]

    def _decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=True)) if ids else ""
