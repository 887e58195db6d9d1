"""Whether two models mean the same by the same ids."""

from typing import Any


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
