"""``hive-mutate snapshot``: print or save the rows of a table, with or without a metastore.

Reads in this process, without Spark. With a metastore it holds a read lock meanwhile; with ``--location`` it
reads a directory from its files alone.

``--json`` prints one object a line: ``{"partition": {"ds": "x"}, "ROW__ID": {"writeid": 7, "bucketid": 0,
"rowid": 1}, "row": {"id": 1, "msg": "a"}}`` (``transactionid`` in tables of Hive 2); ``partition`` for
partitioned tables only, ``ROW__ID`` with ``--row-ids`` only. How values look is in
:mod:`mutation_api.table.json_row`. A file written by ``--output`` has the partition columns beside the
others, and ROW__ID as ``hive-mutate apply`` reads it. DIR and FILE lie on a local disk, or elsewhere:
hdfs://namenode/directory, s3a://bucket/directory/file.parquet. FILE replaces an older one when it is whole.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet

from metastore_client.valid_ids import NO_OPEN_ID, ValidIdList, ValidTxnList, ValidWriteIdList
from mutation_api.acid.row_id import ROW_ID_COLUMN
from mutation_api.acid.version import AcidVersion
from mutation_api.cli.arguments.locations import extension, place
from mutation_api.cli.arguments.metastore_arguments import add_metastore_arguments, metastore_from
from mutation_api.client.builder import MutatorClientBuilder
from mutation_api.errors import ClientError, ConfigurationError, DirectoryStateError, ReadError
from mutation_api.orc.read.column_reader import ReadOptions, TimestampForm
from mutation_api.orc.read.partition_plan import plan_partitions
from mutation_api.orc.read.read_ahead import read_in_turn
from mutation_api.orc.read.snapshot_reader import read_split, row_id_type, select_columns, snapshot_schema
from mutation_api.orc.read.snapshot_split import SnapshotSplit
from mutation_api.orc.read.table_directory import find_partitions, is_written_by_hive_4, uses_write_ids
from mutation_api.storage.location import Location
from mutation_api.storage.replacing import replacing
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.table.json_row import json_partition, json_values
from mutation_api.table.partition import parse_partition_name, partition_value
from mutation_api.table.schema_text import parse_columns
from mutation_api.types.hive_type import arrow_type, parse_hive_type

__all__ = ["add_arguments", "run"]

_LEGACY, _DEFAULT, _INSERT_ONLY = "legacy", "default", "insert_only"
_AUTO = "auto"
_ANY_BUCKET = 2**31 - 1
"""Bucket count of a directory whose table is unknown: whatever bucket is found belongs to it."""

_WIDTH_SAMPLE_ROWS = 1000
"""So many rows decide how wide the columns of the printed table are."""


@dataclass(frozen=True)
class _Opened:
    """What to read: the table, locations by partition name, the snapshot (ids in files, and transactions)."""

    table: AcidTable
    locations: Mapping[str, Location]
    valid: ValidIdList
    valid_txns: ValidTxnList


@dataclass(frozen=True)
class _Batch:
    """Rows of one partition."""

    partition_name: str
    rows: pa.RecordBatch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.set_defaults(refuse_usage=parser.error)
    parser.add_argument("table", nargs="?", metavar="DB.TABLE", help="a table of the metastore")
    add_metastore_arguments(parser)
    files = parser.add_argument_group("without a metastore")
    files.add_argument(
        "--location",
        metavar="DIR",
        help="the directory of a table, or a copy of it: a path, hdfs://…, s3a://…",
    )
    files.add_argument("--schema", metavar="TEXT", help="its data columns: 'id bigint, msg string'")
    files.add_argument(
        "--partition-schema",
        metavar="TEXT",
        help="its partition columns: 'ds string' (default: the key=value directories found, as strings)",
    )
    files.add_argument(
        "--transactional-properties",
        choices=(_LEGACY, _DEFAULT, _INSERT_ONLY),
        help="that table property (default: legacy for Hive 2, default for later ones)",
    )
    files.add_argument(
        "--acid-version",
        choices=("1", "2", _AUTO),
        help="1: Hive 2 wrote it, 2: a later one (default: auto, what the files show)",
    )
    files.add_argument(
        "--valid-txns",
        metavar="TEXT",
        help="10:9223372036854775807:3:5; in version 2: of compactions (default: all valid)",
    )
    files.add_argument(
        "--valid-write-ids",
        metavar="TEXT",
        help="db.table:10:9223372036854775807::3,5, version 2 only (default: all write ids are valid)",
    )
    files.add_argument(
        "--buckets", type=int, metavar="N", help="the table's bucket count (default: what the files show)"
    )
    rows = parser.add_argument_group("what to show")
    rows.add_argument("--columns", metavar="A,B", help="data columns to read (default: all)")
    rows.add_argument(
        "--where-partition",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="only partitions with this value; several must all hold",
    )
    rows.add_argument("--row-ids", action="store_true", help="show ROW__ID too")
    rows.add_argument("--limit", type=int, metavar="N", help="stop after N rows")
    rows.add_argument("--json", action="store_true", help="one JSON object a line")
    rows.add_argument(
        "--output",
        type=place,
        metavar="FILE",
        help="save to a .csv, .json, .parquet or .orc file instead, there or on a local disk",
    )
    rows.add_argument(
        "--truncate-nanoseconds",
        action="store_true",
        help="let Parquet and ORC output drop digits below microseconds (otherwise they are an error)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print or save the rows; 0 when all were read."""
    _check_usage(arguments)
    writer = _writer(arguments)
    with _open(arguments) as opened:
        batches = _limited(_read(opened, arguments, writer.form), arguments.limit)
        writer.write(opened.table, _selected(opened.table, arguments), batches, arguments)
    return 0


def _check_usage(arguments: argparse.Namespace) -> None:
    refuse: Callable[[str], None] = arguments.refuse_usage
    if (arguments.table is None) == (arguments.location is None):
        refuse("give either DB.TABLE or --location DIR")
    if arguments.location is not None and arguments.schema is None:
        refuse("--location needs --schema, for example --schema 'id bigint, msg string'")
    only_location = (
        *("schema", "partition_schema", "transactional_properties", "acid_version"),
        *("valid_txns", "valid_write_ids", "buckets"),
    )
    for name in only_location:
        if arguments.table is not None and getattr(arguments, name) is not None:
            refuse(f"--{name.replace('_', '-')} goes with --location only; the metastore knows it")
    if arguments.json and arguments.output:
        refuse("--json prints and --output saves: give one of them")
    for name in ("limit", "buckets"):
        value = getattr(arguments, name)
        if value is not None and value < (name == "buckets"):
            refuse(f"--{name} {value} is too small")


@contextlib.contextmanager
def _open(arguments: argparse.Namespace) -> Iterator[_Opened]:
    if arguments.location is not None:
        yield _open_directory(arguments)
        return
    with (
        metastore_from(arguments) as metastore,
        MutatorClientBuilder().metastore(metastore).build() as client,
    ):
        snapshot = client.open_snapshot(arguments.table)
        table = snapshot.table(arguments.table)
        names = [p.name for p in snapshot.partitions(arguments.table)] if table.partition_keys else [""]
        locations = {name: table.partition_location(name) for name in names}
        valid_ids = snapshot.valid_ids(arguments.table)
        yield _Opened(table, locations, valid_ids, snapshot.valid_txn_list)


def _open_directory(arguments: argparse.Namespace) -> _Opened:
    try:
        location = Location.given(arguments.location)
    except OSError as error:
        raise ConfigurationError(f"--location: {error}") from error
    try:
        locations = find_partitions(location)
        version = _version(arguments, list(locations.values()))
    except OSError as error:
        raise ReadError(f"{location}: the directory cannot be read: {error}") from error
    table = AcidTable(
        database="directory",
        name=location.name,
        location=location,
        columns=parse_columns(arguments.schema),
        partition_keys=_partition_keys(arguments.partition_schema, next(iter(locations)), location),
        num_buckets=arguments.buckets or _ANY_BUCKET,
        bucket_columns=(),
        version=version,
    )
    valid_txns = _valid_txns(arguments.valid_txns)
    if version.uses_write_ids:
        return _Opened(table, locations, _valid_write_ids(arguments.valid_write_ids), valid_txns)
    if arguments.valid_write_ids is not None:
        raise ConfigurationError(
            f"--valid-write-ids: {location} is of version 1, whose ids are transactions: give --valid-txns, "
            "or --acid-version 2"
        )
    return _Opened(table, locations, valid_txns, valid_txns)


def _version(arguments: argparse.Namespace, locations: Sequence[Location]) -> AcidVersion:
    properties = arguments.transactional_properties
    asked = arguments.acid_version or _AUTO
    if asked == _AUTO and properties != _LEGACY:
        asked = "2" if properties == _INSERT_ONLY or uses_write_ids(locations) else "1"
    has_write_ids = asked == "2"
    version = AcidVersion.of_table(
        properties or "",
        has_write_ids=has_write_ids,
        is_hive_4=has_write_ids and is_written_by_hive_4(locations),
    )
    if version is None:
        raise ConfigurationError(
            f"--acid-version {asked} has no tables with --transactional-properties {properties}"
        )
    return version


def _partition_keys(text: str | None, name: str, location: Location) -> tuple[AcidColumn, ...]:
    found = [part.partition("=")[0].lower() for part in name.split("/")] if name else []
    if text is None:
        return tuple(AcidColumn(key, "string") for key in found)
    keys = parse_columns(text)
    if [key.name for key in keys] != found:
        raise DirectoryStateError(
            f"{location}: its directories have the partition keys {', '.join(found) or '(none)'}, "
            f"--partition-schema has {', '.join(key.name for key in keys)}"
        )
    return keys


def _valid_txns(text: str | None) -> ValidTxnList:
    if text is None:
        return ValidTxnList.everything()
    try:
        return ValidTxnList.parse(text)
    except ValueError as error:
        raise ConfigurationError(f"--valid-txns: {error}") from error


def _valid_write_ids(text: str | None) -> ValidWriteIdList:
    if text is None:
        return ValidWriteIdList(NO_OPEN_ID)
    try:
        return ValidWriteIdList.parse(text)
    except ValueError as error:
        raise ConfigurationError(f"--valid-write-ids: {error}") from error


def _selected(table: AcidTable, arguments: argparse.Namespace) -> tuple[AcidColumn, ...]:
    names = None if arguments.columns is None else [n.strip() for n in arguments.columns.split(",")]
    return select_columns(table, names)


def _read(opened: _Opened, arguments: argparse.Namespace, form: TimestampForm) -> Iterator[_Batch]:
    options = ReadOptions(form, truncate_nanoseconds=arguments.truncate_nanoseconds)
    names = [c.name for c in _selected(opened.table, arguments)]
    table, valid = opened.table, opened.valid
    wanted = {
        name: location
        for name, location in sorted(opened.locations.items())
        if _matches(table, name, arguments.where_partition)
    }
    is_whole = len(wanted) == len(opened.locations)
    splits = plan_partitions(table, wanted, valid, opened.valid_txns, is_whole_table=is_whole)

    def read(split: SnapshotSplit) -> Iterator[pa.RecordBatch]:
        return read_split(table, split, valid, names, arguments.row_ids, options)

    for split, rows in read_in_turn(splits, read):
        yield _Batch(split.partition_name, rows)


def _matches(table: AcidTable, partition_name: str, conditions: Sequence[str]) -> bool:
    """Whether the partition has the values asked for, compared as typed values: ``hr=1`` finds ``hr=01``."""
    keys = {key.name: key for key in table.partition_keys}
    texts = dict(zip(table.partition_key_names, parse_partition_name(partition_name), strict=True))
    for condition in conditions:
        name, _, wanted = condition.partition("=")
        key = keys.get(name.strip().lower())
        if key is None:
            raise ConfigurationError(
                f"--where-partition {condition}: table {table.full_name} has the partition columns "
                f"{', '.join(keys) or '(none)'}"
            )
        hive_type = parse_hive_type(key.type)
        if partition_value(texts[key.name], hive_type) != partition_value(wanted, hive_type):
            return False
    return True


def _limited(batches: Iterator[_Batch], limit: int | None) -> Iterator[_Batch]:
    left = limit
    while left is None or left > 0:
        batch = next(batches, None)
        if batch is None:
            return
        if left is not None:
            batch = _Batch(batch.partition_name, batch.rows.slice(0, left))
            left -= batch.rows.num_rows
        yield batch


@dataclass(frozen=True)
class _Writer:
    """A way to show rows, and the form in which it needs timestamps."""

    form: TimestampForm
    write: Callable[[AcidTable, Sequence[AcidColumn], Iterator[_Batch], argparse.Namespace], None]


def _writer(arguments: argparse.Namespace) -> _Writer:
    if arguments.output is None:
        return _Writer(TimestampForm.TEXT, _print_json if arguments.json else _print_table)
    writer = _FILE_WRITERS.get(f".{extension(arguments.output)}")
    if writer is None:
        raise ConfigurationError(
            f"--output {arguments.output.shown}: the name must end in {', '.join(_FILE_WRITERS)}"
        )
    return writer


def _print_json(
    table: AcidTable, columns: Sequence[AcidColumn], batches: Iterator[_Batch], arguments: argparse.Namespace
) -> None:
    for batch in batches:
        head: dict[str, Any] = {}
        if table.partition_keys:
            head["partition"] = json_partition(table.partition_keys, batch.partition_name)
        row_ids = _row_ids(batch, arguments.row_ids)
        for row_id, row in zip(row_ids, _json_rows(batch.rows, columns), strict=True):
            _print_line(head | row_id | {"row": row})


def _row_ids(batch: _Batch, row_ids: bool) -> list[dict[str, dict[str, Any]]]:
    """{"ROW__ID": {…}} of each row; empty ones if they are not to be shown."""
    if not row_ids:
        return [{}] * batch.rows.num_rows
    return [{ROW_ID_COLUMN: row_id} for row_id in batch.rows.column(0).to_pylist()]


def _print_line(value: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n")


def _json_rows(rows: pa.RecordBatch, columns: Sequence[AcidColumn]) -> Iterator[dict[str, Any]]:
    names = [c.name for c in columns]
    values = [json_values(rows.column(c.name), parse_hive_type(c.type)) for c in columns]
    for row in range(rows.num_rows):
        yield {name: column[row] for name, column in zip(names, values, strict=True)}


def _flat_rows(
    table: AcidTable, columns: Sequence[AcidColumn], batches: Iterator[_Batch], row_ids: bool
) -> Iterator[dict[str, Any]]:
    """Rows with their partition columns beside the others."""
    for batch in batches:
        partition = json_partition(table.partition_keys, batch.partition_name)
        ids = _row_ids(batch, row_ids)
        for row_id, row in zip(ids, _json_rows(batch.rows, columns), strict=True):
            if row_ids and table.partition_keys:
                row_id[ROW_ID_COLUMN]["partition"] = batch.partition_name
            yield row_id | row | partition


def _print_table(
    table: AcidTable, columns: Sequence[AcidColumn], batches: Iterator[_Batch], arguments: argparse.Namespace
) -> None:
    names = [c.name for c in (*columns, *table.partition_keys)]
    header = [*([ROW_ID_COLUMN] if arguments.row_ids else []), *names]
    rows = (_cells(row) for row in _flat_rows(table, columns, batches, arguments.row_ids))
    sample = list(itertools.islice(rows, _WIDTH_SAMPLE_ROWS))
    widths = [max(map(len, column)) for column in zip(header, *sample, strict=True)]
    count = 0
    for cells in itertools.chain([header], sample, rows):
        line = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        sys.stdout.write(line.rstrip() + "\n")
        count += 1
    sys.stdout.write(f"({count - 1} {'row' if count == 2 else 'rows'})\n")


def _cells(row: Mapping[str, Any]) -> list[str]:
    values = dict(row)
    row_id = values.pop(ROW_ID_COLUMN, None)
    ids = [] if row_id is None else [",".join(str(n) for n in list(row_id.values())[:3])]
    return ids + ["NULL" if value is None else str(_text(value)) for value in values.values()]


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@contextlib.contextmanager
def _saving(file: Location) -> Iterator[pa.NativeFile]:
    try:
        with replacing(file) as stream:
            yield stream
    except OSError as error:
        raise ClientError(f"{file.shown}: the file cannot be written: {error}") from error


def _save_json(
    table: AcidTable, columns: Sequence[AcidColumn], batches: Iterator[_Batch], arguments: argparse.Namespace
) -> None:
    with _saving(arguments.output) as file:
        for row in _flat_rows(table, columns, batches, arguments.row_ids):
            file.write(f"{json.dumps(row, ensure_ascii=False, allow_nan=False)}\n".encode())


def _save_csv(
    table: AcidTable, columns: Sequence[AcidColumn], batches: Iterator[_Batch], arguments: argparse.Namespace
) -> None:
    ids = [f.name for f in row_id_type(table.version)] + (["partition"] if table.partition_keys else [])
    names = [f"{ROW_ID_COLUMN}.{name}" for name in ids] if arguments.row_ids else []
    names += [c.name for c in (*columns, *table.partition_keys)]
    schema = pa.schema([(name, pa.string()) for name in names])
    with _saving(arguments.output) as file, pa.csv.CSVWriter(file, schema) as writer:
        for batch in batches:
            rows = _flat_rows(table, columns, iter([batch]), arguments.row_ids)
            flat = [[_text(v) for v in _without_struct(row).values()] for row in rows]
            arrays = [pa.array(column, pa.string()) for column in zip(*flat, strict=True)]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))


def _without_struct(row: Mapping[str, Any]) -> dict[str, Any]:
    values = dict(row)
    row_id = values.pop(ROW_ID_COLUMN, {})
    return {f"{ROW_ID_COLUMN}.{name}": value for name, value in row_id.items()} | values


def _save_parquet(
    table: AcidTable, columns: Sequence[AcidColumn], batches: Iterator[_Batch], arguments: argparse.Namespace
) -> None:
    schema = _file_schema(table, columns, arguments.row_ids)
    with _saving(arguments.output) as file, pa.parquet.ParquetWriter(file, schema) as writer:
        for batch in batches:
            writer.write_batch(_typed(table, columns, batch, schema))


def _save_orc(
    table: AcidTable, columns: Sequence[AcidColumn], batches: Iterator[_Batch], arguments: argparse.Namespace
) -> None:
    schema = _file_schema(table, columns, arguments.row_ids)
    with _saving(arguments.output) as file, pa.orc.ORCWriter(file) as writer:
        writer.write(schema.empty_table())
        for batch in batches:
            writer.write(pa.Table.from_batches([_typed(table, columns, batch, schema)]))


def _file_schema(table: AcidTable, columns: Sequence[AcidColumn], row_ids: bool) -> pa.Schema:
    options = ReadOptions(TimestampForm.MICROSECONDS)
    fields = list(snapshot_schema(table.version, columns, row_ids=False, options=options))
    fields += [
        pa.field(k.name, arrow_type(parse_hive_type(k.type), timestamp_unit="us"))
        for k in table.partition_keys
    ]
    if row_ids:
        partition = [pa.field("partition", pa.string())] if table.partition_keys else []
        fields.insert(0, pa.field(ROW_ID_COLUMN, pa.struct([*row_id_type(table.version), *partition])))
    return pa.schema(fields)


def _typed(
    table: AcidTable, columns: Sequence[AcidColumn], batch: _Batch, schema: pa.Schema
) -> pa.RecordBatch:
    arrays = {c.name: batch.rows.column(c.name) for c in columns}
    texts = parse_partition_name(batch.partition_name)
    for key, text in zip(table.partition_keys, texts, strict=True):
        value = partition_value(text, parse_hive_type(key.type))
        arrays[key.name] = pa.repeat(pa.scalar(value, schema.field(key.name).type), batch.rows.num_rows)
    if ROW_ID_COLUMN in schema.names:
        parts = batch.rows.column(0).flatten()
        if table.partition_keys:
            parts.append(pa.repeat(pa.scalar(batch.partition_name, pa.string()), batch.rows.num_rows))
        fields = list(schema.field(ROW_ID_COLUMN).type)
        arrays[ROW_ID_COLUMN] = pa.StructArray.from_arrays(parts, fields=fields)
    return pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)


_FILE_WRITERS = {
    ".csv": _Writer(TimestampForm.TEXT, _save_csv),
    ".json": _Writer(TimestampForm.TEXT, _save_json),
    ".parquet": _Writer(TimestampForm.MICROSECONDS, _save_parquet),
    ".orc": _Writer(TimestampForm.MICROSECONDS, _save_orc),
}
