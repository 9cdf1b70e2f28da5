"""Whatever speaks Arrow, as a stream of batches."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sized
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.acid.row_id import ROW_ID_COLUMN
from mutation_api.errors import RecordLayoutError
from mutation_api.local.pandas_dicts import check_dicts
from mutation_api.local.source_types import unknown_types
from mutation_api.reader.split_rows import full_row_id_type
from mutation_api.table.acid_table import AcidTable
from mutation_api.types.misfit import UnfitTypeError
from mutation_api.types.plain_array import plain_array, refusal, refused_type

__all__ = ["arrow_reader", "changes_reader"]

_MIXED = re.compile(r"Conversion failed for column (.*) with type object", re.S)
"""How pyarrow says of which column of a DataFrame of pandas it cannot convert the values."""


def arrow_reader(
    data: object, what: str, untyped: Mapping[str, pa.DataType] = MappingProxyType({})
) -> pa.RecordBatchReader:
    """The rows of any object with Arrow's C stream or C array interface. Batches are not copied.

    Such objects are tables, batches and readers of pyarrow, DataFrames of pandas (2.2 and later) and Polars,
    relations of DuckDB, and others. A reader or another stream can be read only once.

    Args:
        data: the object.
        what: its role, for messages: ``table db.t: the change set``.
        untyped: types of columns, by name in upper case, that have none because there are no rows. A
            DataFrame of pandas without rows often has no types: nothing was to be changed today.

    Returns:
        Columns as :func:`~mutation_api.types.plain_array.plain_array` returns them. One that it refuses gets
        a type that every conversion refuses with the reason, since a delete need not read it.

    Raises:
        RecordLayoutError: the object has neither interface, holds something else than rows, or its values
            have no type of Arrow; the message names its type. When it is read: values cannot be decoded.
        RecordValueError: see :func:`~mutation_api.local.pandas_dicts.check_dicts`.
    """
    refused = unknown_types(data)
    reader = data if isinstance(data, pa.RecordBatchReader) else _reader(data, what, refused)
    check_dicts(data, reader.schema, what)
    reader = _plain_reader(reader, what, refused)
    # Others may compute their length: DuckDB runs the query for it.
    is_in_memory = type(data).__module__.partition(".")[0] in ("pandas", "polars", "pyarrow")
    if not (is_in_memory and isinstance(data, Sized) and len(data) == 0):
        return reader
    fields = [field.with_type(_type_without_rows(field, untyped)) for field in reader.schema]
    return pa.RecordBatchReader.from_batches(pa.schema(fields), [])


def changes_reader(
    data: object, table: AcidTable, operation_column: str, what: str = "the change set"
) -> pa.RecordBatchReader:
    """The rows of a change set; ``what`` it is, for messages. Raises as :func:`arrow_reader`."""
    untyped = {ROW_ID_COLUMN: full_row_id_type(table), operation_column.upper(): pa.string()}
    return arrow_reader(data, f"table {table.full_name}: {what}", untyped)


def _plain_reader(
    reader: pa.RecordBatchReader, what: str, refused: Mapping[str, str]
) -> pa.RecordBatchReader:
    """The same rows in plain arrays; ``refused``: reasons by column, whatever its Arrow type is."""
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
    """The field of the plain values; one of a refused type if they are refused."""
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
    """Of a column without values; pandas gives double to one that never had any."""
    if pa.types.is_null(field.type) or pa.types.is_float64(field.type):
        return untyped.get(field.name.upper(), pa.null())
    return field.type


def _reader(data: object, what: str, refused: Mapping[str, str]) -> pa.RecordBatchReader:
    if isinstance(data, pa.Table):
        # The C interface would give the same, but without the class of an error that a batch's source raises.
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
        raise RecordLayoutError(f"{what}: {_named(data)} has no rows yet: give what its collect() returns")
    if isinstance(data, pc.Expression):
        raise RecordLayoutError(
            f"{what}: {_named(data)} is a condition, not rows: give the rows that meet it, as "
            "table.scan(row_ids=True, filter=…) reads them"
        )
    raise RecordLayoutError(
        f"{what}: {_named(data)} cannot be read as Arrow, since it has no method __arrow_c_stream__. Give a "
        "Table, RecordBatch or RecordBatchReader of pyarrow, a DataFrame of pandas (2.2 or later) or Polars, "
        "or a relation of DuckDB; for Python's own rows pyarrow.Table.from_pylist(rows), for a DataFrame of "
        "Spark the function of that engine"
    )


def _misfit(error: Exception) -> str:
    """Why an object with Arrow's interface is no rows. A second argument names a column of pandas."""
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
