"""Source rows of a merge, read into memory as plain arrays under lower-case names.

If several source rows act on one row or key, a rule keeps the first, or they are found for the error. Beyond
its limits, the local engine leaves the work to Spark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.errors import (
    ConfigurationError,
    DuplicateKeyError,
    RecordLayoutError,
    UnsupportedLocallyError,
)
from mutation_api.format.event import Mask
from mutation_api.format.json_values import json_texts
from mutation_api.format.plain_array import plain_array, refusal, repeated
from mutation_api.write.arrow_input import arrow_reader
from mutation_api.write.local_plan import LocalOptions

Indices = NDArray[np.int64]

_ORDERS = ("ascending", "descending")


def sort_keys(
    table_name: str, source: pa.Schema, columns: Sequence[str | tuple[str, str]]
) -> tuple[tuple[str, bool], ...]:
    """Return the source columns to order by, in lower case, and True for each that descends.

    Args:
        table_name: ``database.table``, for messages.
        source: types of the source columns.
        columns: names, or pairs of a name and ``"ascending"`` or ``"descending"``.

    Raises:
        ConfigurationError: If a column is missing or cannot be sorted, or if an order is unknown.
    """
    pairs = []
    for given in columns:
        match (given, "ascending") if isinstance(given, str) else given:
            case (str(name), str(order)) if name.lower() in source.names and order in _ORDERS:
                pairs.append((name.lower(), order))
                continue
        raise ConfigurationError(
            f"table {table_name}: first_by {given!r}: expected a column of the source "
            f"({', '.join(source.names)}) or a pair of a column and 'ascending' or 'descending'"
        )
    for name, _ in pairs:
        try:
            dense_ranks(pa.nulls(0, source.field(name).type), is_descending=False)
        except pa.ArrowNotImplementedError as error:
            raise ConfigurationError(
                f"table {table_name}: first_by {name!r}: {source.field(name).type} values cannot be sorted"
            ) from error
    return tuple((name, order == "descending") for name, order in pairs)


def order_of_rows(source: pa.RecordBatch, keys: Sequence[tuple[str, bool]]) -> Indices:
    """Return the rank of each source row.

    Ties are broken by the row's content, so every run makes the same choice.

    Args:
        source: n rows.
        keys: see :func:`sort_keys`. As in Spark SQL, NULLs come first in ascending order and last in
            descending order.
    """
    texts = pa.array(json_texts(source.to_struct_array()), pa.string())
    parts: list[Indices] = [dense_ranks(texts, is_descending=False)]
    parts += [
        dense_ranks(source.column(name), is_descending=is_descending)
        for name, is_descending in reversed(keys)
    ]
    ranks = np.empty(len(texts), np.int64)
    ranks[np.lexsort(parts)] = np.arange(len(texts))
    return ranks


def dense_ranks(values: pa.Array, *, is_descending: bool) -> Indices:
    """Return dense ranks of n values. NULL is the least value, NaN the greatest."""
    ranks = np.zeros(len(values), np.int64)
    if pa.types.is_null(values.type):
        return ranks
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    ranks[valid] = pc.rank(values.drop_null(), sort_keys="ascending", tiebreaker="dense").to_numpy()
    return -ranks if is_descending else ranks


def row_codes(columns: Sequence[pa.Array]) -> Indices:
    """Return a number for each of n rows, the same for equal rows. NULL equals NULL, NaN equals NaN."""
    codes = _value_codes(columns[0])
    for column in columns[1:]:
        further = _value_codes(column)
        codes = np.unique(codes * (further.max(initial=0) + 1) + further, return_inverse=True)[1]
    return codes


def _value_codes(values: pa.Array) -> Indices:
    if pa.types.is_null(values.type) or pa.types.is_floating(values.type):  # a dictionary has 0.0 and -0.0
        return dense_ranks(values, is_descending=False)
    codes: Indices = values.dictionary_encode("encode").indices.to_numpy().astype(np.int64)
    return codes


def first_of_each(groups: Indices, order: Indices, judged: Mask) -> Indices:
    """Return the indices of the rows to keep, ascending:

    of the judged rows the first one of each group, and all other rows.

    Args:
        groups: the group number of each of n rows.
        order: rank of each row.
        judged: mask of the rows that are in a group.
    """
    rows = np.flatnonzero(judged)
    sorted_rows = rows[np.lexsort([order[rows], groups[rows]])]
    in_order = groups[sorted_rows]
    is_first = np.ones(len(sorted_rows), np.bool_)
    is_first[1:] = in_order[1:] != in_order[:-1]
    kept = ~judged
    kept[sorted_rows[is_first]] = True
    return np.flatnonzero(kept)


ROWS_SHOWN = 3
"""The number of source rows that a message shows per key."""


@dataclass(frozen=True)
class DuplicatedKey:
    """A key with several source rows: its JSON string, the row count, and JSON strings of some rows."""

    key: str
    row_count: int
    rows: Sequence[str]


@dataclass
class DoubledKeys:
    """The number of keys with several source rows, and some of them."""

    count: int = 0
    samples: list[DuplicatedKey] = field(default_factory=list)

    def add(self, count: int, samples: Sequence[DuplicatedKey]) -> None:
        """Add the keys of another part of the rows."""
        self.count += count
        self.samples += samples

    def check(self, table_name: str, shown: int) -> None:
        """Raise DuplicateKeyError if there are any. The message shows at most ``shown`` of them."""
        if self.count:
            samples = sorted(self.samples, key=lambda each: each.key)[:shown]
            raise duplicate_key_error(table_name, self.count, samples)


def duplicate_key_error(
    table_name: str, key_count: int, samples: Sequence[DuplicatedKey]
) -> DuplicateKeyError:
    """Return the error that shows some of the keys.

    Args:
        table_name: ``database.table``.
        key_count: total number of such keys.
        samples: some of the keys.
    """
    return DuplicateKeyError(
        f"table {table_name}: {_counted(key_count)} more than one source row that would act, so the result "
        f"would be ambiguous: {_listed([_rows_line(each) for each in samples], key_count)}. Nothing was "
        "written. Keep one source row per key, or choose which one is used with on_duplicate=first_by(…)"
    )


def copied_keys_error(
    what: str, table_name: str, key_count: int, samples: Sequence[str]
) -> DuplicateKeyError:
    """Return the error for a copy of a whole table in which keys have several rows.

    Args:
        what: name of the copy, for messages.
        table_name: ``database.table`` that the copy would fill.
        key_count: total number of such keys.
        samples: JSON strings of some of the keys.
    """
    return DuplicateKeyError(
        f"{what}: {_counted(key_count)} more than one row when stored in {table_name}: "
        f"{_listed(samples, key_count)}. Nothing was written. If each key occurs only once in the source, "
        "choose types for the key columns in Hive that keep the values distinct"
    )


def _counted(key_count: int) -> str:
    return f"{key_count:,} {'key has' if key_count == 1 else 'keys have'}"


def _listed(samples: Sequence[str], key_count: int) -> str:
    more = f"; and {key_count - len(samples):,} more" if key_count > len(samples) else ""
    return "; ".join(samples) + more


def _rows_line(found: DuplicatedKey) -> str:
    rows = sorted(found.rows)[:ROWS_SHOWN]
    more = ", …" if found.row_count > len(rows) else ""
    key = ", ".join(f"{name}={value!r}" for name, value in json.loads(found.key).items())
    return f"({key}) in {found.row_count:,} rows: {', '.join(rows)}{more}"


def duplicated(
    groups: Indices,
    judged: Mask,
    source: pa.RecordBatch,
    source_rows: Indices,
    keys: Sequence[str],
    shown: int,
) -> tuple[int, list[DuplicatedKey]]:
    """Return the number of groups with several rows, and samples of their keys.

    Args:
        groups: the group number of each of n rows, from 0.
        judged: mask of the rows that are in a group.
        source: the source's rows.
        source_rows: the source row of each of the n rows.
        keys: names of the key columns.
        shown: maximum number of samples.
    """
    if not judged.any():
        return 0, []
    counts = np.bincount(groups[judged])
    several = np.flatnonzero(counts > 1)
    samples = []
    for group in several[:shown].tolist():
        rows = pa.array(source_rows[judged & (groups == group)])
        found = source.take(rows)
        texts = sorted(json_texts(found.to_struct_array()))
        (key,) = json_texts(found.slice(0, 1).select(list(keys)).to_struct_array())
        samples.append(DuplicatedKey(key, len(rows), texts[:ROWS_SHOWN]))
    return len(several), samples


READ_BYTES_MAX = 256 << 20
"""The maximum size of a table's files that one process reads when Spark could read them instead."""


def check_memory(table_name: str, what: str, byte_count: int, memory_bytes: int) -> None:
    """Raise UnsupportedLocallyError if ``byte_count`` exceeds the engine's limit ``memory_bytes``."""
    if byte_count > memory_bytes:
        raise UnsupportedLocallyError(
            f"table {table_name}: {what} would need more than the {memory_bytes:,} bytes that the "
            "local engine may use. Merge in several parts, raise the limit with "
            "LocalOptions(memory_bytes=…), or use Spark"
        )


def check_read_bytes(table_name: str, byte_count: int, most: int) -> None:
    """Raise UnsupportedLocallyError if the size of the files to read exceeds ``most`` bytes."""
    if byte_count > most:
        raise UnsupportedLocallyError(
            f"table {table_name}: {byte_count:,} bytes of its files would be read. Spark is required for "
            f"more than {most:,}"
        )


def source_rows(table_name: str, source: object, local: LocalOptions) -> pa.Table:
    """Read the source.

    Args:
        table_name: ``database.table``, for messages.
        source: any object with the Arrow C stream interface.
        local: options of the local engine. ``memory_bytes`` limits the source.

    Raises:
        RecordLayoutError: If column names are equal ignoring case, if Hive has no type for a column's values,
            or if the source is not Arrow data.
        UnsupportedLocallyError: If the source needs more memory than allowed.
    """
    reader = arrow_reader(source, f"table {table_name}: the source")
    names = [name.lower() for name in reader.schema.names]
    doubled = repeated(names)
    if doubled:
        raise RecordLayoutError(
            f"table {table_name}: the source has duplicate columns (ignoring case): {', '.join(doubled)}"
        )
    for each in reader.schema:
        refused = refusal(each.type)
        if refused is not None:
            raise RecordLayoutError(
                f"table {table_name}: the source: column {each.name!r} ({refused[0]}): {refused[1]}"
            )
    batches = []
    byte_count = 0
    for batch in reader:
        byte_count += batch.nbytes
        check_memory(table_name, "the source", byte_count, local.memory_bytes)
        batches.append(batch)
    return pa.Table.from_batches(batches, reader.schema).rename_columns(names)


def plain_batch(rows: pa.Table) -> pa.RecordBatch:
    """Return the rows in one batch of plain arrays, without a copy if possible."""
    return pa.record_batch([plain_array(column) for column in rows.columns], names=rows.column_names)


def check_wall_clocks(table_name: str, what: str, types: Mapping[str, pa.DataType]) -> None:
    """Raise UnsupportedLocallyError if columns hold timestamps with time zone.

    Their local time depends on the time zone of a Spark session.
    """
    instants = [name for name, kind in types.items() if _has_zone(kind)]
    if instants:
        raise UnsupportedLocallyError(
            f"table {table_name}: columns of {what} hold timestamps with time zone: {', '.join(instants)}. "
            "Only Spark can convert them, in the session's time zone. Write them as local timestamps"
        )


def _has_zone(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.tz is not None
    return any(_has_zone(kind.field(number).type) for number in range(kind.num_fields))
