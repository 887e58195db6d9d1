"""Training text made by the target itself (self-distillation): batch by batch, so that it can be gone on with.

A drafter has to guess what the target says, so the target's own answers are the text to learn from (Medusa, Cai et al. 2024,
arXiv:2401.10774, section 2.3.2).
"""

import json
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from outrider.errors import InputError
from outrider.target.model import Target
from outrider.train.chats import Chat, Message
from outrider.train.conversation import Conversation, Limits
from outrider.train.lockstep import write
from outrider.train.template import ChatTemplate
from outrider.verify.noise import derive

_SHORTEST: Final = 2
"""Characters of a user turn, and of an answer; less says nothing."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How text is made.

    Args:
        seed: of everything that is drawn.
        batch_size: chats that are written together.
        temperatures: of the answers, taken in turns; 0 is greedy.
        user_temperature: of the user turns that the model writes.
        limits: how long chats may get.
        openings: beginnings of user turns, drawn evenly; an empty one leaves the turn to the model.
        prompts: chats to answer, each once, in place of user turns of the model's own.
    """

    seed: int = 0
    batch_size: int = 64
    temperatures: tuple[float, ...] = (0.0, 0.7)
    user_temperature: float = 1.0
    limits: Limits = field(default_factory=Limits)
    openings: tuple[str, ...] = ("",)
    prompts: tuple[tuple[Message, ...], ...] = ()


@dataclass(slots=True)
class Progress:
    """How far the text is.

    Args:
        batches: that are written.
        chats: that were kept.
        tokens: of kept answers.
    """

    batches: int = 0
    chats: int = 0
    tokens: int = 0


def synthesize(
    target: Target,
    recipe: Recipe,
    out: Path,
    tokens: int | None,
    report: Callable[[Progress], None],
) -> Progress:
    """Write chats to a file until it holds enough answers, or all prompts are answered; goes on with what is there.

    Args:
        target: who writes.
        recipe: how.
        out: a JSONL file; beside it, `OUT.recipe.json` keeps how it is made.
        tokens: of answers that are wanted; None for one answer to every prompt.
        report: told after every batch.

    Raises:
        InputError: the model has no chat template, the file was made by another recipe, or it can't be written.
    """
    template = ChatTemplate.of(target.tokenizer)
    with _Writer(out, _settings(target, recipe)) as writer:
        done, seen = writer.progress, writer.seen
        report(done)
        while (tokens is None or done.tokens < tokens) and (lines := _batch(target, template, recipe, done.batches)):
            write(target, lines, derive(recipe.seed, done.batches))
            kept = [line for line in lines if _is_kept(line.chat, seen)]
            writer.add([line.chat for line in kept], sum(line.answered for line in kept))
            report(done)
    return done


def _batch(target: Target, template: ChatTemplate, recipe: Recipe, number: int) -> list[Conversation]:
    """Return the chats of a batch, not yet written; none where the prompts are used up."""
    first = number * recipe.batch_size
    luck = random.Random(derive(recipe.seed, number))
    asked: Sequence[tuple[Message, ...]] = recipe.prompts[first : first + recipe.batch_size]
    if not recipe.prompts:
        asked = [()] * recipe.batch_size
    return [
        Conversation(
            template,
            target.tokenizer,
            recipe.limits,
            messages=messages,
            opening="" if messages else luck.choice(recipe.openings),
            user_temperature=recipe.user_temperature,
            answer_temperature=recipe.temperatures[(first + index) % len(recipe.temperatures)],
        )
        for index, messages in enumerate(asked)
    ]


def _is_kept(chat: Chat, seen: set[int]) -> bool:
    """Whether a chat says something that no other said before."""
    if not chat.answered or any(len(message["content"]) < _SHORTEST for message in chat.messages):
        return False
    key = _key(chat)
    if key in seen:
        return False
    seen.add(key)
    return True


def _key(chat: Chat) -> int:
    first = next(message["content"] for message in chat.messages if message["role"] == "user")
    return hash(" ".join(first.lower().split()))


def _settings(target: Target, recipe: Recipe) -> dict[str, Any]:
    model = getattr(target.model.config, "name_or_path", "") or type(target.model).__name__
    settings = asdict(recipe) | {"model": Path(model).name, "dtype": str(target.model.dtype).removeprefix("torch.")}
    found: dict[str, Any] = json.loads(json.dumps(settings))
    return found


class _Writer:
    """A file of chats that grows by whole batches."""

    def __init__(self, out: Path, settings: dict[str, Any]) -> None:
        self._path, self._settings = out, settings
        self.progress = Progress()
        self.seen: set[int] = set()

    def __enter__(self) -> "_Writer":
        kept = self._path.with_name(self._path.name + ".recipe.json")
        try:
            if self._path.exists() and kept.exists():
                self._compare(json.loads(kept.read_text(encoding="utf-8")))
                self._read()
            elif self._path.exists():
                raise InputError(f"{self._path} is there, and not made by `data synthesize`; give another file")
            else:
                kept.write_text(json.dumps(self._settings), encoding="utf-8")
            self._file = self._path.open("ab", buffering=0)
        except OSError as error:
            raise self._failed(error) from error
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def add(self, chats: Sequence[Chat], tokens: int) -> None:
        """Append a batch, whole or not at all."""
        lines = [chat.to_json() for chat in chats]
        if lines:  # the last line of a batch says that the batch is whole
            lines[-1] |= {"batch": self.progress.batches, "tokens": tokens}
        data = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
        size = os.fstat(self._file.fileno()).st_size
        try:
            written = self._file.write(data)
            if written != len(data):
                raise OSError(28, "no space left on the device")
        except OSError as error:
            os.ftruncate(self._file.fileno(), size)
            raise self._failed(error) from error
        self._count(self.progress.batches, len(chats), tokens)

    def _count(self, batch: int, chats: int, tokens: int) -> None:
        self.progress.batches = batch + 1
        self.progress.chats += chats
        self.progress.tokens += tokens

    def _compare(self, before: dict[str, Any]) -> None:
        for name, value in self._settings.items():
            if before.get(name) != value:
                old, new = (str(one)[:60] for one in (before.get(name), value))
                raise InputError(
                    f"{self._path} was made with {name} {old}, and this is {new}: give another file, or the same settings"
                )

    def _read(self) -> None:
        """Take in the whole batches that are there; what a killed run left of another is cut off."""
        end = 0
        for batch, size, chats, tokens in _batches(self._path):
            end += size
            for chat in chats:
                self.seen.add(_key(chat))
            self._count(batch, len(chats), tokens)
        os.truncate(self._path, end)

    def _failed(self, error: OSError) -> InputError:
        return InputError(f"{self._path} can't be written: {error.strerror or error}")


def _batches(path: Path) -> Iterator[tuple[int, int, list[Chat], int]]:
    """Yield the whole batches of a file: number, bytes, chats, tokens of answers."""
    size, chats = 0, []
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            size += len(line)
            fields = json.loads(line)
            chats.append(Chat(tuple(fields["messages"]), fields.get("finished", True)))
            if "batch" in fields:
                yield fields["batch"], size, chats, fields["tokens"]
                size, chats = 0, []
