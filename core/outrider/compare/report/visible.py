"""Text of any kind made safe to show: what would be invisible, or would change what is around it, gets a sign."""

import re
from typing import Final

# Controls, of which newline and tab stay; marks of direction; separators of lines; the byte-order mark; lone surrogates.
_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def visible(text: str) -> str:
    """Return a text without characters that can't be seen, encoded, or kept from rearranging others; lines stay lines."""
    return _HIDDEN.sub(lambda found: _sign(ord(found[0])), text)


def visible_piece(text: str, *, breaks: bool = True) -> str:
    """Return a token's text likewise, with signs for its newlines and tabs.

    Args:
        text: which may be a part of one.
        breaks: whether a newline still begins a line after its sign.
    """
    return visible(text).replace("\n", "↵\n" if breaks else "↵").replace("\t", "⇥")


def _sign(code: int) -> str:
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"⟨U+{code:04X}⟩"
