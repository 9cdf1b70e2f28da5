"""Rules that changes must meet before any of them is written: operation, ROW__ID, bucket and partition.

Changes come as a DataFrame (:mod:`mutation_api.write.classify`) or through a coordinator
(:mod:`mutation_api.write.constraint_checks`). Each rule is defined here once, so a mistake leads to the same
error class and message in both cases:

==========================================================  =======================
mistake                                                     error
==========================================================  =======================
an operation that does not exist                            RecordValueError
an update or delete in an insert-only table                 TableNotMutableError
an update or delete without its row's ROW__ID               RecordValueError
a bucket field of ROW__ID that Hive never writes            BucketIdError
a bucket that the table does not have                       BucketIdError
a row that is not in the snapshot, or cannot be changed     RowIdNotFoundError
an update or delete that names another partition            RecordValueError
an update whose values belong to another bucket             BucketIdError
an insert with another bucket attached (coordinator)        BucketIdError
a slice of a group with ROW__IDs of another bucket          BucketIdError
==========================================================  =======================

The last two mistakes are possible only in a coordinator. In a change set the ROW__ID of an insert is ignored,
and groups are formed by the bucket of ROW__ID. :mod:`.group_writer` checks the order of records,
:mod:`.record_inspector` the types and values of columns.

Rules check whole arrays and raise an error if any change is wrong. The message contains the table, the
partition if all changes belong to one, the number of wrong changes, and the values of the first few. Pure
numpy and Arrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from metastore_client.valid_ids import ValidIdList
from mutation_api.errors import (
    BucketIdError,
    MutationError,
    RecordValueError,
    RowIdNotFoundError,
    TableNotMutableError,
)
from mutation_api.format.event import (
    ROW_ID_COLUMN,
    Mask,
    Operation,
    RowIds,
    bucket_ids,
    statement_ids,
    unreadable_properties,
)
from mutation_api.table.acid_table import AcidTable

OPERATION_NAMES = tuple(operation.name.lower() for operation in Operation)
"""The names of the operations for users. The index is the code."""

SAMPLE_CHANGES = 3
SHOWN_CHARACTERS = 60
"""The number of characters of one value in a message. A long string would hide the rule."""

Found = Mapping[str, pa.Array | NDArray[np.integer]]
"""By name, n values. A message shows the values of the wrong changes."""


@dataclass(frozen=True)
class Changes:
    """n changes of one table.

    Attributes:
        table: a table that is bound to a transaction.
        operations: codes of :class:`Operation`, shape (n,). Any other number is an unknown operation.
        row_ids: n ROW__IDs. Those of inserts may be anything.
        partition_name: the name of the partition if all changes belong to one, otherwise ''.
        given_operations: n strings, the operations as the user wrote them. None if they came as codes.
        columns: partition and bucket columns with n values each, which messages show.
    """

    table: AcidTable
    operations: NDArray[np.integer]
    row_ids: RowIds
    partition_name: str = ""
    given_operations: pa.Array | None = None
    columns: Mapping[str, pa.Array] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of changes."""
        return len(self.operations)

    @cached_property
    def inserts(self) -> Mask:
        """The mask of the changes that are inserts."""
        is_insert: Mask = self.operations == Operation.INSERT
        return is_insert

    @cached_property
    def existing(self) -> Mask:
        """The mask of the changes of existing rows: updates and deletes, once operations are checked."""
        return ~self.inserts

    @cached_property
    def bucket_ids(self) -> NDArray[np.integer]:
        """The plain bucket ids of the ROW__IDs, shape (n,). Valid only after :func:`check_row_ids`."""
        buckets = self.row_ids.numbers.buckets
        return bucket_ids(buckets) if self.table.version.encodes_buckets else buckets

    @cached_property
    def unreadable_buckets(self) -> Mask:
        """The mask of the changes whose bucket field is one that Hive never writes.

        In v1 there are no such changes, because the field is a plain number.
        """
        if self.table.version.encodes_buckets:
            return unreadable_properties(self.row_ids.numbers.buckets)
        return np.zeros(len(self), np.bool_)

    @property
    def where(self) -> str:
        """The table and, if all changes belong to one partition, the partition, for messages."""
        partition = f", partition {self.partition_name!r}" if self.partition_name else ""
        return f"table {self.table.full_name}{partition}"

    def refuse(self, wrong: Mask, error: type[MutationError], rule: str, found: Found | None = None) -> None:
        """Raise ``error`` if any change is wrong. The message shows the first few.

        Args:
            wrong: the mask of the wrong changes.
            error: the class of the error.
            rule: what is wrong, what is expected, and what to do.
            found: further values of the changes.
        """
        if not wrong.any():
            return
        numbers = np.flatnonzero(wrong)
        samples = "; ".join(self._shown(int(at), found or {}) for at in numbers[:SAMPLE_CHANGES])
        these = ": " if len(numbers) <= SAMPLE_CHANGES else ", such as "
        raise error(f"{self.where}: {rule}. Found in {len(numbers)} of {len(self)} changes{these}{samples}")

    def _shown(self, at: int, found: Found) -> str:
        parts = {"operation": repr(self._operation(at)), ROW_ID_COLUMN: repr(self.row_ids.shown(at))}
        if self.row_ids.has_bucket[at] and not self.unreadable_buckets[at]:
            parts["bucket"] = str(self.bucket_ids[at])
        for name, values in {**self.columns, **found}.items():
            parts[name] = _text(values, at)
        return f"({', '.join(f'{name}={_cut(text)}' for name, text in parts.items())})"

    def _operation(self, at: int) -> str | int | None:
        if self.given_operations is not None:
            given: str | None = self.given_operations[at].as_py()
            return given
        code = int(self.operations[at])
        return OPERATION_NAMES[code] if 0 <= code < len(OPERATION_NAMES) else code


def check_operations(changes: Changes) -> None:
    """Check that the operations exist and that the table's format supports them.

    Raises:
        RecordValueError: If an operation does not exist.
        TableNotMutableError: If the table supports only inserts.
    """
    codes = changes.operations
    changes.refuse(
        (codes < Operation.INSERT) | (codes > Operation.DELETE),
        RecordValueError,
        f"the operation must be one of {', '.join(map(repr, OPERATION_NAMES))} (codes 0, 1 and 2)",
    )
    if not changes.table.version.has_row_ids:
        changes.refuse(
            changes.existing,
            TableNotMutableError,
            f"it is insert-only: its rows have no {ROW_ID_COLUMN}, so they can be neither updated nor "
            "deleted; use inserts only, or make it a full ACID table (transactional_properties=default)",
        )


def check_row_ids(changes: Changes, valid_ids: ValidIdList | None = None) -> None:
    """Check that the ROW__IDs of updates and deletes are complete and belong to rows that can be changed.

    Args:
        changes: changes whose operations have been checked.
        valid_ids: the snapshot of the transaction: write ids of the table, in v1 transaction ids. If None,
            the snapshot is unknown, and ids of open and aborted transactions are accepted.

    Raises:
        RecordValueError: If ROW__ID or a part of it is missing.
        BucketIdError: If its bucket field is one that Hive never writes, or is a bucket that the table does
            not have.
        RowIdNotFoundError: If the row cannot be in the snapshot, or cannot be changed by this transaction's
            id.
    """
    existing = changes.existing
    if not existing.any():
        return
    changes.refuse(
        existing & ~changes.row_ids.is_complete,
        RecordValueError,
        f"an update or a delete needs the complete {ROW_ID_COLUMN} of its row; read it with read_table()",
    )
    _check_bucket_fields(changes, existing)
    ids = changes.bucket_ids
    changes.refuse(
        existing & ((ids < 0) | (ids >= changes.table.bucket_limit)),
        BucketIdError,
        f"{ROW_ID_COLUMN} names {_no_such_bucket(changes.table)}",
    )
    _check_visible(changes, existing, valid_ids)


def check_partitions_kept(changes: Changes, given: pa.StringArray, judged: Mask) -> None:
    """Check that changes go to the partition in their ROW__ID, if the ROW__ID has one.

    Args:
        changes: n changes.
        given: names of the partitions to which they go. Null if ROW__ID alone decides.
        judged: the mask of the changes to check.

    Raises:
        RecordValueError: If the partitions differ. The row would be duplicated, or its delete lost. Hive's
            API did not check this.
    """
    known = changes.row_ids.partitions
    if known is None:
        return
    moves = pc.fill_null(pc.not_equal(known, given), False).to_numpy(zero_copy_only=False)
    changes.refuse(
        moves & judged,
        RecordValueError,
        "an update or delete goes to a partition other than its row's; to move the row, delete the old row "
        "and insert the new one",
        {"partition of the row": known, "partition given": given},
    )


def check_buckets_kept(changes: Changes, computed: NDArray[np.integer]) -> None:
    """Check that the new values of updates belong to the bucket of their ROW__ID.

    If rows may be misplaced (``keeps_misplaced_rows``), nothing is checked. An update then leaves its row in
    its bucket, even if the hash gives another one.

    Args:
        changes: changes of a bucketed table with checked ROW__IDs.
        computed: buckets of the new values, shape (n,). Those of deletes are ignored.

    Raises:
        BucketIdError: If an update would move its row.
    """
    if changes.table.keeps_misplaced_rows:
        return
    changes.refuse(
        (changes.operations == Operation.UPDATE) & (changes.bucket_ids != computed),
        BucketIdError,
        "an update cannot move its row to another bucket: the new values hash to a different bucket, "
        f"because the update changes {_clustered_by(changes.table)}, or because Hive put the row there "
        "(IMPORT and LOAD DATA leave files as they are); delete the old row and insert the new one. If "
        "Hive put it there, you can also let Hive rewrite the table (INSERT OVERWRITE … SELECT)",
        {"computed bucket": computed},
    )


def check_attached_buckets(changes: Changes, computed: NDArray[np.integer] | None) -> None:
    """Check that the bucket in the ROW__ID of an insert, if it has one, is the bucket of its values.

    Hive's API required callers to attach the bucket, and a caller may compute the hash wrongly. In change
    sets the ROW__ID of an insert is ignored, because an insert that moves a row carries the ROW__ID of the
    old row.

    Args:
        changes: n changes.
        computed: buckets of the values, shape (n,). None if the table is not bucketed.

    Raises:
        BucketIdError: If the buckets differ, or the bucket field is one that Hive never writes.
    """
    attached = changes.inserts & changes.row_ids.has_bucket
    if not attached.any():
        return
    _check_bucket_fields(changes, attached)
    if computed is not None:
        changes.refuse(
            attached & (changes.bucket_ids != computed),
            BucketIdError,
            "the bucket attached to an insert differs from the bucket of its values "
            f"({_clustered_by(changes.table)}); leave {ROW_ID_COLUMN} null for inserts, or attach the "
            "bucket that BucketIdResolver computes",
            {"computed bucket": computed},
        )


def check_bucket_of_group(changes: Changes, bucket_id: int) -> None:
    """Check that all changes belong to one bucket, and that the table has this bucket.

    Args:
        changes: changes with checked ROW__IDs.
        bucket_id: the plain id of the bucket.

    Raises:
        BucketIdError: If the table does not have the bucket, or if a ROW__ID has another bucket.
    """
    group = np.broadcast_to(np.int64(bucket_id), len(changes))
    is_there = 0 <= bucket_id < changes.table.bucket_limit
    changes.refuse(
        np.broadcast_to(np.bool_(not is_there), len(changes)),
        BucketIdError,
        f"changes go to {_no_such_bucket(changes.table)}",
        {"bucket of the group": group},
    )
    if changes.existing.any():
        changes.refuse(
            changes.existing & (changes.bucket_ids != bucket_id),
            BucketIdError,
            f"{ROW_ID_COLUMN} names a bucket other than its group's, and readers ignore a delete in "
            "another bucket's file; group changes by the buckets of their ROW__IDs",
            {"bucket of the group": group},
        )


def _check_bucket_fields(changes: Changes, judged: Mask) -> None:
    if changes.table.version.encodes_buckets:
        changes.refuse(
            judged & changes.unreadable_buckets,
            BucketIdError,
            f"{ROW_ID_COLUMN} has a bucket field that Hive never writes; the field encodes the bucket's "
            "number (536870912 is bucket 0, statement 0), so pass it on as it was read",
        )


def _check_visible(changes: Changes, judged: Mask, valid_ids: ValidIdList | None) -> None:
    table, numbers = changes.table, changes.row_ids.numbers
    own = table.required_write_id()
    kind = "write id" if table.version.uses_write_ids else "transaction"
    is_possible = (numbers.original_txns >= 0) & (numbers.original_txns < own) & (numbers.row_ids >= 0)
    if valid_ids is not None:
        is_possible &= _are_valid(np.where(judged & is_possible, numbers.original_txns, 0), valid_ids)
    if table.statement_id:
        is_earlier = statement_ids(numbers.buckets) < table.statement_id
        is_possible |= (numbers.original_txns == own) & is_earlier & (numbers.row_ids >= 0)
    changes.refuse(
        judged & ~is_possible,
        RowIdNotFoundError,
        f"{ROW_ID_COLUMN} names a row that the snapshot of transaction {table.required_txn_id()} cannot "
        f"contain, or that {kind} {own} cannot change: its {kind} is negative, open, aborted or not below "
        f"{own}, or its row id is negative; read the table again in this transaction",
    )


def _are_valid(ids: NDArray[np.integer], valid_ids: ValidIdList) -> Mask:
    """Return True for ids that are visible in the snapshot. Each distinct id is looked up once.

    Rows from before the table was transactional have id 0. A row with a write id higher than this
    transaction's can be visible, because write ids are not allocated in the order of transactions. The caller
    rejects such a row earlier: only one of Hive's two readers would see a delete of it.
    """
    distinct, positions = np.unique(ids, return_inverse=True)
    visible = [each == 0 or valid_ids.is_valid(each) for each in distinct.tolist()]
    return np.asarray(visible, dtype=np.bool_)[positions]


def _no_such_bucket(table: AcidTable) -> str:
    limit = table.bucket_limit
    return (
        f"a bucket that the table does not have: expected 0 <= bucket < {limit}; "
        "readers do not open other buckets"
    )


def _clustered_by(table: AcidTable) -> str:
    return f"CLUSTERED BY {', '.join(table.bucket_columns)}"


def _text(values: pa.Array | NDArray[np.integer], at: int) -> str:
    if isinstance(values, np.ndarray):
        return str(values[at])
    try:
        return repr(values[at].as_py())
    except (OverflowError, ValueError):
        # Python cannot represent this date or timestamp. The checks of values report that error.
        return f"<{values.type}>"


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
