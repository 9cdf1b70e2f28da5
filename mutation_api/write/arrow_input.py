"""Any object with an Arrow interface, as a stream of batches of a useful size.

Batches are large enough to be efficient and small enough to fit into memory.

Structs of pandas are dicts. They are refused if keys are missing: pyarrow would fill these with NULL.

For its type Object, Polars exports memory addresses. DuckDB exports the bytes of a BIT, and wraps a UHUGEINT
of 2**127 or more around to a negative number. The Arrow type does not show this. So the source's own types
are compared with lists of types that arrive unchanged; a type that is not listed is refused.

Source: the exports of Polars 1.3 to 2.1 and DuckDB 1.1 to 2.0, compared type by type.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sized
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.errors import RecordLayoutError, RecordValueError
from mutation_api.format.event import ROW_ID_COLUMN
from mutation_api.format.hive_type import UnfitTypeError
from mutation_api.format.plain_array import plain_array, refusal, refused_type
from mutation_api.read.snapshot_reader import full_row_id_type
from mutation_api.table.acid_table import AcidTable
from mutation_api.write.writing_order import ADDRESSED_ROWS_MAX, joined_batches

BATCH_PART = 32
"""The fraction of the memory for batches that are being addressed, and copies of them, is 1/BATCH_PART."""


def looked_ahead(batches: Iterator[pa.RecordBatch], rows: int) -> tuple[Iterator[pa.RecordBatch], bool]:
    """Return the same batches, and True if they have fewer rows than ``rows``.

    This reads that many rows ahead.
    """
    read: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        read.append(batch)
        count += batch.num_rows
        if count >= rows:
            return itertools.chain(read, batches), False
    return iter(read), True


def sized(batches: Iterable[pa.RecordBatch], bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Return the same rows in batches of at most ADDRESSED_ROWS_MAX rows, fewer if they have many bytes."""
    return joined_batches(_slices(batches, bytes_max), bytes_max, ADDRESSED_ROWS_MAX)


def _slices(batches: Iterable[pa.RecordBatch], bytes_max: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        fitting = bytes_max * batch.num_rows // max(1, batch.nbytes)
        rows = min(ADDRESSED_ROWS_MAX, max(1, fitting))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def check_dicts(data: object, schema: pa.Schema, what: str) -> None:
    """For a pandas DataFrame, raise an error if the dicts of a column have different keys.

    Args:
        data: any object.
        schema: the Arrow schema that its columns were converted to.
        what: its role, for messages.

    Raises:
        RecordValueError: If a dict lacks a key that others have; the message contains column, row and keys.
    """
    given: Any = data
    if type(data).__module__.partition(".")[0] != "pandas" or not hasattr(data, "columns"):
        return
    for name in given.columns:
        at = schema.get_field_index(name) if isinstance(name, str) else -1
        if at < 0 or given[name].dtype != object or not _holds_struct(schema.field(at).type):
            continue
        kind = schema.field(at).type
        for row, value in enumerate(given[name]):
            missing = _missing(value, kind)
            if missing:
                raise RecordValueError(
                    f"{what}: column {name!r}: row {row} has a dict without {', '.join(map(repr, missing))}, "
                    "which others have: give all dicts the same keys, and set NULLs to None"
                )


def _holds_struct(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind)) or any(
        _holds_struct(kind.field(number).type) for number in range(kind.num_fields)
    )


def _missing(value: Any, kind: pa.DataType) -> list[str]:
    """Return the fields that a dict in a value lacks."""
    if pa.types.is_struct(kind) and isinstance(value, dict):
        missing = [field.name for field in kind if field.name not in value]
        inner = (_missing(value.get(field.name), field.type) for field in kind)
        return missing or next(filter(None, inner), [])
    if pa.types.is_list(kind) and isinstance(value, Iterable) and not isinstance(value, str | bytes | dict):
        return next(filter(None, (_missing(each, kind.value_type) for each in value)), [])
    return []


_POLARS = frozenset[str]().union(
    ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64"),
    ("Float16", "Float32", "Float64", "Decimal", "Boolean", "String", "Binary", "Categorical", "Enum"),
    ("Date", "Time", "Datetime", "Duration", "Null", "List", "Array", "Struct", "Map", "Extension"),
)
"""Names of the classes. An Extension also has its name in Arrow."""
_DUCKDB = frozenset[str]().union(
    ("tinyint", "smallint", "integer", "bigint", "hugeint", "utinyint", "usmallint", "uinteger", "ubigint"),
    ("boolean", "float", "double", "decimal", "varchar", "blob", "date", "time", "interval", "uuid", "enum"),
    ("timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamp with time zone"),
    ("list", "array", "struct", "map", "union", "null", "sqlnull"),
)
"""Ids of the types."""
_NESTED_DUCKDB = frozenset({"list", "array", "struct", "map", "union"})


def unknown_types(data: object) -> Mapping[str, str]:
    """Return the columns of a Polars DataFrame or DuckDB relation whose types may not arrive unchanged.

    Args:
        data: any object.

    Returns:
        The reason for the refusal, by column name.
    """
    package = type(data).__module__.partition(".")[0]
    if not hasattr(data, "__arrow_c_stream__") or package not in ("polars", "duckdb", "_duckdb"):
        return MappingProxyType({})
    given: Any = data
    if package == "polars":
        # A Series of structs has rows too.
        fields = getattr(given, "schema", None) or _polars_fields(given.dtype)
        return _refusals({name: [*_of_polars(each)] for name, each in fields.items()}, "Polars")
    types = zip(given.columns, given.types, strict=True) if hasattr(given, "types") else ()
    return _refusals({name: [*_of_duckdb(each)] for name, each in types}, "DuckDB")


def _polars_fields(found: Any) -> dict[str, Any]:
    return {field.name: field.dtype for field in getattr(found, "fields", ())}


def _refusals(types: Mapping[str, list[str]], package: str) -> Mapping[str, str]:
    reason = "do not arrive in Arrow unchanged: cast them in"
    found = {name: unknown[0] for name, unknown in types.items() if unknown}
    return {name: f"values of {package}'s type {each} {reason} {package}" for name, each in found.items()}


def _of_polars(found: Any) -> Iterator[str]:
    """Yield the types within a type that are not listed, including the type itself."""
    if type(found).__name__ not in _POLARS and getattr(found, "__name__", "") not in _POLARS:
        yield str(found)
    for part in ("inner", "key", "value"):
        inner = getattr(found, part, None)
        if inner is not None and not callable(inner):
            yield from _of_polars(inner)
    for field in getattr(found, "fields", None) or ():
        yield from _of_polars(field.dtype)


def _of_duckdb(found: Any) -> Iterator[str]:
    if found.id not in _DUCKDB:
        yield str(found)
    if found.id in _NESTED_DUCKDB:
        for name, child in found.children:
            # The first child of a union is its tag, without a name; the second of an array is a number.
            if name and not isinstance(child, int):
                yield from _of_duckdb(child)


_MIXED = re.compile(r"Conversion failed for column (.*) with type object", re.S)
"""pyarrow's message that names the column of a pandas DataFrame whose values cannot be converted."""


def arrow_reader(
    data: object, what: str, untyped: Mapping[str, pa.DataType] = MappingProxyType({})
) -> pa.RecordBatchReader:
    """Return the rows of an object with Arrow's C stream or C array interface. Batches are not copied.

    Such objects are tables, batches and readers of pyarrow, DataFrames of pandas (2.2 and later) and Polars,
    relations of DuckDB, and others. A reader or another stream can be read only once.

    Args:
        data: the object.
        what: its role, for messages, such as ``table db.t: the change set``.
        untyped: types, by name in upper case, for columns without a type because there are no rows. A pandas
            DataFrame without rows, if there is nothing to change, often has no types.

    Returns:
        Columns as :func:`~mutation_api.format.plain_array.plain_array` returns them. A column that it refuses
        gets a type that every conversion refuses with the reason, since a delete need not read it.

    Raises:
        RecordLayoutError: If the object has neither interface, holds something other than rows, or has values
            without an Arrow type; the message names its type. Also raised while reading, if values cannot be
            decoded.
        RecordValueError: See :func:`~check_dicts`.
    """
    refused = unknown_types(data)
    reader = data if isinstance(data, pa.RecordBatchReader) else _reader(data, what, refused)
    check_dicts(data, reader.schema, what)
    reader = _plain_reader(reader, what, refused)
    # Other libraries may compute the length: DuckDB runs the query for it.
    is_in_memory = type(data).__module__.partition(".")[0] in ("pandas", "polars", "pyarrow")
    if not (is_in_memory and isinstance(data, Sized) and len(data) == 0):
        return reader
    fields = [field.with_type(_type_without_rows(field, untyped)) for field in reader.schema]
    return pa.RecordBatchReader.from_batches(pa.schema(fields), [])


def changes_reader(
    data: object, table: AcidTable, operation_column: str, what: str = "the change set"
) -> pa.RecordBatchReader:
    """Return the rows of a change set; ``what`` names it in messages. See :func:`arrow_reader`."""
    untyped = {ROW_ID_COLUMN: full_row_id_type(table), operation_column.upper(): pa.string()}
    return arrow_reader(data, f"table {table.full_name}: {what}", untyped)


def _plain_reader(
    reader: pa.RecordBatchReader, what: str, refused: Mapping[str, str]
) -> pa.RecordBatchReader:
    """Return the same rows in plain arrays; ``refused`` holds reasons to refuse columns of any Arrow type."""
    fields = [_plain_field(field, refused.get(field.name)) for field in reader.schema]
    if all(plain is field for plain, field in zip(fields, reader.schema, strict=True)):
        return reader
    schema = pa.schema(fields)

    def plain(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = zip(batch.columns, batch.schema, fields, strict=True)
        arrays = [_plain_column(array, given, wanted, what) for array, given, wanted in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, map(plain, reader))


def _plain_field(field: pa.Field, reason: str | None) -> pa.Field:
    """Return the field of the plain values, or a field of a refused type if they are refused."""
    if reason is None:
        try:
            empty = pa.nulls(0, field.type)
            plain = plain_array(empty, field.metadata)
            return field if plain is empty else pa.field(field.name, plain.type)
        except UnfitTypeError as unfit:
            reason = f"{unfit.path.removeprefix(', ')}: {unfit.reason}" if unfit.path else unfit.reason
        except pa.ArrowException as error:
            reason = f"values of type {field.type} cannot be read: {error}"
    return pa.field(field.name, refused_type(str(field.type), reason))


def _plain_column(array: pa.Array, given: pa.Field, wanted: pa.Field, what: str) -> pa.Array:
    if wanted is given:
        return array
    if refusal(wanted.type) is not None:
        return pa.nulls(len(array), wanted.type)
    try:
        return plain_array(array, given.metadata)
    except pa.ArrowException as error:
        raise RecordLayoutError(
            f"{what}: column {given.name!r}: values of type {given.type} cannot be decoded: {error}"
        ) from error


def _type_without_rows(field: pa.Field, untyped: Mapping[str, pa.DataType]) -> pa.DataType:
    """Return the type of a column without values; pandas uses double if there were never any values."""
    if pa.types.is_null(field.type) or pa.types.is_float64(field.type):
        return untyped.get(field.name.upper(), pa.null())
    return field.type


def _reader(data: object, what: str, refused: Mapping[str, str]) -> pa.RecordBatchReader:
    if isinstance(data, pa.Table):
        # The C interface would return the same, but it loses the class of an error in the source of a batch.
        return data.to_reader()
    try:
        if hasattr(data, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(data)
        if hasattr(data, "__arrow_c_array__"):
            batch = pa.record_batch(data)
            return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        reasons = "; ".join(f"column {name!r}: {reason}" for name, reason in refused.items())
        misfit = f"cannot be converted to Arrow: {reasons}" if reasons else _misfit(error)
        raise RecordLayoutError(f"{what}: {_named(data)} {misfit}") from error
    if hasattr(data, "collect"):
        raise RecordLayoutError(f"{what}: {_named(data)} has no rows yet: pass what its collect() returns")
    if isinstance(data, pc.Expression):
        raise RecordLayoutError(
            f"{what}: {_named(data)} is a condition, not rows: pass the rows that meet it, as "
            "table.scan(row_ids=True, where=…) reads them"
        )
    raise RecordLayoutError(
        f"{what}: {_named(data)} cannot be read as Arrow, since it has no method __arrow_c_stream__. Pass a "
        "Table, RecordBatch or RecordBatchReader of pyarrow, a DataFrame of pandas (2.2 or later) or Polars, "
        "or a relation of DuckDB. For Python rows, use pyarrow.Table.from_pylist(rows). For a Spark "
        "DataFrame, use the function of that engine"
    )


def _misfit(error: Exception) -> str:
    """Return the reason why an object with Arrow's interface cannot be read as rows.

    A second argument of the error names a pandas column.
    """
    mixed = _MIXED.fullmatch(str(error.args[-1])) if len(error.args) > 1 else None
    if mixed is not None:
        return (
            f"has a column {mixed[1]} whose values cannot be converted to one Arrow type: {error.args[0]}. "
            "Give all its values one type, such as Decimal or str; None is NULL"
        )
    if isinstance(error, pa.ArrowException | TypeError):
        return f"holds no rows of named columns: {error}"
    return f"cannot be converted to Arrow: {error}"


def _named(data: object) -> str:
    kind = type(data)
    return f"an object of type {kind.__module__}.{kind.__qualname__}".replace("builtins.", "")
