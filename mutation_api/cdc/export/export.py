"""Export: keeps copies of Hive ACID tables in Delta Lake or Apache Iceberg in step with the tables.

A run reads the position in the target's last commit, opens a snapshot of the tables, writes the rows of the
units that have changed since (:mod:`.units`) to new files, and makes one commit in each target with these
files and the new position. A run that is killed leaves files that no commit mentions; the next run begins at
the position of the last commit.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from metastore_client.valid_ids import ValidIdList
from mutation_api.cdc.export.export_report import (
    CutoverReport,
    ExportedTable,
    ExportReport,
    VerifiedExport,
    VerifiedTable,
    compared,
)
from mutation_api.cdc.export.exported_types import DELTA, check_columns, exported_schema
from mutation_api.cdc.export.target import (
    ExportRecord,
    Target,
    TargetAddress,
    TargetChange,
    TargetFile,
    target_errors,
)
from mutation_api.cdc.export.unit_writer import UnitWriter, WrittenUnit
from mutation_api.cdc.export.units import Unit, UnitPlan, plan_units
from mutation_api.cdc.source_url import needs_extra
from mutation_api.errors import ConfigurationError, DirectoryStateError, SourcePositionError
from mutation_api.hive.connection import Hive
from mutation_api.orc.read.column_reader import ReadOptions, TimestampForm
from mutation_api.read.table_scan import TableScan
from mutation_api.read.table_view import TableView, open_table
from mutation_api.storage.tree import side_by_side
from mutation_api.transaction.catalog import normal_full_name, split_full_name
from mutation_api.transaction.clock import Clock, SystemClock
from mutation_api.transaction.feed_position import parsed_position, position_text, unseen_id
from mutation_api.transaction.listener import metastore_errors_as_ours
from mutation_api.transaction.past_snapshot import check_history
from mutation_api.transaction.snapshot import Snapshot
from mutation_api.write.local_plan import LocalOptions

MOVED_TO = "hive.export.moved.to"
"""The table property in which a cutover stores the address of the target."""

_BATCH_ROWS = 1 << 16


class Export:
    """The export of tables to Delta Lake or Apache Iceberg::

        with connect() as hive:
            export = Export(hive, "sales.orders", to="delta:s3://lake/orders")
            print(export.run())

    The first run copies the tables; later runs copy what changed. The target's own commit contains the
    position, so a run that is killed at any point and repeated loses and repeats nothing. Only one export may
    write to a target; a commit by anyone else is refused.

    Needs ``hive-mutation-api[delta]`` or ``hive-mutation-api[iceberg]``.
    """

    def __init__(
        self,
        hive: Hive,
        *tables: str,
        to: str,
        options: Mapping[str, str] | None = None,
        tables_together: bool = False,
        unsupported_as_text: bool = False,
        truncate_nanoseconds: bool = False,
        local: LocalOptions | None = None,
    ) -> None:
        """Define the export; nothing is read yet.

        Args:
            hive: the connection.
            tables: ``database.table``, at least one.
            to: the target: ``delta:URL`` or ``iceberg:CATALOG.NAMESPACE.TABLE``. For several tables it
                contains ``{table}``, and perhaps ``{database}``.
            options: storage options of ``deltalake``, or properties of ``pyiceberg``'s catalog.
            tables_together: True to read all tables in one snapshot, so that their targets are at one
                position after each run.
            unsupported_as_text: True to export columns whose type the target lacks as JSON strings.
            truncate_nanoseconds: True to cut timestamps to microseconds. Otherwise a value with more digits
                is an error.
            local: memory and threads. If None, the defaults.

        Raises:
            ConfigurationError: If an argument is invalid, or the package for the format is not installed.
        """
        if not tables:
            raise ConfigurationError("an export needs the name of at least one table")
        self._hive = hive
        self._names = tuple(dict.fromkeys(map(normal_full_name, tables)))
        self._address = TargetAddress.parse(to)
        addresses = {name: self._address.of_table(name) for name in self._names}
        if len({*addresses.values()}) < len(addresses):
            raise ConfigurationError(
                f"target {to}: {len(self._names)} tables need one target each: use {{table}}, and perhaps "
                "{database}, in the address"
            )
        self._targets = {name: _target_at(each, options or {}) for name, each in addresses.items()}
        self._is_together = tables_together
        self._as_text = unsupported_as_text
        self._options = ReadOptions(TimestampForm.MICROSECONDS, truncate_nanoseconds, _BATCH_ROWS)
        self._local = local or LocalOptions()

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets, in the order of the tables."""
        return tuple(self._targets.values())

    def run(self) -> ExportReport:
        """Bring the targets to the current state of the tables.

        Returns:
            The changes in each target.

        Raises:
            ConfigurationError: If a target is not one of this export: another program has committed to it,
                columns were renamed or changed, or the table was moved by a cutover.
            SourcePositionError: If the table was dropped and created again, or restored.
            RecordLayoutError: If the target has no type for a column.
            RecordValueError: If a timestamp has digits below microseconds.
            LockLostError: If another commit came first.
            ConnectionFailedError: If the target's storage or catalog failed.
            Other errors: See ``Hive.snapshot``.
        """
        groups = [self._names] if self._is_together else [(name,) for name in self._names]
        found: list[ExportedTable] = []
        for names in groups:
            self._check_not_moved(names)
            with target_errors(self._address), self._snapshot(names) as snapshot:
                found += self._bring(snapshot, names)
        return ExportReport(tuple(found))

    def follow(self, seconds: float, *, clock: Clock | None = None) -> Iterator[ExportReport]:
        """Run again and again, and yield the report of each run. It does not end by itself.

        Args:
            seconds: the pause between two runs.
            clock: measures the pause. If None, the system's.

        Raises:
            ConfigurationError: If the pause is not above 0.
            Other errors: See :meth:`run`.
        """
        if seconds <= 0:
            raise ConfigurationError(f"seconds={seconds!r}: it must be above 0")
        waiting = clock or SystemClock()
        while True:
            yield self.run()
            waiting.sleep(seconds)

    def verify(self) -> VerifiedExport:
        """Compare the targets with the tables as they were at the targets' positions.

        Both sides are read completely. The number and the hash of rows are compared for each partition.

        Raises:
            ConfigurationError: If a target does not exist, or is not one of this export.
            DirectoryStateError: If a compaction has removed the past state of a table. Run the export, and
                verify again.
            Other errors: See :meth:`run`.
        """
        with target_errors(self._address), self._snapshot(self._names) as snapshot:
            return VerifiedExport(tuple(self._verified(snapshot, name) for name in self._names))

    def cutover(self) -> CutoverReport:
        """Bring the targets up to date for the last time, compare them, and mark the tables as moved.

        An exclusive lock keeps everyone else from the tables meanwhile. The mark is the table property
        ``hive.export.moved.to``, which has the address of the target. An export of a marked table is refused.
        Hive itself does not read the mark: switch readers and writers before the lock ends, or take away
        their rights.

        Raises:
            DirectoryStateError: If a target differs from its table. No table is marked.
            Other errors: See :meth:`run`.
        """
        self._check_not_moved(self._names)
        with target_errors(self._address), self._snapshot(self._names, is_exclusive=True) as snapshot:
            exported = ExportReport(tuple(self._bring(snapshot, self._names)))
            verified = VerifiedExport(tuple(self._verified(snapshot, name) for name in self._names))
            if not verified.is_equal:
                raise DirectoryStateError(f"the cutover stopped, and no table was marked:\n{verified}")
            snapshot.check()
            for name in self._names:
                database, table = split_full_name(name)
                with metastore_errors_as_ours(f"table {name} could not be marked"):
                    change: Mapping[str, str | None] = {MOVED_TO: self._targets[name].name}
                    self._hive.metastore.set_table_parameters(database, table, change)
        return CutoverReport(exported, verified, MOVED_TO)

    @contextlib.contextmanager
    def _snapshot(self, names: Sequence[str], *, is_exclusive: bool = False) -> Iterator[Snapshot]:
        with self._hive.builder().build() as client:
            opened = client.open_exclusively(*names) if is_exclusive else client.open_snapshot(*names)
            with opened as snapshot:
                yield snapshot

    def _check_not_moved(self, names: Sequence[str]) -> None:
        for name in names:
            with metastore_errors_as_ours(f"could not look up table {name}"):
                parameters = self._hive.metastore.get_table(*split_full_name(name)).parameters
            if moved_to := parameters.get(MOVED_TO):
                raise ConfigurationError(
                    f"table {name} was moved to {moved_to} by a cutover, so it is not exported any more. "
                    f"To go on with it: ALTER TABLE {name} UNSET TBLPROPERTIES ('{MOVED_TO}')"
                )

    # ---- a run

    def _bring(self, snapshot: Snapshot, names: Sequence[str]) -> list[ExportedTable]:
        position = position_text({name: snapshot.valid_ids(name) for name in names})
        works = [self._work(snapshot, name) for name in names]
        written = [self._written(work) for work in works]
        snapshot.check()
        is_due = any(work.is_due(files, position) for work, files in zip(works, written, strict=True))
        return [
            work.finished(files, position, is_due=is_due) for work, files in zip(works, written, strict=True)
        ]

    def _work(self, snapshot: Snapshot, name: str) -> _Work:
        """Return what must be done for a table; create its target if it does not exist."""
        view, target = open_table(snapshot, name), self._targets[name]
        schema = exported_schema(view.table, target.kind, as_text=self._as_text)
        created = self._created(name)
        record = target.load()
        if record is None:
            record = ExportRecord(name, created, "", 0)
            target.create(schema, view.table.partition_key_names, record)
        before = _ids_of(record, name, created, view, target)
        new_columns = check_columns(target.name, target.schema(), schema, name)
        if target.partition_columns() != view.table.partition_key_names:
            raise ConfigurationError(
                f"target {target.name}: its partition columns are {', '.join(target.partition_columns())}, "
                f"those of table {name} are {', '.join(view.table.partition_key_names)}. Export to a new "
                "target"
            )
        files = target.files()
        existing = Counter(file.unit for file in files)
        plans = plan_units(view.plan(), before, view.valid_ids, view.table.version, existing)
        return _Work(view, target, record, before, schema, new_columns, files, plans)

    def _created(self, name: str) -> int:
        with metastore_errors_as_ours(f"could not look up table {name}"):
            return self._hive.metastore.get_table(*split_full_name(name)).created_seconds

    def _written(self, work: _Work) -> list[WrittenUnit]:
        by_unit: dict[Unit, list[TargetFile]] = defaultdict(list)
        for file in work.files:
            by_unit[file.unit].append(file)
        writer = UnitWriter.of(work.target, by_unit, work.view, work.before, work.schema, self._options)
        return side_by_side(writer.write, work.plans, self._local.thread_count)

    # ---- a comparison

    def _verified(self, snapshot: Snapshot, name: str) -> VerifiedTable:
        target = self._targets[name]
        record = target.load()
        if record is None or not record.position:
            raise ConfigurationError(
                f"target {target.name} does not have a copy of table {name} yet: export it"
            )
        view = open_table(snapshot, name)
        before = _ids_of(record, name, self._created(name), view, target)
        assert before is not None
        try:
            check_history(snapshot, {name: before})
        except DirectoryStateError as error:
            raise DirectoryStateError(
                f"the target cannot be compared with the table at its position: {error}. Run the export, "
                "then verify again"
            ) from error
        schema = exported_schema(view.table, target.kind, as_text=self._as_text)
        names = target.schema().names
        schema = pa.schema([field for field in schema if field.name in names])
        scan = TableScan(
            dataclasses.replace(view, valid_ids=before),
            columns=schema.names,
            truncate_nanoseconds=self._options.truncate_nanoseconds,
            threads=self._local.thread_count,
        )
        return compared(scan, target, schema, position_text({name: before}))


def _target_at(address: TargetAddress, options: Mapping[str, str]) -> Target:
    """Return a target. Nothing is connected yet.

    Raises:
        ConfigurationError: If the package for the format is not installed.
    """
    with needs_extra(f"target {address} requires", address.kind):
        if address.kind == DELTA:
            from mutation_api.cdc.export.delta_target import open_target  # deltalake is an optional package
        else:
            from mutation_api.cdc.export.iceberg_target import open_target  # and so is pyiceberg
    return open_target(address.name, options)


def _ids_of(
    record: ExportRecord, name: str, created: int, view: TableView, target: Target
) -> ValidIdList | None:
    """Return the ids that a target has seen of a table. None before the first copy.

    Raises:
        ConfigurationError: If the target is that of another table.
        SourcePositionError: If the target is that of an earlier table of this name.
    """
    if record.table != name:
        raise ConfigurationError(f"target {target.name} is the export of table {record.table}, not of {name}")
    if record.created != created:
        raise SourcePositionError(
            f"table {name} was dropped and created again: the one in target {target.name} was created at "
            f"{record.created}, this one at {created} (seconds since 1970). Export it to a new target"
        )
    if not record.position:
        return None
    before = parsed_position(record.position, name, view.valid_ids)
    if before is None:
        raise SourcePositionError(
            f"target {target.name}: not a position of table {name}: {record.position[:200]}"
        )
    unseen = unseen_id(before, view.valid_ids)
    if unseen is not None:
        raise SourcePositionError(
            f"target {target.name} is ahead of table {name}: it has seen id {unseen}, the table has not. "
            "Was the table restored from a copy? Export it to a new target"
        )
    return before


@dataclass(frozen=True)
class _Work:
    """The work of a run on one table.

    Attributes:
        view: the table in the snapshot.
        target: its target, which has been loaded.
        record: the record of the target's last commit.
        before: the ids that the target has seen. None before the first copy.
        schema: the columns that the target will have.
        new_columns: those of them that it lacks.
        files: its files.
        plans: the units that change.
    """

    view: TableView
    target: Target
    record: ExportRecord
    before: ValidIdList | None
    schema: pa.Schema
    new_columns: Sequence[pa.Field]
    files: Sequence[TargetFile]
    plans: Sequence[UnitPlan]

    def is_due(self, written: Sequence[WrittenUnit], position: str) -> bool:
        """Return True if the target needs a commit."""
        if self.before is None or self.new_columns or any(each.added or each.removed for each in written):
            return True
        # Ids of Hive 2 are those of all tables, so a position without changes would be committed every time.
        return self.view.table.version.uses_write_ids and self.record.position != position

    def finished(self, written: Sequence[WrittenUnit], position: str, *, is_due: bool) -> ExportedTable:
        """Commit the files, and return the report."""
        name = self.view.table.full_name
        if not is_due:
            return ExportedTable(
                name, self.target.name, self.record.position, is_first_copy=False, is_changed=False
            )
        added = [file for unit in written for file in unit.added]
        removed = [file for unit in written for file in unit.removed]
        record = dataclasses.replace(self.record, position=position, sequence=self.record.sequence + 1)
        self.target.commit(TargetChange(added, removed, self.new_columns, record))
        counts = Counter((bool(unit.added), bool(unit.removed)) for unit in written)
        return ExportedTable(
            name,
            self.target.name,
            position,
            is_first_copy=self.before is None,
            is_changed=True,
            units_replaced=counts[True, True],
            units_appended=counts[True, False],
            units_removed=counts[False, True],
            row_count=sum(file.row_count for file in added),
            files_added=len(added),
            files_removed=len(removed),
            byte_count=sum(file.byte_count for file in added),
            added_columns=tuple(field.name for field in self.new_columns),
            copied_again=tuple(sorted({plan.partition_name or "" for plan in self.plans if plan.is_gap})),
        )
