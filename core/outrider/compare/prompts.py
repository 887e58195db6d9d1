"""Prompts to compare on: three built in, or a file of one's own."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from outrider.errors import InputError

_CODE: Final = """class Account:
    def __init__(self, owner, balance):
        self.owner = owner
        self.balance = balance
        self.history = []

    def deposit(self, amount):
        if amount <= 0:
            raise ValueError("amount must be positive")
        self.balance = self.balance + amount
        self.history.append(("deposit", amount))

    def withdraw(self, amount):
        if amount > self.balance:
            raise ValueError("not enough money")
        self.balance = self.balance - amount
        self.history.append(("withdraw", amount))
"""

_TEXT: Final = (
    "The common swift spends almost its whole life in the air. It eats, drinks, and even sleeps on the wing, and lands "
    "only to nest. In August the birds leave Europe for Africa, a journey of about ten thousand kilometres, and they "
    "return to the same nest every May. A young swift that leaves the nest may not touch the ground again for two or "
    "three years."
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt and the name that tables show."""

    name: str
    text: str


BUILTIN: Final = (
    Prompt("story", "Tell me a story about a lighthouse keeper who finds a message in a bottle."),
    Prompt(
        "code edit",
        f"Rename the class to BankAccount and add a docstring to each method. Print the whole class.\n\n```python\n{_CODE}```",
    ),
    Prompt(
        "quote",
        f"{_TEXT}\n\nQuote the sentences that say where swifts sleep and where they go in August, word for word.",
    ),
)


def read_prompts(path: str | Path) -> tuple[Prompt, ...]:
    """Read a JSONL file: a line a prompt, `{"prompt": "...", "name": "..."}` or Spec-Bench's `turns`, the first of them.

    Raises:
        InputError: the file can't be read, a line is no such object, or there is none; with the line.
    """
    path = Path(path).expanduser()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"prompts file {path} can't be read: {error}") from error
    found = tuple(_read_line(f"{path}:{number}", line) for number, line in enumerate(lines, 1) if line.strip())
    if not found:
        raise InputError(f"prompts file {path} holds no prompt")
    return found


def _read_line(where: str, line: str) -> Prompt:
    try:
        value: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: no JSON: {error}") from error
    fields = value if isinstance(value, dict) else {}
    turns = fields.get("turns") or [fields.get("prompt")]
    text = turns[0] if isinstance(turns, list) else None
    if not isinstance(text, str) or not text:
        raise InputError(f'{where}: write {{"prompt": "..."}}')
    number = where.rpartition(":")[2]
    return Prompt(str(fields.get("name") or fields.get("question_id") or number), text)
