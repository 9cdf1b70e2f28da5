"""Whatever speaks Arrow, as a stream of batches."""

from __future__ import annotations

import pyarrow as pa

from mutation_api.errors import RecordLayoutError

__all__ = ["arrow_reader"]


def arrow_reader(data: object, what: str) -> pa.RecordBatchReader:
    """The rows of any object with Arrow's C stream or C array interface. Batches are not copied.

    Such objects are tables, batches and readers of pyarrow, DataFrames of pandas (2.2 and later) and Polars,
    relations of DuckDB, and others. A reader or another stream can be read only once.

    Args:
        data: the object.
        what: its role, for messages: ``table db.t: the change set``.

    Raises:
        RecordLayoutError: the object has neither interface, or holds something else than rows; the message
            names its type.
    """
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.Table):
        # The C interface would give the same, but without the class of an error that a batch's source raises.
        return data.to_reader()
    try:
        if hasattr(data, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(data)
        if hasattr(data, "__arrow_c_array__"):
            batch = pa.record_batch(data)
            return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    except (pa.ArrowException, TypeError) as error:
        raise RecordLayoutError(f"{what}: {_named(data)} holds no rows of named columns: {error}") from error
    raise RecordLayoutError(
        f"{what}: {_named(data)} cannot be read as Arrow, since it has no method __arrow_c_stream__. Give a "
        "Table, RecordBatch or RecordBatchReader of pyarrow, a DataFrame of pandas (2.2 or later) or Polars, "
        "or a relation of DuckDB; for Python's own rows pyarrow.Table.from_pylist(rows), for a DataFrame of "
        "Spark the function of that engine"
    )


def _named(data: object) -> str:
    kind = type(data)
    return f"an object of type {kind.__module__}.{kind.__qualname__}".replace("builtins.", "")
