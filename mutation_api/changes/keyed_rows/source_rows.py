"""The source of a merge in memory: plain arrays under lower-case names."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from mutation_api.changes.keyed_rows.limits import check_memory
from mutation_api.errors import LocalEngineError, RecordLayoutError
from mutation_api.local.arrow_input import arrow_reader
from mutation_api.local.local_options import LocalOptions
from mutation_api.types.plain_array import plain_array, refusal
from mutation_api.types.repeated import repeated

__all__ = ["check_wall_clocks", "plain_batch", "source_rows"]


def source_rows(table_name: str, source: object, local: LocalOptions) -> pa.Table:
    """Read the source.

    Args:
        table_name: for messages.
        source: anything with the Arrow C stream interface.
        local: its ``memory_bytes`` bound the source.

    Raises:
        RecordLayoutError: two columns differ at most in case, values of a column have no type of Hive, or it
            is no Arrow data.
        LocalEngineError: it needs more memory than allowed.
    """
    reader = arrow_reader(source, f"table {table_name}: the source")
    names = [name.lower() for name in reader.schema.names]
    doubled = repeated(names)
    if doubled:
        raise RecordLayoutError(
            f"table {table_name}: the source has columns twice (case does not count): {', '.join(doubled)}"
        )
    for field in reader.schema:
        refused = refusal(field.type)
        if refused is not None:
            raise RecordLayoutError(
                f"table {table_name}: the source: column {field.name!r} ({refused[0]}): {refused[1]}"
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


def check_wall_clocks(table_name: str, what: str, types: Mapping[str, pa.DataType]) -> None:
    """Raise LocalEngineError if columns hold instants: their wall clock depends on a session of Spark."""
    instants = [name for name, kind in types.items() if _has_zone(kind)]
    if instants:
        raise LocalEngineError(
            f"table {table_name}: {', '.join(instants)} of {what} holds instants, which only Spark shows in "
            "the zone of its session; write them as wall clocks"
        )


def _has_zone(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.tz is not None
    return any(_has_zone(kind.field(number).type) for number in range(kind.num_fields))
