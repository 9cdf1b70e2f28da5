"""All errors that mutation_api raises, on one page.

::

    MutationError                     root of this package; a HiveError, like the metastore client's errors
    ├─ ClientError                    an error on the driver
    │   ├─ ConfigurationError         an option or a hive-site.xml value is invalid
    │   │   └─ UnsupportedLocallyError    only Spark's engine can do this
    │   ├─ ConnectionFailedError      the metastore could not be reached, or the connection was lost
    │   ├─ TableNotMutableError       the table violates a rule that the message names
    │   │   └─ TableNotFoundError         it does not exist; the class is a ConfigurationError too
    │   ├─ PartitionCreationError     a missing partition may not, or could not, be created
    │   ├─ TransactionError
    │   │   ├─ TransactionStateError      the caller took the steps in a wrong order
    │   │   ├─ TransactionAbortedError    the server reports that the transaction is over
    │   │   │   └─ WriteConflictError         another one changed the same partition and committed first
    │   │   └─ CommitOutcomeUnknownError  the connection was lost during commit: check, do not retry
    │   ├─ CompactionError            a compaction failed or did not end in time
    │   └─ LockError
    │       ├─ LockNotAcquiredError       another transaction held the lock for too long
    │       └─ LockLostError              the lock or its heartbeat was lost during the work
    ├─ DataError                      rows or columns are wrong; running again does not help
    │   ├─ BucketIdError              a bucket id contradicts the row or the table
    │   ├─ GroupRevisitedError        records arrived for a (partition, bucket) that was already closed
    │   ├─ RecordSequenceError        records of a group are out of order, or a ROW__ID occurs twice
    │   ├─ RecordLayoutError          columns are missing, extra or of the wrong type
    │   ├─ RecordValueError           the column, or ORC as Hive reads it, cannot hold a value
    │   │   └─ ConstraintViolationError   a row violates a NOT NULL or CHECK constraint
    │   ├─ DuplicateKeyError          several source rows of a merge would change the same row
    │   └─ RowIdNotFoundError         the row of an update or delete is not in the snapshot
    ├─ WorkerError                    the work on the rows failed, for example a Spark job
    │   └─ DeltaWriteError            a file could not be written
    ├─ ReadError                      a table directory cannot be read
    │   ├─ DirectoryStateError        directories contradict each other or the snapshot
    │   └─ CorruptFileError           an ORC file is damaged or does not match its name
    ├─ InputError                     a change source cannot be read or applied
    │   ├─ InputFormatError               a file or message is damaged or does not match its format
    │   ├─ StoppedAtStatementError        the log has a statement that changes a table without rows
    │   ├─ SourcePositionError            the source no longer has the changes that follow the watermark
    │   ├─ CaptureError                   changes of a source table are not captured
    │   ├─ OutstandingChangesError        captured changes have not been applied yet
    │   └─ ContradictionError             operations contradict each other or the rows of the table
    └─ ManifestError                  task output is missing, duplicate or contradictory

:class:`~metastore_client.errors.HiveError` is the root of both packages: one ``except`` catches every error.
Errors of :mod:`metastore_client.errors` are wrapped by ``raise … from``. A message holds the values (table,
bucket, expected, found), because the error of a Spark worker reaches the driver as a string only. All classes
take one positional argument, the message, so that they survive pickling.
"""

from __future__ import annotations

from collections.abc import Sequence

from metastore_client.errors import HiveError

__all__ = [
    "MAX_NAMES_IN_MESSAGE", "BucketIdError", "CaptureError", "ClientError", "CommitOutcomeUnknownError",
    "CompactionError", "ConfigurationError", "ConnectionFailedError", "ConstraintViolationError",
    "ContradictionError", "CorruptFileError", "DataError", "DeltaWriteError", "DirectoryStateError",
    "DuplicateKeyError", "GroupRevisitedError", "HiveError", "InputError", "InputFormatError", "LockError",
    "LockLostError", "LockNotAcquiredError", "ManifestError", "MutationError", "OutstandingChangesError",
    "PartitionCreationError", "ReadError", "RecordLayoutError", "RecordSequenceError", "RecordValueError",
    "RowIdNotFoundError", "SourcePositionError", "StoppedAtStatementError", "TableNotFoundError",
    "TableNotMutableError", "TransactionAbortedError", "TransactionError", "TransactionStateError",
    "UnsupportedLocallyError", "WorkerError", "WriteConflictError", "listed",
]  # fmt: skip


class MutationError(HiveError):
    """Root of all errors of this package; never raised itself.

    The errors of the metastore client are not subclasses of it; :class:`HiveError` is the root of both.

    How to fix: catch it around a whole change set; the subclass states whether to run the same job again.
    """


class ClientError(MutationError):
    """Raised when something fails on the driver.

    This class itself is raised when a file that a command writes (a snapshot, a diff) cannot be written.

    How to fix: see the subclass. For a file, check free space, permissions and the address in the message.
    """


class ConfigurationError(ClientError):
    """Raised when an option or a configuration value is invalid, before anything is written.

    The cause is a wrong option, or a file, a key or a package that is missing.

    How to fix: correct the setting that the message names; ``--help`` and the page of settings list the valid
    values. Running the same job again does not help.
    """


class UnsupportedLocallyError(ConfigurationError):
    """Raised when a request needs Spark's engine.

    The local engine does not support it, or cannot guarantee the same result.

    How to fix: use Spark (``--engine spark``, in Python ``merge_into``), or follow the message.
    """


class ConnectionFailedError(ClientError):
    """Raised when no metastore or source database can be reached, or when the connection is lost.

    It is raised at the first call or during the work. None of its changes are visible.

    How to fix: compare the address in the message with ``hive-site.xml`` or the option, then check firewall,
    TLS and login. For a source database, check user and password too. Then run the job again.
    """


class TableNotMutableError(ClientError):
    """Raised when the table cannot be written to; the message names the rule that it violates.

    The table is not transactional, not ORC, insert-only, or has a column that cannot be written.

    How to fix: run ``hive-mutate doctor DB.TABLE``, which lists all rules that the table violates. Change the
    table, or create a new one with ``hive-mutate create-table``.
    """


class TableNotFoundError(TableNotMutableError, ConfigurationError):
    """Raised when a table, or its database, does not exist or has been dropped in the meantime.

    The message names the table, the metastore's address, and tables with similar names.

    How to fix: correct the name or the address, or create the table with ``hive.create_table`` or
    ``hive-mutate create-table``.
    """


class PartitionCreationError(ClientError):
    """Raised when a partition is missing and may not, or could not, be created.

    How to fix: allow its creation with ``create_partitions=True`` of ``hive.transaction`` and
    ``add_sink_table``, or ``--create-partitions`` of commands; or correct the partition columns.
    """


class TransactionError(ClientError):
    """Raised when something is wrong with the transaction.

    This class itself is raised when the metastore refuses a call of the transaction for any other reason.

    How to fix: read the server's reason in the message; ``hive-mutate explain TXN`` shows the state of the
    transaction. Then run the whole job again.
    """


class TransactionStateError(TransactionError):
    """Raised when the caller takes the steps of a transaction in a wrong order.

    For example, records arrive after the end, a table that is only read is written, or a step is done twice.

    How to fix: correct the program. Declare each written table as a sink; stay in the transaction's block.
    """


class TransactionAbortedError(TransactionError):
    """Raised when the server reports that the transaction is over; none of its changes are visible.

    Another client aborted it, or no heartbeat arrived within ``hive.txn.timeout``.

    How to fix: run the whole job again. If the error returns, find out who aborts (see the metastore's log),
    and whether the driver was paused or cut off for longer than the timeout.
    """


class WriteConflictError(TransactionAbortedError):
    """Raised when another transaction changed the same table or partition and committed first.

    It is raised at commit; nothing is visible. The message names the other transaction and the partition that
    it changed.

    How to fix: run the whole job again, so that it reads a new snapshot; never write the same ROW__IDs again.
    ``hive.run`` and ``--attempts`` of commands do this. If the error is frequent, let the writers of the
    table run one after another.
    """


class CommitOutcomeUnknownError(TransactionError):
    """Raised when the connection was lost during commit, so that the outcome is unknown.

    Neither the answer to the commit nor the answer to a later query about it arrived.

    How to fix: do not retry; run ``hive-mutate show txns``. If the transaction is listed as open or aborted,
    nothing is visible; run again once it is aborted. If it is not listed, it is committed.
    """


class CompactionError(ClientError):
    """Raised when a compaction fails or does not end in time; the message contains the server's reason.

    ``hive-mutate compact`` and similar commands raise it. The rows of the table are unchanged.

    How to fix: run ``hive-mutate show compactions``. If it failed, the log of the metastore contains the
    reason. If it is waiting, start workers (``hive.compactor.worker.threads``). Then run the command again.
    """


class LockError(ClientError):
    """Raised when something is wrong with the lock.

    How to fix: see the subclass; ``hive-mutate show locks`` lists all locks and their transactions.
    """


class LockNotAcquiredError(LockError):
    """Raised when the lock is refused or is not granted within the timeout; nothing was written.

    The message names the transactions that held locks on the table for longer than the timeout.

    How to fix: run ``hive-mutate show locks``, and ``hive-mutate explain TXN`` for the holder. If the holder
    is working, wait, or raise the timeout (``lock_timeout_seconds`` in Python, ``--lock-timeout`` of a
    command). If its client is dead, run ``hive-mutate abort TXN``. Then run the job again.
    """


class LockLostError(LockError):
    """Raised when the lock, the transaction or the heartbeat is lost while work is in progress. The metastore
    was unreachable for too long, or another client ended the transaction. A change feed to Kafka raises it if
    another run with the same name has started.

    How to fix: check that the metastore can be reached, then run the whole job again. Nothing is visible.
    """


class DataError(MutationError):
    """Raised when rows, or the columns that a caller names, are wrong; never raised itself.

    The driver or a worker raises it. Nothing is visible.

    How to fix: see the subclass, and correct the rows. Running the same job again does not help.
    """


class BucketIdError(DataError):
    """Raised when a bucket id contradicts the row or the table.

    An update would move its row to another bucket, or the table does not have the bucket.

    How to fix: replace an update that changes the bucket columns by a delete and an insert, or merge by key.
    Use only ROW__IDs that were read from this table.
    """


class GroupRevisitedError(DataError):
    """Raised when records arrive for a (partition, bucket) group that was already closed.

    The records that were passed to a ``MutatorCoordinator`` are not grouped.

    How to fix: sort the records by partition, bucket and ROW__ID before you pass them to the coordinator, or
    use ``apply_changes``, which sorts them.
    """


class RecordSequenceError(DataError):
    """Raised when the records of a group are out of order, or when a ROW__ID occurs twice.

    A coordinator received records in a wrong order, or a change set changes one row twice.

    How to fix: sort the records of a group by ROW__ID, inserts last; keep one change per row.
    """


class RecordLayoutError(DataError):
    """Raised when columns of the records are missing, extra or of the wrong type.

    Nothing was written. The message names the columns, or the column with both types.

    How to fix: rename, add, drop or cast the columns of the source to match the table. ``ingest`` leaves out
    the columns given by ``--ignore-column``.
    """


class RecordValueError(DataError):
    """Raised when the column, or ORC as Hive reads it, cannot hold a value.

    It is raised while rows are checked; nothing is visible. The message names column, type and value.

    How to fix: correct the value in the source, or give the column a wider type in Hive.
    """


class ConstraintViolationError(RecordValueError):
    """Raised when a row violates a NOT NULL or CHECK constraint that Hive enforces; nothing is visible.

    How to fix: correct the row in the source, or drop the constraint in Hive.
    """


class DuplicateKeyError(DataError):
    """Raised when several source rows of a merge would change the same row or insert the same key.

    Merges and diffs by key raise it before anything is written. The message shows some of the keys.

    How to fix: keep one source row per key, or choose one with ``on_duplicate=first_by(…)`` in Python. For a
    diff, choose a key that is unique in both states.
    """


class RowIdNotFoundError(DataError):
    """Raised when the row of an update or delete is not in the snapshot.

    The row has been deleted in the meantime, or the ROW__ID belongs to another table or partition.

    How to fix: read the rows again in the transaction that changes them, or merge by key.
    """


class WorkerError(MutationError):
    """Raised when something fails while records are written.

    This class itself is raised when a Spark job fails as a whole: no tokens, a missing module, a lost stage.

    How to fix: read the cause in the message and in the executors' logs. ``hive-mutate pack`` and
    ``--python-archive`` provide a missing module. Nothing is visible, so the job may run again.
    """


class DeltaWriteError(WorkerError):
    """Raised when a file cannot be written; nothing is visible.

    The storage refuses the write or is full, or a file fails a check. Workers raise it.

    How to fix: check space, permissions and quota at the location in the message. Then run the job again.
    """


class ReadError(MutationError):
    """Raised when a table directory cannot be read.

    This class itself is raised when a directory cannot be listed.

    How to fix: read the cause in the message: a permission, an address, or an extra that is not installed.
    """


class DirectoryStateError(ReadError):
    """Raised when directories contradict each other or the snapshot.

    Files were removed or moved by hand, a reader without a lock was overtaken by the cleaner, or the
    requested past state is already compacted.

    How to fix: read again in a new snapshot. If the error returns, run ``hive-mutate verify DB.TABLE``, which
    reports the problem of each directory and how to fix it. Back up a directory before you change it.
    """


class CorruptFileError(ReadError):
    """Raised when an ORC file is damaged or does not match its name.

    The file is cut off, its checks fail, or it is not an ORC file.

    How to fix: run ``hive-mutate verify DB.TABLE`` to find all such files. Restore each from a replica or a
    backup. Do not delete it: its rows would be lost silently.
    """


class InputError(MutationError):
    """Raised when a change source cannot be read or applied.

    This class itself is raised if a source cannot be listed or buffered, or the table is altered during the
    run.

    How to fix: follow the message. Nothing was applied, and the next run starts where this one started.
    """


class InputFormatError(InputError):
    """Raised when a file or message is damaged or does not match its format.

    It is raised before any change of the run is applied. The message names file, line and field.

    How to fix: look at that line. The file may be incomplete, or its format or writer settings may differ
    from the options (see ``--help``). Correct or move the file, then run again.
    """


class StoppedAtStatementError(InputError):
    """Raised when a log has a statement, such as TRUNCATE, that changes a table without rows.

    How to fix: do the same in Hive, then run with the option that the message names, such as ``--seen-to``.
    All changes before the statement are committed.
    """

    report: object = None


class SourcePositionError(InputError):
    """Raised when the source no longer has the changes that follow the watermark.

    The source's log was purged, the source or the table was restored from an older backup, or the watermark
    would move backwards.

    How to fix: if the log is available again, run again. If it is lost, reload the table as the message says.
    """


class CaptureError(InputError):
    """Raised when changes of a source table are not captured, or not all of them.

    Triggers or the log of an incremental update are missing, switched off or altered.

    How to fix: run ``hive-mutate update repair``; the next extraction then compares the whole table.
    """


class OutstandingChangesError(InputError):
    """Raised when a request would lose changes that were captured and have not been applied.

    How to fix: run ``hive-mutate update extract`` first, or discard them with ``--discard``.
    """


class ContradictionError(InputError):
    """Raised when operations contradict each other or the rows of the table.

    With ``--strict``: an insert of an existing key, or an update or delete of a missing key. In any case: two
    operations on one key at the same position, so that their order is unknown.

    How to fix: if part of the log is applied again, run without ``--strict``. Otherwise compare the table
    with the source. For operations at one position, check whether the same log was read twice.
    """


class ManifestError(MutationError):
    """Raised when task output is missing, duplicate or contradictory.

    It is raised at commit: files have no manifest, a manifest occurs twice, or files have disappeared.

    How to fix: in a program with coordinators, close each coordinator, and pass all manifests of one attempt
    of each writer to ``transaction.add_manifests()``. If it comes from ``apply_changes``, it is a bug: report
    the message.
    """


MAX_NAMES_IN_MESSAGE = 10


def listed(names: Sequence[str]) -> str:
    """Return names for a message: all of them, or the first ten and the number of the others."""
    rest = len(names) - MAX_NAMES_IN_MESSAGE
    return ", ".join(names[:MAX_NAMES_IN_MESSAGE]) + (f" and {rest} more" if rest > 0 else "")
