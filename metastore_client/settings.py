"""Reads single values out of the keys of a configuration; pure.

Every key ``hive.metastore.x`` may also be spelled ``metastore.x``, as servers and clients from 3.0 on do.
"""

from __future__ import annotations

from collections.abc import Mapping

from metastore_client.errors import InvalidConfigurationError

__all__ = ["flag", "number", "text_of"]


def text_of(values: Mapping[str, str], key: str) -> str:
    """Give a value without surrounding blanks; empty if it is not set."""
    given = values.get(key) or values.get(key.removeprefix("hive."), "")
    return given.strip()


def number(values: Mapping[str, str], key: str, default: int) -> int:
    """Give a number >= 0.

    Raises:
        InvalidConfigurationError: it is not such a number; the message names the key.
    """
    text = text_of(values, key)
    if not text:
        return default
    if not text.isdecimal():
        raise InvalidConfigurationError(f"{key} is {text!r}; expected a number >= 0")
    return int(text)


def flag(values: Mapping[str, str], key: str, default: bool) -> bool:
    """Give a truth value.

    Raises:
        InvalidConfigurationError: it is neither true nor false; the message names the key.
    """
    text = text_of(values, key).lower()
    if text not in ("", "true", "false"):
        raise InvalidConfigurationError(f"{key} is {text!r}; expected true or false")
    return default if not text else text == "true"
