"""Texts of others as a terminal may get them; pure."""

from __future__ import annotations

import re

__all__ = ["one_line", "printable"]

_UNSAFE = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff"
"""Control characters, which a terminal obeys, and those that change the order in which it shows others."""
_IN_TEXT = re.compile(f"[{_UNSAFE}]")
_IN_LINE = re.compile(f"[{_UNSAFE}\t\n]")


def printable(text: str) -> str:
    """The text with what a terminal would obey in JSON's form (backslash, u, 001b); lines and tabs stay.

    Names, values and hosts come from whoever may write them into a table or a metastore.
    """
    return _IN_TEXT.sub(_escaped, text)


def one_line(text: str) -> str:
    """As :func:`printable`, of a text that must not make lines: a value, a name."""
    return _IN_LINE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
