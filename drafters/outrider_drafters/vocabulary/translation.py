"""A text in the ids of another tokenizer, and drafts back from it.

For the rule `match`, which needs to know nothing of how a draft came about (Timor et al. 2025, string-level exact match).
Texts are compared as bytes, so that nothing is lost where a token ends inside a character.
"""

import codecs
from collections.abc import Sequence
from typing import Final

from outrider_drafters.vocabulary.growing import GrowingIds, common_length
from outrider_drafters.vocabulary.vocabularies import Vocabulary

_TAIL: Final = 32
# What may stand before a text without merging with it.
_ANCHORS: Final = ("\n", "a", "")


class Translation:
    """Follows a row's committed ids with the draft model's tokenizer.

    A special token becomes the draft model's of the same name or role, or nothing; the text is encoded apart on both sides of
    it. A mark of the text's start becomes what the draft model's tokenizer puts there.

    Args:
        target: the target's tokens.
        draft: the draft model's.
    """

    def __init__(self, target: Vocabulary, draft: Vocabulary) -> None:
        self._target, self._draft = target, draft
        self.ids: list[int] = []
        self._seen: list[int] = []
        self._kept = 0
        self.forget(0)

    @property
    def pending(self) -> bytes:
        """The beginning of a character at the end of the text, which the draft model does not read yet."""
        return bytes(self._decoder.getstate()[0])

    def forget(self, length: int) -> None:
        """Keep the first `length` of the row's ids, read anew."""
        old, kept, seen = self.ids, self._kept, self._seen[:length]
        self.ids = list(self._draft.opening)
        self._seen = []
        self._break()
        self.follow(seen)
        self._kept = min(kept, common_length(old, self.ids))

    def follow(self, ids: Sequence[int]) -> int:
        """Take in what was committed.

        Args:
            ids: all committed ids; those followed before are taken to be the same.

        Returns:
            How many of the draft model's ids, `self.ids`, are as they were after the last call, so that its cache keeps them.
            Without any ids there is nothing to draft from.
        """
        kept, text = self._kept, bytearray()
        for token in ids[len(self._seen) :]:
            spelled = self._target.spelled(token)
            if spelled is None:
                kept = min(kept, self._read(text, final=True))
                self._mark(token)
                text = bytearray()
            else:
                text += spelled
            self._seen.append(token)
        kept, self._kept = min(kept, self._read(text)), len(self.ids)
        return kept

    def propose(self, ids: Sequence[int]) -> list[int]:
        """Return a draft in the target's ids.

        Args:
            ids: the draft model's, meant to follow `self.ids`.

        Returns:
            Ids that continue the row's text; fewer, or none, where the draft model's stand for nothing that the target can say.
        """
        text, ends = b"", False
        for token in ids:
            spelled = self._draft.spelled(token)
            if spelled is None:
                ends = token in self._draft.eos_ids
                break
            text += spelled
        pending = self.pending
        if not text.startswith(pending):
            return []
        new = self._encode(text[len(pending) :])
        return new + self._end() if ends and self._target.written(new) == text[len(pending) :] else new

    def _end(self) -> list[int]:
        end = self._target.end(self._seen)
        return [] if end is None or end >= self._target.size else [end]

    def _encode(self, more: bytes) -> list[int]:
        """Return the target's ids of what comes after the text, up to the last whole character."""
        tail = self._committed_tail()
        text = _whole(tail + more)
        more = text[len(tail) :]
        if not more:
            return []
        try:
            normal = self._target.normal(more.decode()).encode() if not self.pending else more
            ids = self._in_context(tail + normal, len(normal)) or ([] if self.pending else self._alone(normal))
        except UnicodeDecodeError:  # the row holds bytes that are no text
            return []
        outside = (at for at, token in enumerate(ids) if token >= self._target.size)
        return ids[: next(outside, len(ids))]

    def _committed_tail(self) -> bytes:
        """Return the text of the last ids, from a whole character on."""
        text = b""
        for token in reversed(self._seen[-_TAIL:]):
            spelled = self._target.spelled(token)
            if spelled is None:
                break
            text = spelled + text
        start = next((at for at, byte in enumerate(text) if byte & 0xC0 != 0x80), len(text))
        return text[start:]

    def _in_context(self, text: bytes, size: int) -> list[int]:
        """Return the ids of the last `size` bytes of a text, where a token begins just there."""
        ids, at, length = self._target.encode(text.decode()), 0, 0
        for at in reversed(range(len(ids))):
            length += len(self._target.written([ids[at]]))
            if length >= size:
                break
        return ids[at:] if length == size and self._target.written(ids[at:]) == text[-size:] else []

    def _alone(self, text: bytes) -> list[int]:
        """Return the ids of a text that goes on inside a word which the target left off in another place."""
        for anchor in _ANCHORS:
            before, ids = self._target.encode(anchor), self._target.encode(anchor + text.decode())
            rest = ids[len(before) :]
            if ids[: len(before)] == before and self._target.written(rest) == text:
                return rest
        return []

    def _read(self, text: bytes | bytearray, *, final: bool = False) -> int:
        """Read text; returns how many ids stay as they were."""
        kept = self._run.grow(self._decoder.decode(bytes(text), final))
        self.ids[self._start + kept :] = self._run.ids[kept:]
        return self._start + kept

    def _mark(self, token: int) -> None:
        """Read a special token."""
        other = None if self._target.starts(token) and not self._seen else self._draft.counterpart(token, self._target)
        self.ids += [] if other is None else [other]
        self._break()

    def _break(self) -> None:
        """Begin to encode anew."""
        self._start = len(self.ids)
        self._run = GrowingIds(self._draft.encode, self._draft.text)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")


def _whole(text: bytes) -> bytes:
    """Leave out the beginning of a character at the end of a text."""
    for size in range(1, min(4, len(text)) + 1):
        byte = text[-size]
        if byte & 0xC0 != 0x80:
            need = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return text if size >= need else text[:-size]
    return text
