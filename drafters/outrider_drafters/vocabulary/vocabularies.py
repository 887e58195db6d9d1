"""What a model's tokens stand for, as bytes, so that models of different tokenizers can be compared and translated.

Tokenizers write the same text differently: byte-level ones spell a space 'Ġ', pieces spell it '▁' and a byte that has no piece
of its own '<0x0A>'. Bytes are what they have in common.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

_SPACE: Final = "\N{LOWER ONE EIGHTH BLOCK}"
_BYTE: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_ROLES: Final = ("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id", "cls_token_id")


class Vocabulary:
    """A tokenizer's tokens, without the ids that its model does not have.

    Args:
        tokenizer: any tokenizer of transformers.
        size: tokens that the model scores.
        eos_ids: ids that end a text by the model's own generation config; the tokenizer's is one too.
    """

    def __init__(self, tokenizer: Any, size: int, eos_ids: Iterable[int] = ()) -> None:
        added = getattr(tokenizer, "added_tokens_decoder", {})
        self.size = size
        self._tokenizer = tokenizer
        self._plain = {token: str(word) for token, word in added.items()}
        special = {*(token for token, word in added.items() if word.special), *tokenizer.all_special_ids}
        self._roles = {name: getattr(tokenizer, name, None) for name in _ROLES}
        own = self._roles["eos_token_id"]
        self.eos_ids: frozenset[int] = frozenset(eos_ids) | (frozenset() if own is None else {own})
        self.special = frozenset(special | self.eos_ids)
        self.byte_ids: set[int] = set()
        self._spell = self._speller()
        self._known: dict[int, bytes | None] = {}
        self.opening = self._opening()

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without special tokens at its ends; names of special tokens in it are read as such.

        What the tokenizer refuses, as one without an unknown token does, is left out.
        """
        try:
            ids: list[int] = self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        except Exception:  # tokenizers raise just that
            half = len(text) // 2
            return self.encode(text[:half]) + self.encode(text[half:]) if half else []
        return ids

    def spelled(self, token: int) -> bytes | None:
        """Return what a token stands for inside a text; None for a special token, and for one that stands for no text."""
        if token not in self._known:
            word = None if token in self.special else self._tokenizer.convert_ids_to_tokens(token)
            self._known[token] = None if word is None else self._spell(token, word)
        return self._known[token]

    def written(self, ids: Iterable[int]) -> bytes:
        """Return the text that ids come from, the names of special tokens included."""
        return b"".join(self.spelled(token) or self.name(token).encode() for token in ids)

    def text(self, ids: Iterable[int]) -> str:
        """Return `written` as text, with replacement characters for bytes that are none."""
        return self.written(ids).decode(errors="replace")

    def name(self, token: int) -> str:
        """Return how a special token is written; nothing for others."""
        return str(self._tokenizer.convert_ids_to_tokens(token)) if token in self.special else ""

    def words(self) -> list[int]:
        """Return the ids of the model that stand for text, in order."""
        ids = sorted(set(self._tokenizer.get_vocab().values()))
        return [token for token in ids if token < self.size and self.spelled(token)]

    def normal(self, text: str) -> str:
        """Return a text from inside another as the tokenizer would give it back: lower case, composed, and so on."""
        normalizer = getattr(getattr(self._tokenizer, "backend_tokenizer", None), "normalizer", None)
        if normalizer is None:
            return text
        found = str(normalizer.normalize_str(f"a{text}a")).replace(_SPACE, " ").removeprefix(" ")
        return found[1:-1] if found[:1] == found[-1:] == "a" else text

    def end(self, text: Sequence[int] = ()) -> int | None:
        """Return the id that would end a text: the one that ended its last part, or the tokenizer's, or any of the model's."""
        used = next((token for token in reversed(text) if token in self.eos_ids), None)
        own = self._roles["eos_token_id"]
        return used if used is not None else own if own is not None else min(self.eos_ids, default=None)

    def counterpart(self, token: int, other: "Vocabulary") -> int | None:
        """Return the special token here that stands for one of another vocabulary: of the same name, or of the same role."""
        name = other.name(token)
        same = self._tokenizer.get_vocab().get(name) if name else None
        if same is None:
            roles = [role for role in _ROLES if other._roles[role] == token]
            same = self.end() if token in other.eos_ids else next((self._roles[role] for role in roles), None)
        return same if same is not None and same < self.size and same in self.special else None

    def starts(self, token: int) -> bool:
        """Say whether a token only marks the start of a text."""
        return token == self._roles["bos_token_id"] and token not in self.eos_ids

    def _opening(self) -> list[int]:
        """Return the special tokens that the tokenizer puts before a text."""
        whole, bare = self._tokenizer("a", verbose=False)["input_ids"], self.encode("a")
        before = next((at for at in range(len(whole)) if whole[at : at + len(bare)] == bare), 0)
        return [token for token in whole[:before] if token < self.size]

    def _speller(self) -> Callable[[int, str], bytes | None]:
        kinds = _decoders(self._tokenizer)
        if "ByteLevel" in kinds:
            table = _byte_table()
            return lambda token, word: (
                bytes(table[letter] for letter in word)
                if token not in self._plain and all(letter in table for letter in word)
                else word.encode()
            )
        if "Metaspace" in kinds or _SPACE in kinds or hasattr(self._tokenizer, "sp_model"):
            return self._piece
        return self._decoded

    def _piece(self, token: int, word: str) -> bytes:
        byte = _BYTE.fullmatch(word)
        if byte is not None and token not in self._plain:
            self.byte_ids.add(token)
            return bytes([int(byte[1], 16)])
        return (word if token in self._plain else word.replace(_SPACE, " ")).encode()

    def _decoded(self, token: int, word: str) -> bytes | None:  # noqa: ARG002
        """Spell by what a token adds to the text of another."""
        before = self.encode("a")[-1:]
        start, text = (
            self._tokenizer.decode(ids, clean_up_tokenization_spaces=False) for ids in (before, [*before, token])
        )
        found = text.removeprefix(start) if text.startswith(start) else self._tokenizer.decode([token])
        return found.encode() if found and "\N{REPLACEMENT CHARACTER}" not in found else None


def _decoders(tokenizer: Any) -> set[str]:
    """Name the parts of a fast tokenizer's decoder, and what the parts that replace look for."""
    decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
    if decoder is None:
        return set()
    state = json.loads(decoder.__getstate__())
    parts = state.get("decoders", [state])
    return {part["type"] for part in parts} | {part["pattern"].get("String", "") for part in parts if "pattern" in part}


def _byte_table() -> dict[str, int]:
    """Return the letter of every byte in byte-level vocabularies (Radford et al. 2019): itself where it is printable."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(others)}
