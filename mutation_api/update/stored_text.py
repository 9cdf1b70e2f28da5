"""Readers of stored text: each makes a typed value of a text, or says what is allowed. Pure.

Properties of a table in Hive can be altered by others than those who run our commands, and a position is a
row of a table. So no text of these is used as it stands: it is read here, whatever it is used for.
"""

from __future__ import annotations

import json
import re
import zoneinfo
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from mutation_api.update.fingerprint import Fingerprint

__all__ = [
    "StoredTextError",
    "as_fingerprint",
    "as_flag",
    "as_identifier",
    "as_key",
    "as_name",
    "as_names",
    "as_optional_name",
    "as_overlap",
    "as_table_name",
    "as_time",
    "as_time_zone",
    "one_of",
    "parsed_json",
    "seconds_of",
]

_IDENTIFIER = re.compile(r"[0-9a-f]{8}")
_OVERLAP = re.compile(r"[0-9]{1,18}(\.[0-9]{1,9})?")
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+/-]{0,60}")
_NOT_IN_NAMES = re.compile(r"[\x00\ud800-\udfff]")
_NAME_CHARACTERS = 500
_LATEST = 253_402_300_799.0
"""The last second of the year 9999."""


class StoredTextError(ValueError):
    """A text is not of the form that is wanted; the message says what is allowed."""


def parsed_json(text: str) -> Any:
    """Read JSON. Raises StoredTextError, whatever is wrong with it."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoredTextError("JSON") from error


def one_of(names: Sequence[str]) -> Callable[[str], str]:
    """Return the reader of a word of a list."""

    def read(text: str) -> str:
        if text not in names:
            raise StoredTextError(f"one of {', '.join(names)}")
        return text

    return read


def as_identifier(text: str) -> str:
    """Read the identifier of an update."""
    if not _IDENTIFIER.fullmatch(text):
        raise StoredTextError("8 of the digits 0-9 and a-f")
    return text


def as_name(text: Any) -> str:
    """Read a name of the source; statements have it quoted, so it may have any character but NUL."""
    is_text = isinstance(text, str) and 0 < len(text) <= _NAME_CHARACTERS
    if not is_text or _NOT_IN_NAMES.search(text):
        raise StoredTextError(f"a name of 1 to {_NAME_CHARACTERS} characters, without NUL")
    return str(text)


def as_table_name(text: str) -> str:
    """Read the name of a table, with its schema if it has one; neither is empty."""
    found = as_name(text)
    if found.startswith(".") or found.endswith("."):
        raise StoredTextError("TABLE or SCHEMA.TABLE, neither of them empty")
    return found


def as_optional_name(text: str) -> str:
    """Read a name, or nothing."""
    return as_name(text) if text else ""


def as_names(text: str) -> tuple[str, ...]:
    """Read a list of names, which may be empty."""
    found = parsed_json(text)
    if not isinstance(found, list):
        raise StoredTextError("a JSON list of names")
    return tuple(map(as_name, found))


def as_key(text: str) -> tuple[str, ...]:
    """Read a list of the names of key columns, each once."""
    found = as_names(text)
    if not found or len(set(found)) < len(found):
        raise StoredTextError("a JSON list of at least one name, each once")
    return found


def as_flag(text: str) -> bool:
    """Read true or false."""
    return one_of(("true", "false"))(text) == "true"


def as_overlap(text: str) -> Decimal | None:
    """Read how far below its bound a growing column is read again; None for nothing.

    The unit is the column's: a number for a column of numbers, seconds for one of dates or times.
    """
    if not text:
        return None
    if not _OVERLAP.fullmatch(text):
        raise StoredTextError("a number of at least 0, such as 60 (of seconds, for a column of times)")
    return Decimal(text)


def as_time_zone(text: str) -> str:
    """Read the name of a time zone that this machine's or Python's zone database has."""
    try:
        is_known = text == "UTC" or (bool(_ZONE.fullmatch(text)) and bool(zoneinfo.ZoneInfo(text)))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        is_known = False
    if not is_known:
        raise StoredTextError("the name of a time zone, such as UTC or Europe/Berlin")
    return text


def as_time(text: str) -> str:
    """Read a time in ISO 8601, or nothing."""
    try:
        return datetime.fromisoformat(text).isoformat() if text else ""
    except ValueError as error:
        raise StoredTextError("a time in ISO 8601") from error


def as_fingerprint(text: str) -> Fingerprint | None:
    """Read a fingerprint; None for nothing."""
    if not text:
        return None
    try:
        return Fingerprint.of(parsed_json(text))
    except StoredTextError:
        raise
    except ValueError as error:
        raise StoredTextError(str(error)) from error


def seconds_of(value: Any) -> float:
    """Read seconds since 1970, up to the year 9999. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LATEST:
        raise ValueError(f"{value!r} is not a time in seconds since 1970")
    return float(value)
