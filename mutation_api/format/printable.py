"""Makes strings safe to show: without control characters, and without the secrets of URLs. Pure.

A URL that a user gives is refused if it may have a secret, before it is stored, shown or quoted.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from mutation_api.errors import ConfigurationError

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


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_NAMED = re.compile(
    r"(passw|passphrase|pwd|secret|token|credential|api_?key)[^=&?;#]*=|[?&;#](pass|pw|auth)=",
    re.IGNORECASE,
)
"""Parameters such as ``password``, pymysql's ``passwd`` and libpq's ``sslpassword``, but not ``passfile``."""
_AFTER_HOST = re.compile("[/?#]")
"""Characters that end a server's name; an @ after them does not belong to a user."""
_WORD_WITH_SECRET = re.compile(
    r"\S*:/+[^\s'\"]*[@?][^\s'\"]*|(?<=[\s'\"])[^\s'\":/@]+:[^\s'\"/@]+@[^\s'\"]*"
    r"|\S*(passw|passphrase|pwd|secret|token|credential|api_?key)\S*[=:]\S+",
    re.IGNORECASE,
)
"""A word that is a URL with a user or options, USER:PASSWORD@HOST, or a setting that contains a secret."""


def check_no_secret(text: str, *, what: str, because: str) -> None:
    """Refuse a URL that has, or may have, a password in any of its parts.

    Args:
        text: the URL. A string that is not a URL has no parts and is not shown either.
        what: name of the URL in messages.
        because: why it must not have a secret, and where to give the secret.

    Raises:
        ConfigurationError: If the URL may have a password. The message does not show the URL.
    """
    found = _SCHEME.match(text)
    if found is None:
        raise ConfigurationError(
            f"{what} is not a URL such as postgresql://reader@db.example/shop or https://host.example (it is "
            "not shown, since it may contain a password)"
        )
    # The user comes before the first @; a password may contain any character, including / and ?.
    user, at, _ = text[found.end() :].partition("@")
    is_misplaced = bool(at) and bool(_AFTER_HOST.search(user)) and found[0] != "sqlite://"
    if is_misplaced or (at and ":" in unquote(user)) or _NAMED.search(unquote(text)):
        raise ConfigurationError(f"{what} must not contain a password, {because}")


def without_secrets(text: str) -> str:
    """Return a string, such as a parser's error message, without the words that may contain a secret."""
    return _WORD_WITH_SECRET.sub("(not shown, since it may contain a password)", text)
