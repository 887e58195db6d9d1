"""Whether two models mean the same by the same ids."""

from typing import Any

from outrider import InputError, Target, TargetInfo
from outrider_drafters.vocabulary.vocabularies import Vocabulary


def first_difference(tokenizer: Any, other: Any) -> str:
    """Say where two tokenizers differ first; nothing where they agree, or where one is not known.

    Only ids that both have are compared: a longer vocabulary may be padded. Special tokens must agree too, since a draft that
    ends elsewhere is as useless as one of other tokens.
    """
    if tokenizer is None or other is None:
        return ""
    words, others = ({token: word for word, token in one.get_vocab().items()} for one in (tokenizer, other))
    for token in sorted(set(words) & set(others)):
        if words[token] != others[token]:
            return f"id {token} is {words[token]!r} and {others[token]!r}"
    for name in ("bos_token_id", "eos_token_id"):
        ids = [getattr(one, name, None) for one in (tokenizer, other)]
        if None not in ids and ids[0] != ids[1]:
            return f"{name} is {ids[0]} and {ids[1]}"
    return ""


def vocabularies(target: TargetInfo, model: Target) -> tuple[Vocabulary, Vocabulary]:
    """Return the tokens of a target and of a draft model of another tokenizer.

    Raises:
        InputError: a tokenizer is missing on either side.
    """
    for whose, tokenizer in (("the target", target.tokenizer), ("the draft model", model.tokenizer)):
        if tokenizer is None:
            raise InputError(
                f"{whose} has no tokenizer, and drafts from another tokenizer's ids go by the text; load it with one "
                f"(outrider.load(model, tokenizer=...)), or choose a draft model of the target's own tokens"
            )
    info = model.info
    return (
        Vocabulary(target.tokenizer, target.vocab_size, target.eos_ids),
        Vocabulary(model.tokenizer, info.vocab_size, info.eos_ids),
    )
