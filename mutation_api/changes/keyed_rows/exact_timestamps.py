"""Rows of the table with every digit of their timestamps.

Rows are read in microseconds, which hold all years that Hive has. A part of the table with finer values is
read again in nanoseconds, which hold the years 1678 to 2261.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from mutation_api.errors import RecordLayoutError, RecordValueError
from mutation_api.orc.read.column_reader import TimestampForm
from mutation_api.table.acid_table import AcidTable
from mutation_api.types.conversion import convert_to_column
from mutation_api.types.hive_type import parse_hive_type

__all__ = ["exact_rows", "in_nanoseconds", "in_one_unit"]


def exact_rows(
    read: Callable[[TimestampForm], Iterator[pa.RecordBatch]], table_name: str, keys_have_clocks: bool
) -> Iterator[pa.RecordBatch]:
    """The rows of a part of the table, in microseconds as long as these are exact.

    Args:
        read: reads the rows in a form, each time in the same order.
        table_name: ``database.table``, for messages.
        keys_have_clocks: whether a key column has timestamps. Keys are compared in microseconds.

    Raises:
        RecordValueError: they fit neither form, or a key column has timestamps and they do not fit these.
    """
    count = 0
    try:
        for batch in read(TimestampForm.MICROSECONDS):
            yield batch
            count += batch.num_rows
    except RecordValueError as error:
        if keys_have_clocks:
            raise RecordValueError(
                f"table {table_name}: keys that are timestamps are compared in microseconds: {error}; or "
                "merge by other keys"
            ) from error
        reason = str(error)
    else:
        return
    try:
        for batch in read(TimestampForm.NANOSECONDS):
            rest = batch.slice(min(count, batch.num_rows))
            count -= batch.num_rows - rest.num_rows
            if rest.num_rows:
                yield rest
    except RecordValueError as error:
        raise RecordValueError(
            f"table {table_name}: rows that lie together fit neither microseconds ({reason}) nor nanoseconds "
            f"({error}), so they cannot be rewritten: change the values of one kind by Hive first"
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
