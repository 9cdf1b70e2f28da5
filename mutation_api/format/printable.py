"""Makes strings from other programs safe for a terminal. Pure."""

from __future__ import annotations

import re

__all__ = ["one_line", "printable"]

_UNSAFE = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff"
"""Control characters, which a terminal obeys, and characters that change the order of displayed ones."""
_IN_TEXT = re.compile(f"[{_UNSAFE}]")
_IN_LINE = re.compile(f"[{_UNSAFE}\t\n]")


def printable(text: str) -> str:
    """Escape characters that a terminal would obey, in JSON's form (backslash, u, 001b).

    Line ends and tabs stay.

    Anyone who may write to a table or a metastore can choose names, values and hosts.
    """
    return _IN_TEXT.sub(_escaped, text)


def one_line(text: str) -> str:
    """Escape a string like :func:`printable`, including line ends and tabs, for a value or a name."""
    return _IN_LINE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
