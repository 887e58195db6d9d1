"""A file of texts to copy from: read, tokenised and indexed once, never changed."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from outrider import InputError, TargetInfo
from outrider_drafters.ngram.index import NgramIndex, Pick

_FORMS: Final = '{"token_ids": [...]}, {"messages": [...]}, {"turns": [...]}, {"text": "..."} or {"prompt": "..."}'


@dataclass(frozen=True, slots=True)
class Corpus:
    """A file: JSON lines where its name ends in `.jsonl`, else one text.

    Args:
        path: of the file.
        tokenizer: the target's, or None.
        vocab_size: the target's.
        stamp: when it was changed and its size; two of the same stamp are the same.
    """

    path: Path
    tokenizer: Any
    vocab_size: int
    stamp: tuple[int, int]

    @classmethod
    def at(cls, name: str, tokenizer: Any, vocab_size: int) -> "Corpus":
        """Find a file.

        Raises:
            InputError: it is not there or no file.
        """
        path = Path(name).expanduser()
        if path.is_dir():
            raise InputError(f"corpus {path} is a folder: name a file of text, or of JSON lines")
        try:
            stat = path.stat()
        except (OSError, ValueError) as error:
            raise InputError(f"corpus {path} can't be read: {getattr(error, 'strerror', None) or error}") from error
        return cls(path, tokenizer, vocab_size, (stat.st_mtime_ns, stat.st_size))

    def texts(self) -> Iterator[Sequence[int]]:
        """Yield the ids of its texts.

        Raises:
            InputError: it can't be read or is not UTF-8, a line is wrong, or it is text and there is no tokenizer.
        """
        try:
            content = self.path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise InputError(f"corpus {self.path} is not UTF-8 (byte {error.start}): save it as UTF-8") from error
        except OSError as error:
            raise InputError(f"corpus {self.path} can't be read: {error.strerror}") from error
        if self.path.suffix != ".jsonl":
            if content.strip():
                yield self._encode(content, str(self.path))
            return
        for number, line in enumerate(content.split("\n"), 1):
            if line.strip():
                yield from self._line(line, f"{self.path}:{number}")

    def _line(self, line: str, where: str) -> Iterator[Sequence[int]]:
        try:
            value: Any = json.loads(line)
        except (ValueError, RecursionError) as error:  # a number too long, a list too deep
            raise InputError(f"corpus {where}: no JSON: {error}") from error
        match value:
            case {"token_ids": [*ids]} if ids and all(type(one) is int for one in ids):
                yield self._checked(ids, where)
            case {"messages": [*messages]} if messages and all(map(_is_message, messages)):
                yield from self._chat(messages, where)
            case {"turns": [*texts]} if texts and all(type(one) is str for one in texts):
                yield from (self._encode(text, where) for text in texts)
            case {"text": str(text)} | {"prompt": str(text)}:
                yield self._encode(text, where)
            case _:
                raise InputError(f"corpus {where}: write {_FORMS}")

    def _chat(self, messages: list[Any], where: str) -> Iterator[Sequence[int]]:
        """Yield a chat as the model reads it, or what was said where there is no template."""
        if not getattr(self.tokenizer, "chat_template", None):
            yield from (self._encode(one["content"], where) for one in messages)
            return
        try:
            text = self.tokenizer.apply_chat_template(messages, tokenize=False)
        except Exception as error:  # templates are the model's own programs
            raise InputError(f"corpus {where}: the chat template refuses it: {error}".splitlines()[0]) from error
        yield self._encode(text, where)

    def _encode(self, text: str, where: str) -> Sequence[int]:
        if self.tokenizer is None:
            raise InputError(f'corpus {where}: the target has no tokenizer; give JSON lines of {{"token_ids": [...]}}')
        try:  # a file is longer than any context, of which a tokenizer would warn
            ids = self.tokenizer(text, add_special_tokens=False, verbose=False).input_ids
        except (TypeError, ValueError) as error:  # half a character
            raise InputError(f"corpus {where}: the tokenizer refuses it: {error}".splitlines()[0]) from error
        return self._checked(ids, where)

    def _checked(self, ids: Sequence[int], where: str) -> Sequence[int]:
        wrong = next((one for one in ids if not 0 <= one < self.vocab_size), None)
        if wrong is not None:
            raise InputError(f"corpus {where}: token {wrong} is not one of the target's {self.vocab_size}")
        return ids


def read_corpus(name: str, target: TargetInfo, min_n: int, max_n: int, pick: Pick, branching: int) -> NgramIndex:
    """Index a file; see `Corpus` for its form and what is wrong with it. The one read last is kept for the next drafter."""
    return _read(Corpus.at(name, target.tokenizer, target.vocab_size), min_n, max_n, pick, branching)


@lru_cache(maxsize=1)
def _read(corpus: Corpus, min_n: int, max_n: int, pick: Pick, branching: int) -> NgramIndex:
    index = NgramIndex(min_n, max_n, pick, branching)
    for ids in corpus.texts():
        index.extend(ids)
        index.close()
    if not len(index):
        raise InputError(f"corpus {corpus.path} holds no text")
    return index


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role"), str) and isinstance(value.get("content"), str)
