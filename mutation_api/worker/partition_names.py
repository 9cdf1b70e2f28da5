"""PartitionNames: the name of a partition from the values that callers give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from mutation_api.errors import RecordLayoutError, RecordValueError
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.partition import existing_name, partition_name, partition_texts
from mutation_api.table.partition_value import partition_value
from mutation_api.types.hive_type import parse_hive_type

__all__ = ["PartitionNames", "PartitionValues"]

PartitionValues: TypeAlias = Sequence[Any]
"""One value for each partition column, typed or as Hive's text; None means NULL."""


class PartitionNames:
    """Finds the names of one table's partitions, and caches them: most single records share a partition."""

    def __init__(self, table: AcidTable) -> None:
        self._table = table
        self._by_texts: dict[tuple[str, ...], str] = {}
        self._by_values: dict[tuple[Any, ...], str] = {}

    def of(self, values: PartitionValues | None) -> str:
        """Escaped name, in the spelling of an existing partition; '' if the table is not partitioned.

        Raises:
            RecordLayoutError: the number of values is wrong, or a type does not fit.
            RecordValueError: a value does not fit its column.
        """
        values = tuple(values or ())
        try:
            return self._by_texts[values]
        except (KeyError, TypeError):  # TypeError: an unhashable value, which is not a text
            pass
        if all(type(value) is str for value in values):
            return self._by_texts.setdefault(values, self._new(values))
        # By their repr: 0.0 and -0.0 are equal, but are two partitions.
        key = tuple([(type(value), repr(value)) for value in values])
        if key not in self._by_values:
            self._by_values[key] = self._new(values)
        return self._by_values[key]

    def _new(self, values: tuple[Any, ...]) -> str:
        keys = self._table.partition_keys
        if len(values) != len(keys):
            raise RecordLayoutError(
                f"table {self._table.full_name}: {len(values)} partition value(s) {list(values)} were given; "
                f"the table has {len(keys)} partition column(s) {list(self._table.partition_key_names)}"
            )
        if not keys:
            return ""
        texts = [
            _text(value, f"{self._table.full_name}.{key.name}", key.type, self._table.null_partition_text)
            for value, key in zip(values, keys, strict=True)
        ]
        try:
            name = partition_name(self._table.partition_key_names, texts)
        except RecordValueError as error:
            raise RecordValueError(f"table {self._table.full_name}: {error}") from error
        return existing_name(self._table, name)


def _text(value: Any, column: str, type_text: str, null_text: str) -> str:
    """Hive's text of one partition value. A text is parsed as its type first: '01' of an int becomes '1'."""
    hive_type = parse_hive_type(type_text)
    try:
        if isinstance(value, str):
            value = partition_value(value, hive_type, null_text)
        typed = pa.array([value])
    except (RecordValueError, pa.ArrowException, TypeError, OverflowError) as error:
        raise RecordValueError(f"partition column {column!r}, value {value!r}: {error}") from error
    return str(partition_texts(typed, hive_type, column=column, null_text=null_text)[0])
