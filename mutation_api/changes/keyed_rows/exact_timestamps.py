"""Rows of the table with every digit of their timestamps.

Rows are read in microseconds, which hold all years that Hive has. A part of the table with finer values is
read again as texts, which hold everything; a column becomes nanoseconds where its values need them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from mutation_api.errors import RecordLayoutError, RecordValueError
from mutation_api.orc.read.column_reader import TimestampForm
from mutation_api.table.acid_table import AcidTable
from mutation_api.types.conversion import convert_to_column
from mutation_api.types.hive_type import HiveType, arrow_type, parse_hive_type

__all__ = ["exact_rows", "in_nanoseconds", "in_one_unit"]


def exact_rows(
    read: Callable[[TimestampForm], Iterator[pa.RecordBatch]], table: AcidTable, keys_have_clocks: bool
) -> Iterator[pa.RecordBatch]:
    """The rows of a part of the table; a column of timestamps has nanoseconds in batches that need them.

    Args:
        read: reads the rows in a form, each time in the same order.
        table: the table.
        keys_have_clocks: whether a key column has timestamps. Keys are compared in microseconds.

    Raises:
        RecordValueError: a column of a batch has digits below microseconds beside years that nanoseconds do
            not hold; or a key column has timestamps, and the values do not fit microseconds.
    """
    count = 0
    try:
        for batch in read(TimestampForm.MICROSECONDS):
            yield batch
            count += batch.num_rows
    except RecordValueError as error:
        if keys_have_clocks:
            raise RecordValueError(
                f"table {table.full_name}: keys that are timestamps are compared in microseconds: {error}; "
                "or merge by other keys"
            ) from error
    else:
        return
    for batch in read(TimestampForm.TEXT):
        rest = batch.slice(min(count, batch.num_rows))
        count -= batch.num_rows - rest.num_rows
        if rest.num_rows:
            yield _with_clocks(table, rest)


def _with_clocks(table: AcidTable, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows whose timestamps are texts, with timestamps."""
    arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
    for column in table.columns:
        kind = parse_hive_type(column.type)
        if column.name in arrays and kind.contains("timestamp"):
            arrays[column.name] = _clocks(table, column.name, arrays[column.name], kind)
    return pa.RecordBatch.from_pydict(arrays)


def _clocks(table: AcidTable, name: str, texts: pa.Array, kind: HiveType) -> pa.Array:
    try:
        return texts.cast(arrow_type(kind, timestamp_unit="us"))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    try:
        return texts.cast(arrow_type(kind, timestamp_unit="ns"))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise RecordValueError(
            f"table {table.full_name}: column {name!r} ({kind.text}): some rows have digits below "
            f"microseconds and others years outside 1678 to 2261, which nanoseconds do not hold: {error}; "
            "merge them in transactions of their own"
        ) from error


def in_one_unit(table: AcidTable, batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The batches with one type for each column: in nanoseconds where one of them has these.

    Raises: see :func:`in_nanoseconds`.
    """
    if all(batch.schema == batches[0].schema for batch in batches):
        return list(batches)
    mixed = {
        name
        for number, name in enumerate(batches[0].schema.names)
        if len({batch.schema.types[number] for batch in batches}) > 1
    }
    return [
        pa.RecordBatch.from_pydict(
            {
                name: in_nanoseconds(table, name, array) if name in mixed else array
                for name, array in zip(batch.schema.names, batch.columns, strict=True)
            }
        )
        for batch in batches
    ]


def in_nanoseconds(table: AcidTable, name: str, array: pa.Array) -> pa.Array:
    """Values of a column, whose timestamps become nanoseconds.

    Raises:
        RecordValueError: a timestamp is not of the years 1678 to 2261.
    """
    types = {column.name: column.type for column in table.all_columns}
    try:
        return convert_to_column(array, parse_hive_type(types[name]), column=name, timestamp_unit="ns")
    except (RecordLayoutError, RecordValueError) as error:
        raise type(error)(
            f"table {table.full_name}: {error}; other rows of that column have digits below microseconds: "
            "write these in a transaction of their own"
        ) from error
