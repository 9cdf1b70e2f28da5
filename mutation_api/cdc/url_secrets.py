"""Secrets in URLs that users give: refused before anything stores, shows or quotes the URL."""

from __future__ import annotations

import re
from urllib.parse import unquote

from mutation_api.errors import ConfigurationError

__all__ = ["check_no_secret", "without_secrets"]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_NAMED = re.compile(
    r"(passw|passphrase|pwd|secret|token|credential|api_?key)[^=&?;#]*=|[?&;#](pass|pw|auth)=",
    re.IGNORECASE,
)
"""Parameters as ``password``, ``passwd`` of pymysql, ``sslpassword`` of libpq; ``passfile`` is no secret."""
_AFTER_HOST = re.compile("[/?#]")
"""Characters that end a server's name: an @ behind them is none of a user."""
_WORD_WITH_SECRET = re.compile(
    r"\S*:/+[^\s'\"]*[@?][^\s'\"]*|(?<=[\s'\"])[^\s'\":/@]+:[^\s'\"/@]+@[^\s'\"]*"
    r"|\S*(passw|passphrase|pwd|secret|token|credential|api_?key)\S*[=:]\S+",
    re.IGNORECASE,
)
"""A word that is a URL with a user or options, USER:PASSWORD@HOST, or a setting that is a secret."""


def check_no_secret(text: str, *, what: str, because: str) -> None:
    """Refuse a URL that has a password, or may have one, in any of its parts.

    Args:
        text: the URL; a text that is none has no parts, and is not shown either.
        what: names it in messages.
        because: why it must not have a secret, and where that is given.

    Raises:
        ConfigurationError: the message does not show the URL.
    """
    found = _SCHEME.match(text)
    if found is None:
        raise ConfigurationError(
            f"{what} is not a URL such as postgresql://reader@db.example/shop or https://host.example (it is "
            "not shown, since it may contain a password)"
        )
    # What stands before the first @ is the user; a password may have any character, / and ? too.
    user, at, _ = text[found.end() :].partition("@")
    is_misplaced = bool(at) and bool(_AFTER_HOST.search(user)) and found[0] != "sqlite://"
    if is_misplaced or (at and ":" in unquote(user)) or _NAMED.search(unquote(text)):
        raise ConfigurationError(f"{what} must not contain a password, {because}")


def without_secrets(text: str) -> str:
    """Return a text, such as the complaint of a parser, without the words in it that may have a secret."""
    return _WORD_WITH_SECRET.sub("(not shown, since it may contain a password)", text)
