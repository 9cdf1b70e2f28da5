"""The ACID event: its ORC columns, operation codes, ROW__IDs, and entries in a file's footer. Pure.

Names, case and order of the columns are fixed, because readers rely on them. A :class:`RecordIdentifier` is
the ROW__ID of a row, and defines their order. :class:`RowIds` are the given ROW__IDs of n changes, which are
complete, partial or missing.

A ROW__ID's bucket field contains the bucket property in v2. Bits, from the top: 3 version (1), 1 zero, 12
bucket id, 4 zero, 12 statement id. A value with version bits 0 is a plain bucket id, from a table that Hive 2
wrote.

Source: Hive's OrcRecordUpdater (ACID_KEY_INDEX_NAME, OrcAcidUtils.ACID_STATS), AcidUtils.OrcAcidVersion, and
BucketCodec (V0, V1).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

OPERATION = "operation"
"""The field of files, and the default name of a column with operations in a change set."""

ADDED_OPERATION = "__operation"
"""The column with operations that the library adds to rows; columns of tables cannot have this name."""

ORIGINAL_TRANSACTION = "originalTransaction"
BUCKET = "bucket"
ROW_ID = "rowId"
CURRENT_TRANSACTION = "currentTransaction"
ROW = "row"
EVENT_FIELDS = (OPERATION, ORIGINAL_TRANSACTION, BUCKET, ROW_ID, CURRENT_TRANSACTION, ROW)


class Operation(enum.IntEnum):
    """The operation code of an event. UPDATE occurs only in v1 legacy files."""

    INSERT = 0
    UPDATE = 1
    DELETE = 2


INSERT, UPDATE, DELETE = (each.name.lower() for each in Operation)
"""The operations as words in change sets and logs of operations."""


def event_schema(row_type: pa.StructType) -> pa.Schema:
    """Return the Arrow schema of an ACID file.

    Args:
        row_type: the fields of ``row``: the data columns, in lower case and table order.
    """
    return pa.schema(
        [
            (OPERATION, pa.int32()),
            (ORIGINAL_TRANSACTION, pa.int64()),
            (BUCKET, pa.int32()),
            (ROW_ID, pa.int64()),
            (CURRENT_TRANSACTION, pa.int64()),
            (ROW, row_type),
        ]
    )


KEY_INDEX = "hive.acid.key.index"
"""The key index: ``originalTransaction,bucket,rowId;`` of the last row of each stripe."""

ACID_STATS = "hive.acid.stats"
"""The event counts of the file: ``inserts,updates,deletes``."""

ACID_VERSION = "hive.acid.version"
"""The ACID version. It is written into files with write ids, as Hive does, whose readers also accepted files
without it."""


ROW_ID_COLUMN = "ROW__ID"
"""The name of the ROW__ID column in snapshots and change sets."""

PARTITION_FIELD = "partition"
"""The fourth field of ROW__ID in partitioned tables: the (escaped) name of the row's partition."""


class RecordIdentifier(NamedTuple):
    """The ROW__ID of a row. Tuples compare in the order that ACID files must have.

    ``bucket`` is the plain bucket id in v1 and the bucket property in v2 (see bucket_codec). In v1, an
    identifier is unique only within one partition. ``original_txn`` is a write id in v2.
    """

    original_txn: int
    bucket: int
    row_id: int


@dataclass(frozen=True)
class RowIdArrays:
    """The ROW__IDs of n records: three integer arrays of shape (n,). Values of inserts are meaningless."""

    original_txns: NDArray[np.integer]
    buckets: NDArray[np.integer]
    row_ids: NDArray[np.integer]

    def __len__(self) -> int:
        return len(self.row_ids)

    def take(self, where: NDArray[np.bool_ | np.integer] | slice) -> RowIdArrays:
        """Return the ROW__IDs of some records, selected by a slice, by indices or by a mask."""
        return RowIdArrays(self.original_txns[where], self.buckets[where], self.row_ids[where])

    def at(self, index: int) -> RecordIdentifier:
        """Return the ROW__ID of one record."""
        return RecordIdentifier(
            int(self.original_txns[index]), int(self.buckets[index]), int(self.row_ids[index])
        )

    def ascend(self) -> NDArray[np.bool_]:
        """Return a mask that is true where a ROW__ID exceeds its predecessor, without the first ROW__ID.

        The order is that of RecordIdentifier. The mask has shape (n - 1,).
        """
        txns, buckets, numbers = self.original_txns, self.buckets, self.row_ids
        later = (buckets[1:] > buckets[:-1]) | ((buckets[1:] == buckets[:-1]) & (numbers[1:] > numbers[:-1]))
        ascends: NDArray[np.bool_] = (txns[1:] > txns[:-1]) | ((txns[1:] == txns[:-1]) & later)
        return ascends


MAX_BUCKETS = 4096
"""Bucket ids are below this limit.

Larger ones do not fit Hive 3's field, and Hive 4 encodes them differently.
"""

MAX_STATEMENT_ID = 4095
"""The highest statement id. The properties of one bucket are therefore consecutive."""

_VERSION_SHIFT = 29
_BUCKET_SHIFT = 16
_MASK_12 = 0xFFF
_UNUSED_BITS = 0x1000F000


def bucket_property(bucket_id: int, statement_id: int = 0) -> int:
    """Return the bucket property of rows that a statement inserts into a bucket.

    For example, it is 536870912 for bucket 0 and statement 0.

    Raises:
        ValueError: If one of them has more than 12 bits.
    """
    if not (0 <= bucket_id < MAX_BUCKETS and 0 <= statement_id <= _MASK_12):
        raise ValueError(f"bucket {bucket_id} and statement {statement_id} must be within 0..{_MASK_12}")
    return 1 << _VERSION_SHIFT | bucket_id << _BUCKET_SHIFT | statement_id


def bucket_ids(properties: NDArray[np.integer]) -> NDArray[np.int32]:
    """Return the bucket ids in bucket properties (shape (n,), int32). Plain ids (version 0) stay as they are.

    The result is meaningless for values that :func:`unreadable_properties` finds.
    """
    values = properties.astype(np.int64)
    decoded = np.where(values >> _VERSION_SHIFT == 1, values >> _BUCKET_SHIFT & _MASK_12, values)
    return decoded.astype(np.int32)


def statement_ids(properties: NDArray[np.integer]) -> NDArray[np.int32]:
    """Return the statement ids in bucket properties (shape (n,), int32), 0 for plain ids."""
    values = properties.astype(np.int64)
    return np.where(values >> _VERSION_SHIFT == 1, values & _MASK_12, 0).astype(np.int32)


def ranks_in_bucket(properties: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the rank of each property among those of its bucket (shape (n,), int64).

    The plain id has rank 0, and statement n has rank n + 1. The ranks are small numbers in the order of the
    properties. The result is meaningless for values that :func:`unreadable_properties` finds.
    """
    values = properties.astype(np.int64)
    ranks: NDArray[np.int64] = np.where(values >> _VERSION_SHIFT == 1, 1 + (values & _MASK_12), 0)
    return ranks


def unreadable_properties(properties: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return a mask of the values that Hive cannot have written as bucket properties (shape (n,))."""
    values = properties.astype(np.int64)
    version = values >> _VERSION_SHIFT
    is_plain = (version == 0) & (values < MAX_BUCKETS)
    is_encoded = (version == 1) & (values & _UNUSED_BITS == 0)
    unreadable: NDArray[np.bool_] = ~(is_plain | is_encoded)
    return unreadable


Mask = NDArray[np.bool_]
"""A mask that selects some of n changes; shape (n,)."""

_MISSING = -1


@dataclass(frozen=True)
class RowIds:
    """ROW__IDs of n changes. Parts may be missing.

    Attributes:
        numbers: original transaction (in v2 write id), bucket field and row id; -1 where missing.
        present: masks of the present values of the three parts, in the same order.
        partitions: names of the partitions in the ROW__IDs, null where unknown. None if all are unknown.
    """

    numbers: RowIdArrays
    present: tuple[Mask, Mask, Mask]
    partitions: pa.StringArray | None = None

    @classmethod
    def none(cls, count: int) -> RowIds:
        """Return ROW__IDs that are all missing."""
        missing, absent = np.full(count, _MISSING, np.int64), np.zeros(count, np.bool_)
        return cls(RowIdArrays(missing, missing, missing), (absent, absent, absent))

    @classmethod
    def complete(cls, numbers: RowIdArrays) -> RowIds:
        """Return ROW__IDs that are all complete, with unknown partitions."""
        there = np.ones(len(numbers), np.bool_)
        return cls(numbers, (there, there, there))

    @classmethod
    def of_columns(cls, parts: Iterable[pa.Array], partitions: pa.Array | None = None) -> RowIds:
        """Return ROW__IDs from columns.

        Args:
            parts: original transaction, bucket field and row id: three columns of n whole numbers.
            partitions: n strings. None if they are unknown.

        Raises:
            pa.ArrowException: If a column has another type.
        """
        columns = [part.cast(pa.int64()) for part in parts]
        numbers = RowIdArrays(*(np.asarray(pc.fill_null(column, _MISSING)) for column in columns))
        txns, buckets, row_ids = (np.asarray(pc.is_valid(column)) for column in columns)
        names = None if partitions is None else partitions.cast(pa.string())
        return cls(numbers, (txns, buckets, row_ids), names)

    def __len__(self) -> int:
        """Return the number of changes."""
        return len(self.numbers)

    @property
    def has_bucket(self) -> Mask:
        """The mask of the changes whose ROW__ID has a bucket. An insert may have only a bucket."""
        return self.present[1]

    @cached_property
    def is_complete(self) -> Mask:
        """The mask of the changes whose ROW__ID has all three parts."""
        complete: Mask = np.logical_and.reduce(self.present)
        return complete

    def shown(self, index: int) -> tuple[int | str | None, ...] | None:
        """Return one ROW__ID for a message.

        It has its parts, the partition last if known; None if all are missing.
        """
        parts = [
            number if mask[index] else None
            for number, mask in zip(self.numbers.at(index), self.present, strict=True)
        ]
        name = None if self.partitions is None else self.partitions[index].as_py()
        if name is None and not any(mask[index] for mask in self.present):
            return None
        return tuple(parts) if name is None else (*parts, name)
