"""ChangeAddresser: add the address of each change to the batches: partition, bucket, ROW__ID.

This module uses Arrow only. It runs in Spark's Python workers, before the shuffle.

Hive silently writes an update of a missing row as a new row, and ignores a delete of a missing row. On
request, engines therefore look up the rows before anything is written, and raise the error that is created
here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.errors import RowIdNotFoundError
from mutation_api.format.event import ADDED_OPERATION, Operation
from mutation_api.table.acid_table import AcidTable
from mutation_api.write.classify import ChangeClassifier

PARTITION = "__partition"
BUCKET = "__bucket"
TXN = "__txn"
BUCKET_PROPERTY = "__bucket_property"
ROW_NUMBER = "__row_number"
ADDRESS_COLUMNS = (PARTITION, BUCKET, ADDED_OPERATION, TXN, BUCKET_PROPERTY, ROW_NUMBER)
"""First columns of addressed changes. The data columns of the change set follow, in table order."""


@dataclass(frozen=True)
class ChangeFields:
    """The columns of a batch of changes.

    Their order is: the operation, the parts of ROW__ID, the partition columns, ``writers`` (if
    inserts have it), and the data columns, which are null for deletes.

    Attributes:
        row_id: the known parts among txn, bucket, row_id and partition: three, four or none.
        partition_columns: names in the table; either all of them or none.
        has_writers: True if inserts have a bucket id; see ChangeClassifier.
        columns: names in the table, in table order.
    """

    row_id: tuple[str, ...]
    partition_columns: tuple[str, ...]
    has_writers: bool
    columns: tuple[str, ...]

    @property
    def addressing(self) -> int:
        """Number of columns before the data columns."""
        return 1 + len(self.row_id) + len(self.partition_columns) + self.has_writers


@dataclass(frozen=True)
class ChangeAddresser:
    """Replaces the columns that determine the address of a change by the address.

    Args:
        classifier: finds and checks the address.
        fields: the columns of the batches.
    """

    classifier: ChangeClassifier
    fields: ChangeFields

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Address all batches of a task.

        Returns:
            The batches with ADDRESS_COLUMNS and the data columns.

        Raises:
            MutationError: See :meth:`ChangeClassifier.classify`.
        """
        return map(self.addressed, batches)

    def addressed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Address one batch; see :meth:`__call__`."""
        fields = self.fields
        operations, *rest = batch.columns[: fields.addressing]
        row_id, rest = rest[: len(fields.row_id)], rest[len(fields.row_id) :]
        partitions, writers = rest[: len(fields.partition_columns)], rest[len(fields.partition_columns) :]
        data = batch.columns[fields.addressing :]
        known = dict(zip((*fields.partition_columns, *fields.columns), (*partitions, *data), strict=True))
        table = self.classifier.table
        wanted = [c for c in (*table.partition_key_names, *table.bucket_columns) if c in known]
        addresses = self.classifier.classify(
            operations,
            _row_ids(row_id, fields.row_id) if fields.row_id else None,
            pa.StructArray.from_arrays([known[name] for name in wanted], names=wanted) if wanted else None,
            writers[0] if writers else None,
        )
        return pa.record_batch([*addresses.flatten(), *data], names=[*ADDRESS_COLUMNS, *fields.columns])


def numbers_of_partitions(batch: pa.RecordBatch, number: Callable[[str], int]) -> NDArray[np.int64]:
    """Return ``number`` of the partition name of n addressed changes, shape (n,); called once per name."""
    encoded = batch.column(PARTITION).dictionary_encode()
    used = _used_names(encoded)
    numbers = np.zeros(len(used), np.int64)
    numbers[used] = [number(name) for name in encoded.dictionary.filter(pa.array(used)).to_pylist()]
    result: NDArray[np.int64] = numbers[encoded.indices.to_numpy()]
    return result


def with_names_once(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return addressed changes that store the name of each partition only once."""
    encoded = batch.column(PARTITION).dictionary_encode()
    used = _used_names(encoded)
    if not used.all():
        indices = (np.cumsum(used, dtype=np.int32) - 1)[encoded.indices.to_numpy()]
        encoded = pa.DictionaryArray.from_arrays(indices, encoded.dictionary.filter(pa.array(used)))
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    return pa.record_batch({**columns, PARTITION: encoded})


def _used_names(encoded: pa.DictionaryArray) -> NDArray[np.bool_]:
    """Return True for each name of the dictionary that occurs in a change."""
    used: NDArray[np.bool_] = np.zeros(len(encoded.dictionary), np.bool_)
    used[encoded.indices.to_numpy()] = True
    return used


def _row_ids(parts: list[pa.Array], names: tuple[str, ...]) -> pa.StructArray:
    """Return the ROW__IDs; null if all parts are null."""
    absent = pc.is_null(parts[0])
    for part in parts[1:]:
        absent = pc.and_(absent, pc.is_null(part))
    return pa.StructArray.from_arrays(parts, names=list(names), mask=absent)


UNKNOWN_ROWS_SHOWN = 5


class UnknownRow(NamedTuple):
    """An update or delete of a missing row: escaped partition name ('' if none), ROW__ID, operation."""

    partition: str
    txn: int
    bucket_property: int
    row_number: int
    operation: int

    def __str__(self) -> str:
        """Return the string for a message."""
        what = Operation(self.operation).name.lower()
        where = f" in partition {self.partition}" if self.partition else ""
        return f"{what} of ({self.txn}, {self.bucket_property}, {self.row_number}){where}"


def unknown_rows_error(table: AcidTable, some: Sequence[UnknownRow]) -> RowIdNotFoundError:
    """Return an error that names the first few of these rows, with partition and bucket."""
    return RowIdNotFoundError(
        f"table {table.full_name}: the change set updates or deletes rows that the snapshot of "
        f"transaction {table.required_txn_id()} does not contain, among them: "
        f"{'; '.join(map(str, some[:UNKNOWN_ROWS_SHOWN]))}. "
        "They never existed or have since been deleted; read the table again in this transaction"
    )
