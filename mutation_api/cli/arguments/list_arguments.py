"""Arguments with several values: columns as ``A,B``, settings as ``KEY=VALUE``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from mutation_api.errors import ConfigurationError

__all__ = ["add_key_argument", "key_columns", "key_values", "listed_names"]


def add_key_argument(parser: argparse.ArgumentParser, what: str) -> None:
    """Declare ``--key``."""
    parser.add_argument("--key", required=True, metavar="A,B", help=what)


def key_columns(text: str) -> tuple[str, ...]:
    """The names in ``--key``. Raises ConfigurationError if there are none."""
    names = listed_names(text)
    if not names:
        raise ConfigurationError("--key: name at least one column")
    return names


def listed_names(text: str) -> tuple[str, ...]:
    """The names in ``a,b``; none in an empty text.

    Raises:
        ConfigurationError: a name is empty. Their order may count, so none is left out.
    """
    names = tuple(name.strip() for name in text.split(","))
    if names == ("",):
        return ()
    if "" in names:
        raise ConfigurationError(f"{text!r}: a name between commas is empty; expected A,B")
    return names


def key_values(option: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    """Key and value of each ``KEY=VALUE`` of an option.

    Raises:
        ConfigurationError: a text has another form.
    """
    wrong = [text for text in texts if not text.partition("=")[0] or "=" not in text]
    if wrong:
        raise ConfigurationError(f"{option} {wrong[0]!r}: expected KEY=VALUE")
    return [(key, value) for key, _, value in (text.partition("=") for text in texts)]
