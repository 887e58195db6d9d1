"""Training text made by the target itself (self-distillation): batch by batch, so that it can be gone on with.

A drafter has to guess what the target says, so the target's own answers are the text to learn from (Medusa, Cai et al. 2024,
arXiv:2401.10774, section 2.3.2).
"""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from outrider.target.model import Target
from outrider.train.chat_file import ChatFile, Progress
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
    with ChatFile(out, _settings(target, recipe)) as file:
        done = file.progress
        report(done)
        while (tokens is None or done.tokens < tokens) and (lines := _batch(target, template, recipe, done.batches)):
            write(target, lines, derive(recipe.seed, done.batches))
            kept = [line for line in lines if _says_something(line.chat) and file.is_new(line.chat)]
            file.add([line.chat for line in kept], sum(line.answered for line in kept))
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


def _says_something(chat: Chat) -> bool:
    return bool(chat.answered) and all(len(message["content"]) >= _SHORTEST for message in chat.messages)


def _settings(target: Target, recipe: Recipe) -> dict[str, Any]:
    model = getattr(target.model.config, "name_or_path", "") or type(target.model).__name__
    settings = asdict(recipe) | {"model": Path(model).name, "dtype": str(target.model.dtype).removeprefix("torch.")}
    found: dict[str, Any] = json.loads(json.dumps(settings))
    return found
