"""Rows of a query on PostgreSQL as columns of strings, by COPY.

``COPY (query) TO STDOUT`` sends each value in the same form as a query does. The server writes CSV, and Arrow
parses it, without a Python object for each value. NULL is an empty field, an empty string is quoted.

Source: PostgreSQL's documentation of COPY (CSV format), and of its protocol (copy-out mode sends one message
for each row).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from mutation_api.cdc.update.database import SourceColumn
from mutation_api.cdc.update.values import WIDEST_DECIMAL, times_of_texts
from mutation_api.errors import RecordValueError
from mutation_api.format.conversion import convert_to_column
from mutation_api.format.hive_type import HiveType, TypeFamily

ROWS_PER_BATCH = 20_000
BYTES_PER_BATCH = 8 << 20

_INTEGERS = ("int2", "int4", "int8", "oid")
_FLOATS = ("float4", "float8")
_TIMES = {TypeFamily.DATE: ("date",), TypeFamily.TIMESTAMP: ("timestamp", "timestamptz")}
_VALUES: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(_INTEGERS, int),
    **dict.fromkeys(_FLOATS, float),
    "numeric": Decimal,
    "bool": lambda text: text == "t",
    "bytea": lambda text: bytes.fromhex(text.removeprefix(r"\x")),
}
"""Conversions to the values that psycopg returns. Values of all other kinds are strings."""


def _parsed(rows: list[bytes]) -> pa.RecordBatch:
    """Return the rows of CSV as strings."""
    data = b"".join(rows)
    names = [str(number) for number in range(_field_count(rows[0]))]
    found = pyarrow.csv.read_csv(
        pa.BufferReader(data),
        pyarrow.csv.ReadOptions(column_names=names, block_size=len(data) + 1, use_threads=False),
        pyarrow.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            check_utf8=False,  # the server converts to UTF-8, or refuses
        ),
    )
    assert found.num_rows == len(rows), "each message of COPY is a row"
    return found.combine_chunks().to_batches()[0]


def _field_count(row: bytes) -> int:
    """Return the number of fields of a row of CSV: an escaped quote is two quotes."""
    return sum(part.count(b",") for part in row.split(b'"')[::2]) + 1


class CopiedColumns:
    """Conversions of copied columns; see :class:`~mutation_api.cdc.update.database.TextColumns`."""

    def read(self, connection: Any, statement: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query as strings.

        Args:
            connection: a connection of psycopg.
            statement: the query.

        Raises:
            psycopg.Error: If the server refuses the query or a string that is not UTF-8, or is lost.
        """
        with (
            connection.cursor() as cursor,
            cursor.copy(f"COPY ({statement}) TO STDOUT (FORMAT csv)") as copy,
        ):
            rows: list[bytes] = []
            size = 0
            for row in copy:
                rows.append(bytes(row))
                size += len(row)
                if len(rows) == ROWS_PER_BATCH or size >= BYTES_PER_BATCH:
                    yield _parsed(rows)
                    rows, size = [], 0
            if rows:
                yield _parsed(rows)

    def to_column(self, column: SourceColumn, target: HiveType, texts: pa.StringArray) -> pa.Array | None:
        """Convert a column to the type of a Hive column, if Arrow can convert all its values at once."""
        with suppress(pa.ArrowInvalid, RecordValueError):
            array = _array(column.detail.kind, target, texts)
            if array is not None:
                return convert_to_column(array, target, column=column.name, timestamp_unit="us")
        return None

    def values(self, column: SourceColumn, texts: pa.StringArray) -> list[Any]:
        """Return the values of a column as psycopg returns them."""
        convert = _VALUES.get(column.detail.kind)
        values: list[Any] = texts.to_pylist()
        return values if convert is None else [None if text is None else convert(text) for text in values]


def _array(kind: str, target: HiveType, texts: pa.StringArray) -> pa.Array | None:
    match target.family:
        case TypeFamily.INTEGER if kind in _INTEGERS:
            return texts.cast(pa.int64())
        case TypeFamily.FLOAT if kind in _FLOATS:
            return texts.cast(pa.float64())
        case TypeFamily.DECIMAL if kind == "numeric":
            return texts.cast(pa.decimal256(WIDEST_DECIMAL, target.scale))
        case TypeFamily.BOOLEAN if kind == "bool":
            return pc.equal(texts, "t")
        case TypeFamily.DATE | TypeFamily.TIMESTAMP if kind in _TIMES[target.family]:
            return times_of_texts(texts, target.family)
        case TypeFamily.TEXT if kind not in _VALUES:
            return texts
        case _:
            return None
