"""Makes the saved comparison that tests read: `python -m compare.example FILE`, in the folder of the tests."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from outrider.compare.conversations import Asking, conversations
from outrider.compare.files import save
from outrider.compare.lineup import lineup
from outrider.compare.measure import Measurement
from outrider.compare.pooled import with_figures
from outrider.compare.result import Comparison, Settings
from outrider.compare.verdicts import explained
from outrider.prompt_file import NamedPrompt
from outrider.target.model import Target
from support import tiny_model, tiny_target

PROMPTS = (
    NamedPrompt("story", "once upon a time", "writing"),
    NamedPrompt("edit", "abc abc abc abc", "copying", ("again abc abc",)),
    NamedPrompt("count", "one two one two one", "copying"),
)


def settings(**changed: Any) -> Settings:
    """Greedy, 24 tokens, twice, drafting as far as the options say."""
    made = Settings(
        model="tiny",
        dtype="float64",
        device="cpu",
        generation={"max_new_tokens": 24, "temperature": 0.0},
        sampled=False,
        seed=1,
        repeats=2,
        adaptive=False,
    )
    return replace(made, **changed)


def measured(
    target: Target, words: Any = ("ngram",), changed: Any = None, prompts: Any = PROMPTS, **asked: Any
) -> Comparison:
    """A comparison with its figures."""
    options = settings(**(changed or {}))
    entrants = lineup(words, batch_sizes=options.batch_sizes, **asked)
    found = Measurement(target, entrants, prompts, options, texts=True).run()
    asking = Asking(target, chat=options.chat, seed=options.seed, texts=True)
    return with_figures(explained(found, target, asking, conversations(prompts)))


if __name__ == "__main__":
    draft = {"name": "draft-model", "options": {"model": tiny_model(0)}}
    save(measured(tiny_target(spread=0.1), ["ngram", "lookahead[window=3]", draft], with_hf=True), Path(sys.argv[1]))
