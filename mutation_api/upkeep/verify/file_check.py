"""Examines one file: reads every value, stripe by stripe, and compares it with the file's own records."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from mutation_api.errors import CorruptFileError, MutationError, RecordValueError, TableNotMutableError
from mutation_api.format.event import EVENT_FIELDS, ROW, Operation, RecordIdentifier, event_schema
from mutation_api.format.merge_events import EventKeys
from mutation_api.orc.format.checked_file import faults_of
from mutation_api.orc.format.tail import OrcTail, read_tail
from mutation_api.orc.read.column_reader import ReadOptions, TimestampForm
from mutation_api.orc.read.event_file import EventFile, EventFileKind
from mutation_api.orc.read.event_reader import event_fields
from mutation_api.orc.read.file_columns import FileColumns, Wanted, names_in_file
from mutation_api.orc.read.orc_input import OrcInput
from mutation_api.orc.read.stripe_decoder import NULL_KEY
from mutation_api.orc.read.type_changes import NOT_UTF8
from mutation_api.storage.connect import storage_at
from mutation_api.storage.protocol import is_fault_of_machine
from mutation_api.table.acid_table import AcidTable
from mutation_api.upkeep.verify.bucket_check import HashCheck
from mutation_api.upkeep.verify.event_rules import (
    Broken,
    FileCounts,
    FooterFault,
    broken_rules,
    codec_faults,
    footer_faults,
    layout_faults,
)
from mutation_api.upkeep.verify.finding import Finding
from mutation_api.upkeep.verify.statistics_check import StatisticsCheck, misspelled

_KEY_FIELDS = EVENT_FIELDS[:-1]
_OPTIONS = ReadOptions(TimestampForm.MICROSECONDS, truncate_nanoseconds=True)


def check_file(
    table: AcidTable, partition: str, file: EventFile, hashes: HashCheck | None, *, any_bucket: bool
) -> list[Finding]:
    """Return the findings about one file, considered alone.

    This holds one stripe in memory.

    Args:
        table: its layout, columns and number of buckets.
        partition: escaped name, for the findings.
        file: the file.
        hashes: compares rows with their bucket. If None, they are not compared.
        any_bucket: True if events of other buckets than the file's are allowed.

    Raises:
        ReadError, OSError: If this machine cannot read the file, which may be sound.
    """
    try:
        with faults_of(file.location):
            return list(_Examination(table, partition, file, hashes, any_bucket=any_bucket).findings())
    except (MutationError, OSError) as error:
        if is_fault_of_machine(error):
            raise
        return [Finding("unreadable", partition, file.location, _short(error, file), "a readable ORC file")]


def _short(error: Exception, file: EventFile) -> str:
    """Return the error's text without the file's name, which the finding already has."""
    return str(error).replace(f"{file.location} is ", "").replace(str(file.location), "the file")


class _Examination:
    """The examination of one file."""

    def __init__(
        self,
        table: AcidTable,
        partition: str,
        file: EventFile,
        hashes: HashCheck | None,
        *,
        any_bucket: bool,
    ) -> None:
        self._table = table
        self._partition = partition
        self._file = file
        self._hashes = hashes
        self._any_bucket = any_bucket
        self._storage = storage_at(file.location)
        self._first_of: dict[str, Finding] = {}
        self._counts: Counter[str] = Counter()
        self._operations = np.zeros(len(Operation), np.int64)
        self._last_keys: list[RecordIdentifier] = []
        self._previous: EventKeys | None = None

    def findings(self) -> Iterator[Finding]:
        """Yield one finding for each violated rule, with the number of rows."""
        self._examine()
        for rule_name, finding in self._first_of.items():
            yield dataclasses.replace(finding, count=self._counts[rule_name])

    def _examine(self) -> None:
        file, version = self._file, self._table.version
        if not file.byte_count or file.length == 0:
            if file.kind is not EventFileKind.ORIGINAL:
                self._add("empty-file", "no bytes", "an ORC file, which is never empty")
            return
        tail = read_tail(self._storage, file.location) if file.length is None else None
        if tail is not None:
            self._add_faults(layout_faults(tail, file.byte_count))
            self._add_faults(codec_faults(tail, version))
        options = dataclasses.replace(
            _OPTIONS,
            is_proleptic=version.counts_days_proleptic,
            release=version.hive_release,
        )
        source = OrcInput(self._storage, file.location, file.length, options)
        if source.stripe_count == 0:
            return
        options = dataclasses.replace(options, is_proleptic=source.is_proleptic)
        if file.kind is EventFileKind.ORIGINAL:
            self._read_plain(source, options, tail)
        else:
            self._read_events(source, options, tail)

    # -- events ----------------------------------------------------------------------------------------------
    def _read_events(self, source: OrcInput, options: ReadOptions, tail: OrcTail | None) -> None:
        version = self._table.version
        try:
            stored = event_fields(source, version)
        except CorruptFileError as error:
            self._add("event-fields", _short(error, self._file), "the fields of an ACID event")
            return
        columns = self._columns(source, options, source.schema.field(stored[ROW]).type, stored[ROW])
        canonical = {name: field for field, name in stored.items()}
        statistics = StatisticsCheck.of(self._storage, self._file, source, tail)
        position, is_whole = 0, True
        for index in range(source.stripe_count):
            batch = self._stripe(source, index, [*source.schema.names], position)
            if batch is None:
                return
            self._compare_rows(source, index, batch, position)
            self._add_statistics(statistics, index, batch, position)
            keys = self._keys(batch.rename_columns([canonical[n] for n in batch.schema.names]), position)
            if keys is None:
                is_whole = False
            elif len(keys):
                self._check_events(keys, batch.column(stored[ROW]), position)
                self._check_values(columns, batch, keys, position)
            position += batch.num_rows
        self._add_statistics_of_file(statistics)
        if tail is not None and is_whole:
            counts = FileCounts([int(n) for n in self._operations], self._last_keys)
            self._add_faults(footer_faults(tail, counts, self._file, version))

    def _stripe(self, source: OrcInput, index: int, names: list[str], position: int) -> pa.RecordBatch | None:
        try:
            return source.read_stripe(index, names)
        except (MutationError, OSError) as error:
            if is_fault_of_machine(error):
                raise
            found = f"stripe {index}: {_short(error, self._file)}"
            rule_name = "not-read-here" if NULL_KEY in found else "unreadable"
            self._add(rule_name, found, "values that can be decoded", position)
            return None

    def _compare_rows(self, source: OrcInput, index: int, batch: pa.RecordBatch, position: int) -> None:
        expected = source.stripe_rows(index)
        if batch.num_rows != expected:
            found = f"{batch.num_rows} rows in stripe {index}"
            self._add("row-count", found, f"{expected} rows in the footer", position)

    def _keys(self, batch: pa.RecordBatch, position: int) -> EventKeys | None:
        """Return the events of a stripe; None if a field has nulls."""
        for name in _KEY_FIELDS:
            nulls = batch.column(name).is_null().to_numpy(zero_copy_only=False)
            if nulls.any():
                first, count = int(nulls.argmax()), int(nulls.sum())
                self._add("event-null", f"NULL in {name}", "a number", position + first, count=count)
                return None
        arrays = [batch.column(name).to_numpy() for name in _KEY_FIELDS]
        operation, original, bucket, row_id, current = arrays
        codes = np.clip(operation, -1, len(Operation)).astype(np.int8)
        precedence = np.zeros(len(codes), np.int32)
        return EventKeys(original, bucket, row_id, current, codes, precedence)

    def _check_events(self, keys: EventKeys, rows: pa.StructArray, position: int) -> None:
        has_row = rows.is_valid().to_numpy(zero_copy_only=False) if rows.null_count else None
        known = (keys.operation >= 0) & (keys.operation < len(Operation))
        self._operations += np.bincount(keys.operation[known], minlength=len(Operation))
        self._last_keys.append(keys.key(len(keys) - 1))
        table = self._table
        for broken in broken_rules(
            keys,
            self._previous,
            has_row,
            self._file,
            table.version,
            bucket_limit=_bucket_limit(table),
            any_bucket=self._any_bucket and self._file.kind is EventFileKind.DELETE_DELTA,
        ):
            self._add_broken(broken, keys, position)
        self._previous = keys.slice(len(keys) - 1, len(keys))

    # -- rows ------------------------------------------------------------------------------------------------
    def _columns(
        self, source: OrcInput, options: ReadOptions, row_type: pa.DataType, struct: str | None
    ) -> FileColumns:
        table = self._table
        by_position = table.matches_columns_by_position
        wanted = Wanted.of(table, table.columns, options)
        names = [field.name for field in row_type]
        in_file = names_in_file(names, wanted)
        for found, expected in misspelled(names, table.column_names, by_position=by_position):
            self._add("column-names", found, expected)
        return FileColumns(source, self._file, wanted, in_file, struct)

    def _check_values(
        self, columns: FileColumns, batch: pa.RecordBatch, keys: EventKeys | None, position: int
    ) -> None:
        if self._file.kind is EventFileKind.DELETE_DELTA:
            return
        try:
            values = columns.read(self._table.columns, batch)
            columns.check_texts(values)
        except (CorruptFileError, RecordValueError, TableNotMutableError) as error:
            found = _short(error, self._file)
            rule_name = "not-read-here" if NOT_UTF8 in found else "column-type"
            self._add(rule_name, found, "values of the table's types", position)
            return
        if self._hashes is None or keys is None:
            return
        broken = self._hashes.misplaced(values, keys.operation != Operation.DELETE, self._file.bucket_id)
        if broken is not None:
            self._add_broken(broken, keys, position)

    def _read_plain(self, source: OrcInput, options: ReadOptions, tail: OrcTail | None) -> None:
        names = source.schema.names
        if [n.lower() for n in names] == [n.lower() for n in event_schema(pa.struct([])).names]:
            self._add("plain-file", "an ACID file among files of plain rows", "plain rows")
            return
        columns = self._columns(source, options, pa.struct(list(source.schema)), None)
        statistics = StatisticsCheck.of(self._storage, self._file, source, tail)
        position = 0
        for index in range(source.stripe_count):
            batch = self._stripe(source, index, names, position)
            if batch is None:
                return
            self._compare_rows(source, index, batch, position)
            self._add_statistics(statistics, index, batch, position)
            self._check_values(columns, batch, None, position)
            position += batch.num_rows
        self._add_statistics_of_file(statistics)

    # -- findings --------------------------------------------------------------------------------------------
    def _add_statistics(
        self, statistics: StatisticsCheck | None, index: int, batch: pa.RecordBatch, position: int
    ) -> None:
        if statistics is not None:
            for each in statistics.differences(index, batch):
                self._add(each.rule_name, each.found, each.expected, position + each.row)

    def _add_statistics_of_file(self, statistics: StatisticsCheck | None) -> None:
        if statistics is not None:
            for found, expected in statistics.differences_of_file():
                self._add("orc-statistics", found, f"{expected}, as recorded")

    def _add_broken(self, broken: Broken, keys: EventKeys, position: int) -> None:
        key = keys.key(broken.first)
        self._add(
            broken.rule_name,
            broken.found,
            broken.expected,
            position + broken.first,
            (key.original_txn, key.bucket, key.row_id),
            count=broken.count,
        )

    def _add_faults(self, faults: Iterator[FooterFault]) -> None:
        for fault in faults:
            self._add(fault.rule_name, fault.found, fault.expected)

    def _add(
        self,
        rule_name: str,
        found: str,
        expected: str,
        row: int | None = None,
        row_id: tuple[int, int, int] | None = None,
        *,
        count: int = 1,
    ) -> None:
        """Keep the first finding of each rule, and count the others."""
        self._counts[rule_name] += count
        self._first_of.setdefault(
            rule_name,
            Finding(rule_name, self._partition, self._file.location, found, expected, row, row_id),
        )


def _bucket_limit(table: AcidTable) -> int:
    """Return the upper limit for bucket ids; without a metastore ``num_buckets`` is the caller's."""
    if table.was_altered:
        return table.bucket_limit
    return table.num_buckets if table.num_buckets > 0 else 2**31
