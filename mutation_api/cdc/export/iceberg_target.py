"""Targets in the format of Apache Iceberg, through the package ``pyiceberg`` and any catalog that it
supports.

A commit adds and removes data files by name in one snapshot, whose summary has the record. The snapshot
requires that the branch still points to the snapshot that was read (``assert-ref-snapshot-id``).
``pyiceberg`` would repeat a refused commit on top of a stranger's; the table's property
``commit.retry.num-retries`` is 0 to prevent this.

Files have identifiers of fields, and include the partition columns.

Source: Iceberg's table specification, format version 2; pyiceberg 0.11 and 0.12.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO, cast

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import LongType

from mutation_api.cdc.export.exported_types import FIELD_ID, ICEBERG, ROW_ID_FIELDS
from mutation_api.cdc.export.target import (
    ExportRecord,
    NewFile,
    Target,
    TargetChange,
    TargetFile,
    file_id,
    foreign_commit,
)
from mutation_api.cdc.export.units import Unit
from mutation_api.errors import ConfigurationError, LockLostError

_RETRIES = "commit.retry.num-retries"


class _IcebergTarget(Target):
    kind = ICEBERG

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        self.name = f"{ICEBERG}:{name}"
        catalog, *identifier = name.split(".")
        self._catalog_name, self._identifier = catalog, tuple(identifier)
        self._options = dict(options)
        self._catalog: Catalog | None = None
        self._table: Table | None = None

    @property
    def _loaded(self) -> Table:
        assert self._table is not None, "load() or create() comes first"
        return self._table

    def _connected(self) -> Catalog:
        if self._catalog is None:
            try:
                self._catalog = load_catalog(self._catalog_name, **self._options)
            except ValueError as error:
                raise ConfigurationError(
                    f"target {self.name}: catalog {self._catalog_name}: {error}. Describe it in "
                    ".pyiceberg.yaml, or pass its properties in options (--target-conf)"
                ) from error
        return self._catalog

    def load(self) -> ExportRecord | None:
        """See :class:`Target`."""
        try:
            self._table = self._connected().load_table(self._identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            self._table = None
            return None
        created = ExportRecord.from_properties(self._table.properties)
        if created is None:
            raise foreign_commit(self.name, "the table")
        if self._table.properties.get(_RETRIES) != "0":
            raise ConfigurationError(
                f"target {self.name}: its property {_RETRIES} must be 0, got "
                f"{self._table.properties.get(_RETRIES)}. Otherwise a refused commit would be repeated on "
                "top of another one. Set it again"
            )
        snapshot = self._table.current_snapshot()
        if snapshot is None:
            return created
        properties = {} if snapshot.summary is None else snapshot.summary.additional_properties
        record = ExportRecord.from_properties(properties)
        if record is None:
            raise foreign_commit(self.name, f"snapshot {snapshot.snapshot_id}")
        return record

    def create(self, schema: pa.Schema, partition_by: Sequence[str], record: ExportRecord) -> None:
        """See :class:`Target`."""
        catalog = self._connected()
        catalog.create_namespace_if_not_exists(self._identifier[:-1])
        properties = {**record.to_properties(), _RETRIES: "0"}
        with (
            catalog.create_table_transaction(self._identifier, schema, properties=properties) as creation,
            creation.update_spec() as update,
        ):
            for name in partition_by:
                update.add_identity(name)
        self.load()

    def schema(self) -> pa.Schema:
        """See :class:`Target`."""
        return schema_to_pyarrow(self._loaded.schema(), include_field_ids=False)

    def partition_columns(self) -> tuple[str, ...]:
        """See :class:`Target`."""
        table = self._loaded
        return tuple(table.schema().find_column_name(each.source_id) or "" for each in table.spec().fields)

    def files(self) -> list[TargetFile]:
        """See :class:`Target`."""
        found = []
        for task in self._loaded.scan().plan_files():
            file = task.file
            unit = Unit.of_path(file.file_path)
            if unit is None or task.delete_files:
                raise foreign_commit(self.name, f"file {file.file_path}")
            found.append(TargetFile(unit, file.record_count, file.file_size_in_bytes, file))
        return found

    def file_schema(self, schema: pa.Schema) -> pa.Schema:
        """See :class:`Target`. New columns get the identifiers that the commit will give them."""
        return schema_to_pyarrow(self._with_columns(schema))

    def _with_columns(self, schema: pa.Schema) -> Schema:
        known = self.schema().names
        new = [field for field in schema if field.name not in known]
        if not new:
            return self._loaded.schema()
        transaction = self._loaded.transaction()
        with transaction.update_schema() as update:
            update.union_by_name(pa.schema([*self.schema(), *new]))
        return transaction.table_metadata.schema()

    def new_path(self, unit: Unit) -> str:
        """See :class:`Target`."""
        return str(self._loaded.location_provider().new_data_location(unit.path(file_id())))

    @contextlib.contextmanager
    def create_file(self, path: str) -> Iterator[BinaryIO]:
        """See :class:`Target`."""
        with self._loaded.io.new_output(path).create() as stream:
            yield cast(BinaryIO, stream)

    @contextlib.contextmanager
    def open_file(self, file: TargetFile) -> Iterator[BinaryIO]:
        """See :class:`Target`."""
        with self._loaded.io.new_input(file.handle.file_path).open() as stream:
            yield cast(BinaryIO, stream)

    def commit(self, change: TargetChange) -> None:
        """See :class:`Target`."""
        transaction = self._loaded.transaction()
        if change.new_columns:
            with transaction.update_schema() as update:
                update.union_by_name(pa.schema([*self.schema(), *change.new_columns]))
        schema = transaction.table_metadata.schema()
        properties = change.record.to_properties()
        try:
            with transaction.update_snapshot(snapshot_properties=properties).overwrite() as snapshot:
                for removed in change.removed:
                    snapshot.delete_data_file(removed.handle)
                for added in change.added:
                    snapshot.append_data_file(self._data_file(added, schema))
            transaction.commit_transaction()
        except CommitFailedException as error:
            raise LockLostError(
                f"target {self.name}: another commit came first ({error}). Nothing of this run is visible "
                "in the target. Let only one export run at a time"
            ) from error

    def _data_file(self, file: NewFile, schema: Schema) -> DataFile:
        table = self._loaded
        spec = table.spec()
        values = [
            PartitionFieldValue(field, file.partition[name].as_py())
            for field, name in zip(spec.fields, self.partition_columns(), strict=True)
        ]
        partition = PartitionKey(values, spec, schema).partition if values else Record()
        plan, paths = compute_statistics_plan(schema, table.properties), parquet_path_to_id_mapping(schema)
        for field in ROW_ID_FIELDS:
            id = int(field.metadata[FIELD_ID])
            paths[field.name] = id
            plan[id] = StatisticsCollector(id, LongType(), MetricsMode(MetricModeTypes.NONE), field.name)
        statistics = data_file_statistics_from_parquet_metadata(file.metadata, plan, paths)
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=file.path,
            file_format=FileFormat.PARQUET,
            partition=partition,
            file_size_in_bytes=file.byte_count,
            sort_order_id=None,
            spec_id=spec.spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )

    def read(self) -> Iterator[pa.RecordBatch]:
        """See :class:`Target`."""
        yield from self._loaded.scan().to_arrow_batch_reader()


def open_target(name: str, options: Mapping[str, str]) -> Target:
    """Return the target ``catalog.namespace.table``."""
    return _IcebergTarget(name, options)
