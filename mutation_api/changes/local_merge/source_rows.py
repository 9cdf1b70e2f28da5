"""The source of a merge in memory: plain arrays under lower-case names."""

from __future__ import annotations

import pyarrow as pa

from mutation_api.errors import ConfigurationError, RecordLayoutError
from mutation_api.local.arrow_input import arrow_reader
from mutation_api.local.local_options import LocalOptions
from mutation_api.types.plain_array import plain_array

__all__ = ["check_memory", "plain_batch", "source_rows"]


def source_rows(table_name: str, source: object, local: LocalOptions) -> pa.Table:
    """Read the source.

    Args:
        table_name: for messages.
        source: anything with the Arrow C stream interface.
        local: its ``memory_bytes`` bound the source.

    Raises:
        RecordLayoutError: two columns differ at most in case, or it is no Arrow data.
        ConfigurationError: it needs more memory than allowed.
    """
    reader = arrow_reader(source, f"table {table_name}: the source")
    names = [name.lower() for name in reader.schema.names]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise RecordLayoutError(
            f"table {table_name}: the source has columns twice (case does not count): {', '.join(doubled)}"
        )
    batches = []
    byte_count = 0
    for batch in reader:
        byte_count += batch.nbytes
        check_memory(table_name, "the source", byte_count, local)
        batches.append(batch)
    return pa.Table.from_batches(batches, reader.schema).rename_columns(names)


def plain_batch(rows: pa.Table) -> pa.RecordBatch:
    """The rows in one batch of plain arrays, without a copy if they are that already."""
    return pa.record_batch([plain_array(column) for column in rows.columns], names=rows.column_names)


def check_memory(table_name: str, what: str, byte_count: int, local: LocalOptions) -> None:
    """Raise ConfigurationError if ``byte_count`` is more than the engine may hold."""
    if byte_count > local.memory_bytes:
        raise ConfigurationError(
            f"table {table_name}: {what} would take more than the {local.memory_bytes:,} bytes that the "
            "local engine may hold: merge in several parts, allow more with LocalOptions(memory_bytes=…), "
            "or merge with Spark"
        )
