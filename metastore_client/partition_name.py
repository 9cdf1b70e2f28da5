"""Partition names as Hive spells them in paths and in the metastore. Pure.

A name is ``key=value/key=value`` with lower-case keys and with escaped keys and values. The metastore stores
the unescaped values in addition to the name.

Source: Hive's FileUtils.escapePathName, unescapePathName and makePartName (identical in 2.3, 3.1 and 4.x).
Every ASCII character was compared with the answers of a running 2.3.10 server (tests/contract).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from metastore_client.errors import InvalidRequestError

DEFAULT_PARTITION_NAME = "__HIVE_DEFAULT_PARTITION__"
"""The partition value for NULL and for the empty string, unless the server is configured otherwise."""
DEFAULT_PARTITION_SETTING = "hive.exec.default.partition.name"
"""The server's setting for the default partition's name."""

MAX_PARTITION_NAME_LENGTH = 767
"""Width, in characters, of the columns for partition names in the metastore's database."""

_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\[\\\]^{]")
_ESCAPE_SEQUENCE = re.compile(r"%([0-9a-fA-F]{2})")


def escape_path_name(text: str) -> str:
    """Escape a key or value for use in a path. An empty string becomes the default partition's name."""
    if not text:
        return DEFAULT_PARTITION_NAME
    return _ESCAPED.sub(lambda found: f"%{ord(found.group()):02X}", text)


def unescape_path_name(text: str) -> str:
    """Reverse :func:`escape_path_name`. A ``%`` without two hexadecimal digits stays."""
    return _ESCAPE_SEQUENCE.sub(lambda found: chr(int(found.group(1), 16)), text)


def make_partition_name(keys: Sequence[str], values: Sequence[str]) -> str:
    """Build a partition name from keys and unescaped values.

    Args:
        keys: partition columns in table order, in any case.
        values: one string per key. Both '' and the default partition's name mean NULL.

    Raises:
        ValueError: If the numbers of keys and values differ, or if there are none.
    """
    if len(keys) != len(values) or not keys:
        raise ValueError(
            f"a partition name needs one value per key: keys {list(keys)}, values {list(values)}"
        )
    return "/".join(
        f"{escape_path_name(key.lower())}={escape_path_name(value)}"
        for key, value in zip(keys, values, strict=True)
    )


def parse_partition_name(name: str) -> tuple[tuple[str, str], ...]:
    """Split a name into (key, unescaped value) pairs in path order.

    Raises:
        ValueError: If a part has no ``=``, or no key before it.
    """
    pairs = []
    for part in name.split("/"):
        key, equals, value = part.partition("=")
        if not equals or not key:
            raise ValueError(f"not a partition name: {name!r} (expected key=value/key=value)")
        pairs.append((unescape_path_name(key), unescape_path_name(value)))
    return tuple(pairs)


def check_partition_name(name: str) -> None:
    """Raise ValueError if a server fails at a name, or stores it as a partition that no reader finds.

    Raises:
        ValueError: If the name is too long, is not ``key=value``, has a key in upper case, or contains a
            character that is not escaped.
    """
    if len(name) > MAX_PARTITION_NAME_LENGTH:
        raise ValueError(
            f"partition name is too long: got {len(name)} characters, a metastore holds at most "
            f"{MAX_PARTITION_NAME_LENGTH}: {name[:80]}…"
        )
    pairs = parse_partition_name(name)
    expected = make_partition_name([key for key, _ in pairs], [value for _, value in pairs])
    if name != expected:
        raise ValueError(f"not a partition name as Hive writes it: {name!r} (expected {expected!r})")


def check_name(name: str, where: str) -> None:
    """Raise InvalidRequestError if Hive would not write a partition name. ``where`` begins the message.

    Raises:
        InvalidRequestError: If :func:`check_partition_name` refuses the name.
    """
    try:
        check_partition_name(name)
    except ValueError as error:
        raise InvalidRequestError(f"{where}: {error}") from error
