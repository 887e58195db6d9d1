"""Chat files of others made into training text: one shape, no repeats, nothing that can't be learnt from."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from outrider.errors import InputError
from outrider.train.chats import Chat, read_chats


def prepare(paths: Iterable[Path], out: Path) -> Mapping[str, int]:
    """Write the chats of some files that can be learnt from to another.

    Args:
        paths: JSONL files of `messages` or ShareGPT's `conversations`.
        out: is made, or made anew in one step.

    Returns:
        How many chats were `kept`, and how many left out for a reason.

    Raises:
        InputError: a file can't be read or written, a line is no chat, or nothing is left.
    """
    counts: Counter[str] = Counter(kept=0)
    out = out.expanduser()
    part = out.with_name(f".{out.name}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            for chat in _kept(paths, counts):
                file.write(json.dumps(chat.to_json(), ensure_ascii=False) + "\n")
        if not counts["kept"]:
            raise InputError(f"none of the {sum(counts.values())} chats can be learnt from: {_told(counts)}")
        part.replace(out)
    except OSError as error:
        raise InputError(f"{out} can't be written: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)
    return counts


def _kept(paths: Iterable[Path], counts: Counter[str]) -> Iterator[Chat]:
    seen: set[tuple[tuple[str, str], ...]] = set()
    for path in paths:
        for chat in read_chats(path):
            key = tuple((message["role"], " ".join(message["content"].split())) for message in chat.messages)
            reason = _fault(chat) or ("said before" if key in seen else "")
            seen.add(key)
            counts[reason or "kept"] += 1
            if not reason:
                yield chat


def _fault(chat: Chat) -> str:
    """Say why a chat can't be learnt from; nothing where it can."""
    if not chat.answered:
        return "no answer"
    roles = [message["role"] for message in chat.messages if message["role"] != "system"]
    if roles[0] != "user" or any(one == other for one, other in pairwise(roles)):
        return "turns out of order"
    return ""


def _told(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in counts.items() if reason != "kept")
