"""Prompts to compare on."""

from typing import Final

from outrider.prompt_file import NamedPrompt

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


BUILTIN: Final = (
    NamedPrompt("story", "Tell me a story about a lighthouse keeper who finds a message in a bottle."),
    NamedPrompt(
        "code edit",
        f"Rename the class to BankAccount and add a docstring to each method. Print the whole class.\n\n```python\n{_CODE}```",
    ),
    NamedPrompt(
        "quote",
        f"{_TEXT}\n\nQuote the sentences that say where swifts sleep and where they go in August, word for word.",
    ),
)

WARM_UP: Final = NamedPrompt("warm-up", "Say hello.")
