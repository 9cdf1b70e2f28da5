"""Partitions: typed values, Hive's strings for them, escaped warehouse paths, and Arrow columns. Pure.

The metastore compares names exactly and checks nothing: ``hr=1`` and ``hr=01`` are two partitions. Therefore
values are always written as Hive's SQL writes them. A partition that another writer spelled differently is
found through :func:`canonical_partition_name`.

Partitions that do not exist may be refused; planning and commit share this check.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metastore_client.partition_name import (
    DEFAULT_PARTITION_NAME,
    MAX_PARTITION_NAME_LENGTH,
    make_partition_name,
)
from metastore_client.partition_name import parse_partition_name as _parse_pairs
from mutation_api.errors import PartitionCreationError, RecordLayoutError, RecordValueError, listed
from mutation_api.format.conversion import convert_to_column
from mutation_api.format.hive_type import HiveType, MisfitError, arrow_type, parse_hive_type
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.table.partition_value import stored_partition_value, texts_of_values

MAX_PARTITION_VALUE_LENGTH = 256
"""The width, in characters, of the column for one value in the metastore's database (PART_KEY_VAL)."""


def partition_name(keys: Sequence[str], texts: Sequence[str]) -> str:
    """Return the escaped name ``key=value/…`` of a partition.

    Raises:
        RecordValueError: If the numbers of keys and values differ, or if the name is too long for the
            metastore.
    """
    try:
        name = make_partition_name(keys, texts)
    except ValueError as error:
        raise RecordValueError(str(error)) from error
    _check_name_length(name)
    return name


def parse_partition_name(name: str) -> tuple[str, ...]:
    """Return the unescaped values of a partition as strings, in key order.

    '' (an unpartitioned table) has no values.

    Raises:
        RecordValueError: If the name is not of the form ``key=value/…``.
    """
    return tuple(text for _, text in _pairs(name)) if name else ()


def partition_texts(
    array: pa.Array | pa.ChunkedArray,
    hive_type: HiveType,
    *,
    column: str,
    null_text: str = DEFAULT_PARTITION_NAME,
) -> pa.StringArray:
    """Return the strings under which values of a partition column are stored, as Hive's SQL writes them.

    Args:
        array: n values of any type that converts to the column's.
        hive_type: the partition column's type.
        column: its name, for messages.
        null_text: the server's name of the default partition.

    Returns:
        n strings, without nulls, not escaped. Null and '' become ``null_text``. An empty char does not,
        because it is padded like every other char.

    Raises:
        RecordLayoutError: If the column's type cannot be a partition key, or the values' type does not fit
            it.
        RecordValueError: If a value does not fit the type, is the name of the default partition, or its
            string is too long for the metastore.

    Source: toString of Hive's writables, compared on 2.3.10, 3.1.2 and 4.0.1.
    """
    if not hive_type.facts.is_partition_key:
        raise RecordLayoutError(
            f"partition column {column!r}: a partition cannot have a value of type {hive_type.text}, "
            "because Hive releases write such values differently"
        )
    values = convert_to_column(array, hive_type, column=column, **_unit(hive_type))
    try:
        encoded = as_partition_stores(values, hive_type, null_text).dictionary_encode()
    except MisfitError as misfit:
        message = f"partition column {column!r} ({hive_type.text}): value {misfit.value} {misfit.reason}"
        raise RecordValueError(message) from misfit
    distinct = texts_of_values(encoded.dictionary, hive_type)
    texts = pc.fill_null(distinct.take(encoded.indices), null_text)
    _check_value_length(distinct, column)
    return texts


def as_partition_stores(array: pa.Array, hive_type: HiveType, null_text: str) -> pa.Array:
    """Return the values as they will be read back: '' becomes NULL, as a directory needs a name."""
    if hive_type.kind not in ("string", "varchar"):
        return array
    if (row := pc.index(array, pa.scalar(null_text, array.type)).as_py()) >= 0:
        reason = "is the server's name for NULL in a partition column: use NULL, or another string"
        raise MisfitError(row, repr(null_text), reason)
    return pc.if_else(pc.equal(array, ""), pa.scalar(None, array.type), array)


def canonical_partition_name(
    keys: Sequence[AcidColumn], name: str, null_text: str = DEFAULT_PARTITION_NAME
) -> str:
    """Return the name that this library would give to the partition ``name``.

    Each value is read as its column's type and printed as Hive's SQL prints it (``hr=01`` -> ``hr=1``). A
    string that is not valid for the type reads as NULL, so it becomes ``null_text``.

    Raises:
        RecordValueError: If the name does not have these keys.
    """
    pairs = _pairs(name)
    if [key.lower() for key, _ in pairs] != [key.name for key in keys]:
        raise RecordValueError(f"partition name {name!r} does not have the keys {[key.name for key in keys]}")
    texts = [
        _canonical_text(text, parse_hive_type(key.type), null_text)
        for key, (_, text) in zip(keys, pairs, strict=True)
    ]
    return make_partition_name([key.name for key in keys], texts)


def partition_names(
    table: AcidTable,
    columns: Mapping[str, pa.Array | pa.ChunkedArray],
    known: pa.StringArray | None = None,
) -> pa.StringArray:
    """Return the partition of every row, by escaped name.

    Args:
        table: provides the partition columns and the spelling of existing partitions.
        columns: arrays of n values each. They must include every partition column (in any case).
        known: the names of the partitions in which n rows currently are; null for new rows. A row stays where
            it is if its partition is one of several that have its values.

    Returns:
        n strings; '' in each row if the table is not partitioned.

    Raises:
        RecordLayoutError: If a partition column is missing. See also :func:`partition_texts`.
        RecordValueError: If a name is too long for the metastore. See also :func:`partition_texts` and
            :func:`existing_name`.
    """
    given = {name.lower(): array for name, array in columns.items()}
    missing = [key.name for key in table.partition_keys if key.name not in given]
    if missing:
        raise RecordLayoutError(
            f"table {table.full_name}: partition column(s) {missing} are missing; the records have "
            f"{list(columns)}"
        )
    if not table.partition_keys:
        return pa.repeat("", len(next(iter(given.values()))) if given else 0)
    # A batch has few partitions, so names are built from distinct values only.
    arrays = [given[key.name] for key in table.partition_keys]
    rows, indices = _distinct_rows(arrays)
    names = _names(table, [array.take(rows) for array in arrays]).take(indices)
    if not table.ambiguous_partitions:
        return names
    stays = pa.array([False] * len(names), pa.bool_()) if known is None else _stays(table, names, known)
    for name in names.filter(pc.invert(stays)).unique().to_pylist():
        existing_name(table, name)  # raises for ambiguous names
    return names if known is None else pc.if_else(stays, known, names)


def _stays(table: AcidTable, names: pa.StringArray, known: pa.StringArray) -> pa.BooleanArray:
    """Return True for rows whose partition is one of several that have their values."""
    stays = pa.array([False] * len(names), pa.bool_())
    for canonical, others in table.ambiguous_partitions.items():
        found = pc.and_(pc.equal(names, canonical), pc.is_in(known, value_set=pa.array(others)))
        stays = pc.or_(stays, found)
    return stays


def _distinct_rows(arrays: Sequence[pa.Array | pa.ChunkedArray]) -> tuple[pa.Array, pa.Array]:
    """Return one row for each combination of values and, for each of the n rows, its combination's index."""
    indices = np.zeros(len(arrays[0]), np.int64)
    for array in arrays:
        encoded = array.dictionary_encode()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        count = len(encoded.dictionary) + 1
        codes = encoded.indices.fill_null(count - 1).to_numpy(zero_copy_only=False)
        # Encoding again after each column keeps the indices below the number of rows.
        indices = pa.array(indices * count + codes).dictionary_encode().indices.to_numpy().astype(np.int64)
    rows = np.zeros(indices.max(initial=-1) + 1, np.int64)
    rows[indices[::-1]] = np.arange(len(indices))[::-1]
    return pa.array(rows), pa.array(indices)


def _names(table: AcidTable, arrays: Sequence[pa.Array | pa.ChunkedArray]) -> pa.StringArray:
    columns = [
        partition_texts(
            array,
            parse_hive_type(key.type),
            column=f"{table.full_name}.{key.name}",
            null_text=table.null_partition_text,
        ).to_pylist()
        for key, array in zip(table.partition_keys, arrays, strict=True)
    ]
    names = [make_partition_name(table.partition_key_names, texts) for texts in zip(*columns, strict=True)]
    for name in names:
        _check_name_length(name, f"table {table.full_name}: ")
    return pa.array([table.partition_spellings.get(name, name) for name in names], pa.string())


def null_text_of(table: AcidTable, column: str) -> str | None:
    """Return the server's name for NULL in a partition column; None if it is a data column."""
    return table.null_partition_text if column in table.partition_key_names else None


def existing_name(table: AcidTable, canonical: str) -> str:
    """Return the actual name of the partition that has this canonical name.

    Raises:
        RecordValueError: If several partitions have these values, so that a row could belong to any of them.
    """
    others = table.ambiguous_partitions.get(canonical)
    if others:
        raise RecordValueError(
            f"table {table.full_name}: the partitions {listed(others)} have the same values, so a row of "
            f"{canonical} could belong to any of them. They can be read, but not written to. To write "
            "there, move their rows into one of them and drop the others"
        )
    return table.partition_spellings.get(canonical, canonical)


def _pairs(name: str) -> tuple[tuple[str, str], ...]:
    try:
        return _parse_pairs(name)
    except ValueError as error:
        raise RecordValueError(str(error)) from error


def _canonical_text(text: str, hive_type: HiveType, null_text: str) -> str:
    try:
        value = stored_partition_value(text, hive_type, null_text)
        array = pa.array([value], _reading_type(hive_type))
        return str(partition_texts(array, hive_type, column="", null_text=null_text)[0])
    except (RecordValueError, RecordLayoutError):
        return text


def _reading_type(hive_type: HiveType) -> pa.DataType | None:
    # A decimal string may have more digits than the column. Arrow chooses the width, the conversion checks
    # it.
    return None if hive_type.kind == "decimal" else arrow_type(hive_type, **_unit(hive_type))


def _unit(hive_type: HiveType) -> dict[str, str]:
    # Microseconds hold years 1 to 9999. A timestamp partition in nanoseconds would be a mistake anyway.
    return {"timestamp_unit": "us"} if hive_type.kind == "timestamp" else {}


def _check_value_length(texts: pa.Array, column: str) -> None:
    longest = pc.max(pc.utf8_length(texts)).as_py() or 0
    if longest > MAX_PARTITION_VALUE_LENGTH:
        found = next(text for text in texts.to_pylist() if text and len(text) > MAX_PARTITION_VALUE_LENGTH)
        raise RecordValueError(
            f"partition column {column!r}: value {found[:60]!r}… has {len(found)} characters; the "
            f"metastore accepts at most {MAX_PARTITION_VALUE_LENGTH}"
        )


def _check_name_length(name: str, where: str = "") -> None:
    if len(name) > MAX_PARTITION_NAME_LENGTH:
        raise RecordValueError(
            f"{where}partition name {name[:60]!r}… has {len(name)} characters; the metastore accepts at "
            f"most {MAX_PARTITION_NAME_LENGTH}"
        )


def partition_type(key: AcidColumn) -> pa.DataType:
    """Return the Arrow type of a partition column. Timestamps get microseconds, the finest unit parsed."""
    return arrow_type(parse_hive_type(key.type), timestamp_unit="us")


def partition_scalars(
    table: AcidTable, name: str, wanted: Collection[AcidColumn] | None = None
) -> dict[str, pa.Scalar]:
    """Return the typed values of the partition columns in the rows of a partition.

    The result is empty for an unpartitioned table. Only the values of ``wanted`` columns are parsed; if None,
    all are. A string that is not valid for its column's type is NULL, as in Hive.

    Raises:
        RecordValueError: If a timestamp has nanoseconds, or if the column's type cannot be a partition
            column's.
    """
    texts = parse_partition_name(name) if table.partition_keys else ()
    return {
        key.name: pa.scalar(
            stored_partition_value(text, parse_hive_type(key.type), table.null_partition_text),
            partition_type(key),
        )
        for key, text in zip(table.partition_keys, texts, strict=True)
        if wanted is None or key in wanted
    }


def check_may_create(table: AcidTable, missing: Collection[str]) -> None:
    """Raise PartitionCreationError if partitions are missing and may not be created."""
    if missing and not table.create_partitions:
        raise PartitionCreationError(
            f"table {table.full_name}: partitions {listed(sorted(missing))} do not exist; create them, or "
            "let the library create them with --create-partitions on the command line, or "
            "create_partitions=True of hive.transaction(…) or add_sink_table(…) in Python"
        )
