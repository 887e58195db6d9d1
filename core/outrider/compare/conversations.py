"""Prompts as they are asked: conversations of one turn or more, with the same answers in between for every row."""

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.compare.result import Prompt
from outrider.compare.runner import digest
from outrider.compare.strategies import Task
from outrider.errors import InputError
from outrider.prompt import encode
from outrider.prompt_file import NamedPrompt
from outrider.target.model import Target
from outrider.verify.noise import derive


@dataclass(frozen=True, slots=True)
class Conversation:
    """What is said in some turns.

    Args:
        prompt: where it comes from.
        first: the index of its first turn among all prompts.
    """

    prompt: NamedPrompt
    first: int

    @property
    def indices(self) -> range:
        """The indices of its turns."""
        return range(self.first, self.first + len(self.prompt.turns))


class Asking:
    """Puts turns into ids.

    Args:
        target: whose tokenizer and template are used.
        chat: whether prompts go through the template.
        seed: from which every prompt's own is derived.
        texts: whether prompts' texts may be kept.
    """

    def __init__(self, target: Target, *, chat: bool, seed: int, texts: bool) -> None:
        self._target, self._chat, self._seed, self._texts = target, chat, seed, texts

    def task(self, conversation: Conversation, turn: int, answers: Sequence[str]) -> tuple[Task, Prompt]:
        """Return a turn as rows run it and as it is kept.

        Args:
            conversation: whose turn it is.
            turn: from 0.
            answers: to the turns before.

        Raises:
            InputError: it is no prompt for this target.
        """
        said, index = conversation.prompt, conversation.first + turn
        try:
            messages = self._messages(said, turn, answers) if self._chat else []
            ids = encode(self._target, messages) if messages else self._bare(said, turn, answers)
        except InputError as error:
            raise InputError(f"prompt {said.name}, turn {turn + 1}: {error}") from error
        several = len(said.turns) > 1
        task = Task(
            ids=tuple(ids),
            seed=derive(self._seed, index),
            conversation=said.name,
            messages=tuple(messages) if several else (),
            last=turn == len(said.turns) - 1,
        )
        prompt = Prompt(
            index=index,
            name=f"{said.name}/{turn + 1}" if several else said.name,
            conversation=said.name,
            turn=turn,
            category=said.category,
            digest=digest(said.turns[turn]),
            tokens=len(ids),
            text=said.turns[turn] if self._texts else None,
        )
        return task, prompt

    def _messages(self, said: NamedPrompt, turn: int, answers: Sequence[str]) -> list[dict[str, str]]:
        found = [{"role": "system", "content": said.system}] if said.system else []
        for at, text in enumerate(said.turns[: turn + 1]):
            found.append({"role": "user", "content": text})
            if at < turn:
                found.append({"role": "assistant", "content": answers[at]})
        return found

    def _bare(self, said: NamedPrompt, turn: int, answers: Sequence[str]) -> list[int]:
        parts = [said.system] if said.system else []
        for at, text in enumerate(said.turns[: turn + 1]):
            parts += [text, answers[at]] if at < turn else [text]
        return encode(self._target, "\n".join(parts), chat=False)


def conversations(prompts: Sequence[NamedPrompt]) -> list[Conversation]:
    """Number the turns of all prompts.

    Raises:
        InputError: two prompts have the same name, or there is none.
    """
    if not prompts:
        raise InputError("there are no prompts: give at least one")
    names = [one.name for one in prompts]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"two prompts have the same name: {twice}")
    found, index = [], 0
    for one in prompts:
        found.append(Conversation(one, index))
        index += len(one.turns)
    return found


def first_of_each(prompts: Sequence[NamedPrompt], each: int | None) -> list[NamedPrompt]:
    """Return the first prompts of every category, `each` of them, or all."""
    seen: dict[str, int] = {}
    kept = []
    for prompt in prompts:
        seen[prompt.category] = seen.get(prompt.category, 0) + 1
        if each is None or seen[prompt.category] <= each:
            kept.append(prompt)
    return kept


def cut(target: Target, prompt: NamedPrompt, longest: int, chat: bool | None = None) -> NamedPrompt:
    """Return a prompt each of whose turns alone, template and all, has at most `longest` ids: their ends are left out."""
    turns = [_cut(target, text, longest, chat) for text in prompt.turns]
    return NamedPrompt(prompt.name, turns[0], prompt.category, tuple(turns[1:]), prompt.system)


def _cut(target: Target, text: str, longest: int, chat: bool | None) -> str:
    while (more := len(encode(target, text, chat)) - longest) > 0:
        ids = target.tokenizer(text, add_special_tokens=False).input_ids
        text = target.tokenizer.decode(ids[: max(1, len(ids) - more)])
        if len(ids) <= 1:
            break
    return text


def shard_of(found: Sequence[Conversation], shard: str | None, block: int) -> list[Conversation]:
    """Return the conversations of a shard `i/n`: every n-th block of them, so that batches are those of the whole.

    Raises:
        InputError: it is no shard.
    """
    if shard is None:
        return list(found)
    first, slash, last = shard.partition("/")
    if not slash or not first.isdecimal() or not last.isdecimal() or not 1 <= int(first) <= int(last):
        raise InputError(f"--shard {shard}: write i/n, such as 2/4, with i from 1 to n")
    kept = [one for at, one in enumerate(found) if at // block % int(last) == int(first) - 1]
    if not kept:
        raise InputError(f"--shard {shard}: there are no prompts for it; use fewer shards")
    return kept
