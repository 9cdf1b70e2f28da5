"""Every error that mutation_api raises, on one page.

::

    MutationError                     root: one ``except`` catches all of ours; never raised itself
    ├─ ClientError                    the driver side
    │   ├─ ConfigurationError         an option or a hive-site.xml value makes no sense
    │   │   └─ LocalEngineError           what Spark's engine does and the local one does not
    │   ├─ ConnectionFailedError      no metastore could be reached, or it went away
    │   ├─ TableNotMutableError       the table breaks a rule; the message says which
    │   ├─ TransactionError
    │   │   ├─ TransactionStateError      the caller took the steps in a wrong order
    │   │   ├─ TransactionAbortedError    the server says the transaction is over
    │   │   │   └─ WriteConflictError         another one changed the same partition and committed first
    │   │   └─ CommitOutcomeUnknownError  the connection was lost during commit: look, do not retry
    │   ├─ CompactionError            a compaction failed, or did not end in time
    │   └─ LockError
    │       ├─ LockNotAcquiredError       another transaction held the lock for too long
    │       └─ LockLostError              the lock or its heartbeat was lost during the work
    ├─ WorkerError                    the executor side
    │   ├─ BucketIdError              a bucket id that the row or the table contradicts
    │   ├─ GroupRevisitedError        a (partition, bucket) came back after it was closed
    │   ├─ RecordSequenceError        records of a group are out of order, or one ROW__ID comes twice
    │   ├─ RecordLayoutError          columns are missing, extra, or of a type that does not fit
    │   ├─ RecordValueError           a value that the column, or ORC as Hive reads it, cannot hold
    │   │   └─ ConstraintViolationError   a row breaks a NOT NULL or CHECK constraint
    │   ├─ DuplicateKeyError          several source rows of a merge would act on one row
    │   ├─ RowIdNotFoundError         an update or delete names a row that the snapshot does not have
    │   ├─ PartitionCreationError     a partition is missing and may not, or could not, be created
    │   └─ DeltaWriteError            a file could not be written
    ├─ ReadError                      a table directory cannot be read
    │   ├─ DirectoryStateError        directories that contradict each other or the snapshot
    │   └─ CorruptFileError           an ORC file that is damaged or is not what its name says
    ├─ InputError                     a change source cannot be read or applied
    │   ├─ InputFormatError               a file or message is damaged, or is not what its format says
    │   ├─ StoppedAtStatementError        the log has a statement that changes a table without rows
    │   ├─ SourcePositionError            the source does not have what follows the watermark
    │   ├─ CaptureError                   changes of a source table that are not captured
    │   ├─ OutstandingChangesError        captured changes that have not been applied yet
    │   └─ ContradictionError             operations that cannot follow one another, or do not fit the table
    └─ ManifestError                  missing, doubled or contradictory task output

Errors of :mod:`metastore_client.errors` are wrapped by ``raise … from``. A message holds the values (table,
bucket, expected, found), because a Spark worker's error reaches the driver as text only. All classes take one
positional argument, the message, so that they survive pickling.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "MAX_NAMES_IN_MESSAGE",
    "BucketIdError",
    "CaptureError",
    "ClientError",
    "CommitOutcomeUnknownError",
    "CompactionError",
    "ConfigurationError",
    "ConnectionFailedError",
    "ConstraintViolationError",
    "ContradictionError",
    "CorruptFileError",
    "DeltaWriteError",
    "DirectoryStateError",
    "DuplicateKeyError",
    "GroupRevisitedError",
    "InputError",
    "InputFormatError",
    "LocalEngineError",
    "LockError",
    "LockLostError",
    "LockNotAcquiredError",
    "ManifestError",
    "MutationError",
    "OutstandingChangesError",
    "PartitionCreationError",
    "ReadError",
    "RecordLayoutError",
    "RecordSequenceError",
    "RecordValueError",
    "RowIdNotFoundError",
    "SourcePositionError",
    "StoppedAtStatementError",
    "TableNotMutableError",
    "TransactionAbortedError",
    "TransactionError",
    "TransactionStateError",
    "WorkerError",
    "WriteConflictError",
    "listed",
]


class MutationError(Exception):
    """Root of all errors of this package.

    What to do: catch it around a whole change set; the child class says whether to run the same job again.
    """


class ClientError(MutationError):
    """Something failed on the driver side.

    Raised itself where a file that a command writes (a snapshot, a diff) cannot be written.

    What to do: see the child class; for a file look at the path in the message: space, permission, address.
    """


class ConfigurationError(ClientError):
    """An option or a configuration value makes no sense.

    Comes before anything is written: a wrong option, or a file, a key or a package that is missing.

    What to do: correct what the message names; ``--help`` and the page of settings say what is possible.
    Running the same again does not help.
    """


class LocalEngineError(ConfigurationError):
    """Spark's engine does it; the local engine does not, or not with a result that is surely the same.

    What to do: use Spark (``--engine spark``, in Python ``merge_into``), or do what the message offers.
    """


class ConnectionFailedError(ClientError):
    """No metastore, or no source database, could be reached, or it went away.

    Comes at the first call, or during the work, of which nothing is visible then.

    What to do: check the address in the message against ``hive-site.xml`` or the option, then firewall, TLS
    and login. For a source database check user and password, too. Then run the job again.
    """


class TableNotMutableError(ClientError):
    """The table cannot be mutated; the message names the rule it breaks.

    Comes when a table is not transactional, not ORC, insert-only, or has a column that cannot be written.

    What to do: run ``hive-mutate doctor DB.TABLE``, which names all rules that the table breaks; change the
    table, or make a new one with ``hive-mutate create-table``.
    """


class TransactionError(ClientError):
    """Something is wrong with the transaction.

    Raised itself where the metastore refuses a call of the transaction for another reason.

    What to do: read the server's reason in the message; ``hive-mutate explain TXN`` shows the state of the
    transaction. Then run the whole job again.
    """


class TransactionStateError(TransactionError):
    """The caller took the steps of a transaction in a wrong order.

    Comes when records come after the end, a table is written that is only read, or a step is done twice.

    What to do: correct the program: declare each written table as a sink, and do all work inside of the
    transaction's block.
    """


class TransactionAbortedError(TransactionError):
    """The server says that the transaction is over; nothing of it is visible.

    Comes when another client aborted it, or no heartbeat arrived within ``hive.txn.timeout``.

    What to do: run the whole job again. If it comes again, look for who aborts (the metastore's log) and
    whether the driver was paused or cut off for that long.
    """


class WriteConflictError(TransactionAbortedError):
    """Another transaction changed the same table or partition and committed first; nothing is visible.

    Comes at the commit; the message names the other transaction and what it changed.

    What to do: run the whole job again, so that it reads a new snapshot; never write the same ROW__IDs again.
    If it comes often, let the writers of the table run one after another.
    """


class CommitOutcomeUnknownError(TransactionError):
    """The connection was lost during commit and the outcome is unknown: look, do not retry.

    Comes when neither the commit's answer nor a later question about it came through.

    What to do: ``hive-mutate show txns``: if the transaction is listed as open or aborted, nothing of it is
    visible, and the job may run again once it is aborted; if it is not listed, it is committed.
    """


class CompactionError(ClientError):
    """A compaction failed, or did not end in time; the message has the server's reason.

    Comes from ``hive-mutate update compact`` and its like; the rows of the table are as before.

    What to do: run ``hive-mutate show compactions``. If it failed, the log of the metastore has the reason;
    if it is waiting, workers must run (``hive.compactor.worker.threads``). The command waits for it again.
    """


class LockError(ClientError):
    """Something is wrong with the lock.

    What to do: see the child class; ``hive-mutate show locks`` lists all locks and their transactions.
    """


class LockNotAcquiredError(LockError):
    """The lock was not granted within the bound, or was refused.

    Comes before anything is written, when others hold locks on the table for longer than the lock's time-out;
    the message names them.

    What to do: run ``hive-mutate show locks``, and ``hive-mutate explain TXN`` for the holder. If it works,
    wait, or wait longer (``lock_timeout_seconds`` in Python, ``--lock-timeout`` of a command);
    if its client is dead, ``hive-mutate abort TXN``. Then run the job again.
    """


class LockLostError(LockError):
    """The lock, the transaction or the heartbeat was lost while work was going on.

    Comes when the metastore was out of reach for too long, or another client ended the transaction.

    What to do: nothing is visible: see that the metastore can be reached, then run the whole job again.
    """


class WorkerError(MutationError):
    """Something failed while records were being written.

    Raised itself where a Spark job fails for its own reasons: no tokens, a missing module, a lost stage.

    What to do: read the cause in the message, and the executors' logs; a missing module is brought by
    ``hive-mutate pack`` and ``--python-archive``. Nothing is visible: the job may run again.
    """


class BucketIdError(WorkerError):
    """A bucket id that the row or the table contradicts.

    Comes when an update would move its row to another bucket, or a bucket is named that is not there.

    What to do: write a delete and an insert in place of an update that changes the bucket columns, or merge
    by key. ROW__IDs must be those that were read from this table.
    """


class GroupRevisitedError(WorkerError):
    """A (partition, bucket) group came back after it had been closed.

    Comes from a ``MutatorCoordinator`` whose records are not grouped.

    What to do: sort the records by partition, bucket and ROW__ID before they are given to the coordinator;
    ``apply_changes`` does it by itself.
    """


class RecordSequenceError(WorkerError):
    """Records of a group are out of order, or one ROW__ID occurs twice.

    Comes from a coordinator with records in a wrong order, or a change set that changes one row twice.

    What to do: sort the records of a group by ROW__ID, inserts last; keep one change for each row.
    """


class RecordLayoutError(WorkerError):
    """Columns of the record are missing, extra, or of a type that does not fit.

    Comes before anything is written; the message names the columns, or the column with both types.

    What to do: rename, add, drop or cast the columns of the source so that they are those of the table.
    ``ingest`` leaves columns out by ``--ignore-column``.
    """


class RecordValueError(WorkerError):
    """A value that the column, or ORC as Hive reads it, cannot hold.

    Comes while rows are checked; the message names column, type and value, and nothing of the change set is
    visible.

    What to do: correct the value in the source, or give the column a wider type in Hive.
    """


class ConstraintViolationError(RecordValueError):
    """A row breaks a NOT NULL or CHECK constraint that Hive enforces; nothing is visible.

    What to do: correct the row in the source, or drop the constraint in Hive.
    """


class DuplicateKeyError(WorkerError):
    """Several source rows of a merge would act on one row of the table, or insert one key.

    Comes from merges and diffs by key, before anything is written; the message shows some of the keys.

    What to do: keep one source row for each key, or say which one counts: ``on_duplicate=first_by(…)`` in
    Python. For a diff choose a key that is unique in both states.
    """


class RowIdNotFoundError(WorkerError):
    """An update or a delete names a row that the snapshot does not hold.

    Comes when the row was deleted meanwhile, or the ROW__ID is of another table or partition.

    What to do: read the rows again, in the transaction that changes them, or merge by key.
    """


class PartitionCreationError(WorkerError):
    """A partition is missing and may not, or could not, be created.

    What to do: let them be created: ``create_partitions=True`` of ``hive.transaction`` and
    ``add_sink_table``, ``--create-partitions`` of commands; or correct the partition columns.
    """


class DeltaWriteError(WorkerError):
    """A file could not be written.

    Comes on a worker when a storage refuses or is full, or a file fails a check; nothing is visible.

    What to do: look at the location and the cause in the message: space, permission, quota. Then run the job
    again.
    """


class ReadError(MutationError):
    """A table directory cannot be read.

    Raised itself where a directory cannot be listed.

    What to do: look at the cause in the message: permission, address, a missing extra of this library.
    """


class DirectoryStateError(ReadError):
    """Directories contradict each other or the snapshot.

    Comes when files were removed or moved by hand, when a reader had no lock and the cleaner was faster, or
    when the past that was asked for is compacted.

    What to do: read again in a new snapshot. If it comes again, run ``hive-mutate verify DB.TABLE``, which
    says of each directory what is wrong and what to do; save the directory before you change it.
    """


class CorruptFileError(ReadError):
    """An ORC file is damaged, or is not what its name says.

    Comes when a file is cut off, its checks fail, or it is no ORC file.

    What to do: run ``hive-mutate verify DB.TABLE`` to find all such files; bring the file back from a replica
    or a copy. Do not delete it: its rows would be lost silently.
    """


class InputError(MutationError):
    """A change source cannot be read or applied.

    Raised itself where a source cannot be listed or kept, or a table was altered while it was read whole.

    What to do: do what the message says; nothing was applied, and the next run begins where this one did.
    """


class InputFormatError(InputError):
    """A file or message is damaged, or is not what its format says; names file, line and field.

    Comes before anything of the run is applied.

    What to do: look at that line: a file that is still being written, another format or other settings of the
    program that wrote it (``--help`` lists the options for them). Correct or move the file, then run again.
    """


class StoppedAtStatementError(InputError):
    """A log has a statement, such as TRUNCATE, that changes a table without rows; all before is committed.

    What to do: do the same in Hive, then run with the option that the message names, as ``--seen-to``.
    """

    report: object = None


class SourcePositionError(InputError):
    """The source does not have what follows the watermark, or the watermark would move backwards.

    Comes when the source's log was purged, or source or table was restored from an older backup.

    What to do: if the log is back, run again; if it is lost, load the table anew, as the message says.
    """


class CaptureError(InputError):
    """Changes of a source table are not captured, or not all of them.

    Raised when triggers or the log of an incremental update are missing, switched off or altered.

    What to do: ``hive-mutate update repair``; the next extraction then compares the whole table.
    """


class OutstandingChangesError(InputError):
    """Changes were captured and have not been applied; what was asked for would lose them.

    What to do: run ``hive-mutate update extract`` first, or drop them by ``--discard``.
    """


class ContradictionError(InputError):
    """Operations that cannot follow one another, or that the rows of the table contradict.

    Comes with ``--strict``: an insert of a key that is there, an update or delete of one that is not. Without
    it too, where two operations on one key have one position, so that nobody knows the later one.

    What to do: if a part of the log is applied again, the first is normal: run without ``--strict``. Else
    compare the table with the source. For the second see whether one log is there twice.
    """


class ManifestError(MutationError):
    """Task output is missing, doubled or contradictory.

    Comes at the commit: a worker's files without its manifests, manifests twice, or files that are gone.

    What to do: in a program with coordinators close each, and give all manifests of one attempt of each
    writer to ``transaction.add_manifests()``. From ``apply_changes`` it is a defect: report the message.
    """


MAX_NAMES_IN_MESSAGE = 10


def listed(names: Sequence[str]) -> str:
    """Names as a message lists them: all, or the first ten and the number of the others."""
    rest = len(names) - MAX_NAMES_IN_MESSAGE
    return ", ".join(names[:MAX_NAMES_IN_MESSAGE]) + (f" and {rest} more" if rest > 0 else "")
