"""The binlog collector's own walk: raw, reverse, upsert and delete files.

A raw file has a line for each operation, in the order of the binlog. Its reverse has them from the end to the
beginning; there the first operation of a key is its last, and goes to the file of rows to replace or add, or
to that of rows to remove.

Source: the collector's description, example files included. It has a rule for each pair of operations on one
key. Where a log cannot be (an INSERT after an INSERT or UPDATE, an UPDATE or DELETE after a DELETE), because
a part of it was read twice, these would give a key two records; for every other log they come to the same.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.cdc_writers.history import Digits

_RECORD = re.compile(rb'(?:[^"\n]|"[^"]*")*\n')
"""A newline in quotes does not end one."""


def raw_record(operation: str, key: Sequence[str], values: Iterable[str | int | float | None]) -> str:
    """A record of a raw file, its newline included; texts are in quotes, numbers and Digits are not.

    ``key`` are the texts of the key's columns, as they are without quotes.
    """
    text = key[0] if len(key) == 1 else ",".join(_quoted(value) for value in key)
    uid = hashlib.md5(text.encode()).hexdigest()
    return ",".join([operation, uid, *map(_written, values)]) + "\n"


def write_reverse(raw: Path, reverse: Path) -> None:
    """Write the records of a raw file in reverse order, as they are."""
    reverse.write_bytes(b"".join(reversed(_RECORD.findall(raw.read_bytes()))))


def write_upsert_and_delete(reverse: Path, upsert: Path, delete: Path) -> None:
    """Write what counts of a reverse file, as it is there."""
    kept: dict[bytes, bytes] = {}
    for record in _RECORD.findall(reverse.read_bytes()):
        kept.setdefault(record.split(b",", 2)[1], record)
    files: dict[bool, list[bytes]] = {True: [], False: []}
    for record in kept.values():
        files[record.startswith(b"DELETE,")].append(record)
    upsert.write_bytes(b"".join(files[False]))
    delete.write_bytes(b"".join(files[True]))


def _written(value: str | float | None) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, Digits):
        return value
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'
