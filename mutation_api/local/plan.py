"""LocalPlan: a change set whose columns were matched with its table's, and what addresses its batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from metastore_client.valid_ids import ValidIdList
from mutation_api.acid.event import Operation
from mutation_api.change_set.address import ADDRESS_COLUMNS, OPERATION, ChangeAddresser, ChangeFields
from mutation_api.change_set.classify import ChangeClassifier
from mutation_api.change_set.default_columns import DefaultColumns
from mutation_api.change_set.layout import ChangeLayout, GivenColumn, match_columns
from mutation_api.orc.format.stored_values import hollow, nulled
from mutation_api.table.acid_table import AcidTable
from mutation_api.types.plain_array import plain_array
from mutation_api.worker.record_inspector import RecordInspector

__all__ = ["LocalPlan", "plan_changes"]


@dataclass(frozen=True)
class LocalPlan:
    """How batches of a change set become addressed changes. Threads may share it.

    Attributes:
        table: a bound descriptor.
        layout: the roles of the change set's columns.
        addresser: finds the addresses by the columns that they depend on.
        inspector: converts rows to the table's types.
        row_type: type of converted rows; None if the change set lacks columns, so that it can only delete.
        defaults: values of the columns that the change set lacks and that have a default.
    """

    table: AcidTable
    layout: ChangeLayout
    addresser: ChangeAddresser
    inspector: RecordInspector
    row_type: pa.StructType | None
    defaults: Mapping[str, pa.Scalar]

    def addressed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The addresses and rows of a batch: ADDRESS_COLUMNS, and the data columns with the table's types.

        Wrong addresses are found first, then values that do not fit. The values of deletes are ignored; they
        become null. Inserts into tables without buckets have bucket 0.

        Raises:
            RecordLayoutError, RecordValueError, BucketIdError, RowIdNotFoundError, TableNotMutableError: as
                :meth:`mutation_api.change_set.classify.ChangeClassifier.classify`, and a value does not fit.
        """
        count = batch.num_rows
        columns = {name: plain_array(batch.column(given)) for name, given in self.layout.columns.items()}
        columns |= {name: pa.repeat(value, count) for name, value in self.defaults.items()}
        operations = plain_array(batch.column(self.layout.operation)).cast(pa.string())
        given_deletes = _mask(pc.equal(pc.utf8_lower(operations), Operation.DELETE.name.lower()))
        fields = self.addresser.fields
        parts = [
            operations,
            *self._row_id_parts(batch),
            *(columns[name] for name in fields.partition_columns),
            *([pa.repeat(pa.scalar(0, pa.int32()), count)] if fields.has_writers else []),
            # A message shows these columns; what a delete has there was not read.
            *(_hidden(columns[name], given_deletes) for name in fields.columns),
        ]
        names = [str(number) for number in range(len(parts))]
        addressed = self.addresser.addressed(pa.RecordBatch.from_arrays(parts, names=names))
        address = addressed.columns[: len(ADDRESS_COLUMNS)]
        if self.row_type is None:
            return pa.record_batch(address, names=list(ADDRESS_COLUMNS))
        deletes = addressed.column(OPERATION).to_numpy() == Operation.DELETE
        rows = self._rows([columns[name] for name in self.table.column_names], deletes)
        return pa.record_batch([*address, *rows], names=[*ADDRESS_COLUMNS, *self.table.column_names])

    def _row_id_parts(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The parts of ROW__ID, in the order of ``row_id_fields``; all null if it is null."""
        if self.layout.row_id is None:
            return []
        row_ids = plain_array(batch.column(self.layout.row_id))
        return [plain_array(pc.struct_field(row_ids, name)) for name in self.layout.row_id_fields.values()]

    def _rows(self, columns: list[pa.Array], deletes: NDArray[np.bool_]) -> list[pa.Array]:
        assert self.row_type is not None
        if deletes.all():
            return [hollow(field.type, len(deletes)) for field in self.row_type]
        # Not flatten(): no row is null, and pyarrow may abort when it adds validity to unions.
        rows = self.inspector.rows(columns, deletes)
        return [rows.field(number) for number in range(rows.type.num_fields)]


def plan_changes(
    table: AcidTable, schema: pa.Schema, valid_ids: ValidIdList, operation_column: str
) -> LocalPlan:
    """Match the columns of a change set with the table's.

    Args:
        table: a bound descriptor.
        schema: columns as :func:`mutation_api.local.apply.apply_arrow` describes them.
        valid_ids: the snapshot from which ROW__IDs may come; see ChangeClassifier.
        operation_column: name of the operation column.

    Raises:
        RecordLayoutError: columns are missing, extra or doubled, or have types that cannot fit.
    """
    layout = match_columns(table, [GivenColumn.of_field(field) for field in schema], operation_column)
    missing = layout.missing(table)
    partition_columns = tuple(name for name in table.partition_key_names if name in layout.columns)
    defaults = DefaultColumns.of(table, layout.columns)
    classifier = ChangeClassifier(
        table,
        valid_ids,
        missing_columns=missing,
        defaulted_columns=layout.defaulted(table),
        unknown_defaults=tuple(defaults.unknown.values()),
        has_partition_columns=len(partition_columns) == len(table.partition_keys),
    )
    types = {name: schema.field(given).type for name, given in layout.columns.items()}
    types |= {name: value.type for name, value in defaults.values.items()}
    bucket_columns = [name.lower() for name in table.bucket_columns]
    fields = ChangeFields(
        tuple(layout.row_id_fields),
        partition_columns,
        has_writers=not table.is_bucketed,
        columns=tuple(c for c in table.column_names if c in bucket_columns and c in types),
    )
    inspector = RecordInspector(table)
    row_type = None
    if not missing and not defaults.unknown:
        row_type = inspector.rows([plain_array(pa.nulls(0, types[name])) for name in table.column_names]).type
    return LocalPlan(table, layout, ChangeAddresser(classifier, fields), inspector, row_type, defaults.values)


def _hidden(array: pa.Array, mask: NDArray[np.bool_]) -> pa.Array:
    if not mask.any():
        return array
    return hollow(array.type, len(array)) if mask.all() else nulled(array, mask)


def _mask(values: pa.BooleanArray) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    return mask
