"""The refusal of keys to insert that would be stored as other keys: rounded, cut, or padded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from mutation_api.errors import RecordValueError

__all__ = ["altered_keys_error", "padded_key_error"]


def altered_keys_error(table_name: str, texts: Sequence[str]) -> RecordValueError:
    """The error that names some of the keys.

    Args:
        table_name: ``database.table``.
        texts: JSON texts ``{"column": …, "key": …, "stored": …}``, in the order in which they are shown.
    """
    return RecordValueError(
        f"table {table_name}: keys to insert would be stored as other keys, which existing rows may have: "
        f"{'; '.join(map(_described, texts))}. Nothing was written. Cast or trim them in the source, so that "
        "they match"
    )


def padded_key_error(table_name: str, column: str, key: str) -> RecordValueError:
    """The error for a key of a char column that ends with a blank, which equals no char as it is read.

    It is refused whatever the merge does: matched rows would not be updated or deleted, and a clause for rows
    that only the table has would act on them.
    """
    return RecordValueError(
        f"table {table_name}: key column {column!r} is a char, which is read without the blanks at its end: "
        f"the source has {key!r}, which equals none. Nothing was written. Trim the blanks in the source "
        "(Spark: rtrim; Arrow: utf8_rtrim), so that keys match"
    )


def _described(text: str) -> str:
    found = json.loads(text, parse_float=Decimal)
    return f"{found['column']}={_shown(found.get('key'))} as {_shown(found.get('stored'))}"


def _shown(value: Any) -> str:
    """A number as it was written."""
    return str(value) if isinstance(value, Decimal) else repr(value)
