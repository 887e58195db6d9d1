"""The rules by name, and what each may verify."""

from collections.abc import Callable
from typing import Final

from outrider.draft.tree import DraftTree
from outrider.errors import InputError, suggestion
from outrider.verify.block import block
from outrider.verify.decisions import Decisions
from outrider.verify.laws import Laws, Scores
from outrider.verify.match import Verdict
from outrider.verify.rejection import rejection

RULES: Final = ("match", "rejection", "block")


def _on_laws(
    rule: Callable[[DraftTree, Laws, Decisions], Verdict],
) -> Callable[[DraftTree, Scores, Decisions], Verdict]:
    return lambda tree, scores, decisions: rule(tree, Laws(tree, scores), decisions)


RATIO_RULES: Final = {"rejection": _on_laws(rejection), "block": _on_laws(block)}
"""Rules that compare the target's law with the proposal's, and so trust the drafter to declare it."""


def check_rule(name: str) -> str:
    """Return the name of a rule.

    Raises:
        InputError: there is none of that name.
    """
    if name not in RULES:
        raise InputError(f"unknown rule '{name}'.{suggestion(str(name), RULES)} Rules: {', '.join(RULES)}.")
    return name
