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
    │   ├─ DuplicateKeyError          several source rows of a merge would act on one row
    │   ├─ RowIdNotFoundError         an update or delete names a row that the snapshot does not have
    │   ├─ PartitionCreationError     a partition is missing and may not, or could not, be created
    │   └─ DeltaWriteError            a file could not be written
    ├─ ReadError                      a table directory cannot be read
    │   ├─ DirectoryStateError        directories that contradict each other or the snapshot
    │   └─ CorruptFileError           an ORC file that is damaged or is not what its name says
    ├─ InputError                     a change source cannot be read or applied
    │   ├─ InputFormatError               a file or message is damaged, or is not what its format says
    │   ├─ SourcePositionError            the source does not have what follows the watermark
    │   ├─ OutstandingChangesError        captured changes that have not been applied yet
    │   └─ ContradictionError             operations that cannot follow one another, or do not fit the table
    └─ ManifestError                  missing, doubled or contradictory task output

Metastore errors have a tree of their own (:mod:`metastore_client.errors`); ours wrap them with
``raise … from``.

A message holds the values (transaction, table, partition, bucket, expected, found), because a Spark worker's
error reaches the driver as text only. All classes take one positional argument, the message, so that they
survive pickling.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "MAX_NAMES_IN_MESSAGE",
    "BucketIdError",
    "ClientError",
    "CommitOutcomeUnknownError",
    "CompactionError",
    "ConfigurationError",
    "ConnectionFailedError",
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
    "TableNotMutableError",
    "TransactionAbortedError",
    "TransactionError",
    "TransactionStateError",
    "WorkerError",
    "WriteConflictError",
    "listed",
]


class MutationError(Exception):
    """Root of all errors of this package."""


class ClientError(MutationError):
    """Something failed on the driver side."""


class ConfigurationError(ClientError):
    """An option or a configuration value makes no sense."""


class LocalEngineError(ConfigurationError):
    """Spark's engine does it; the local engine does not, or not with a result that is surely the same."""


class ConnectionFailedError(ClientError):
    """No metastore could be reached, or it went away."""


class TableNotMutableError(ClientError):
    """The table cannot be mutated; the message names the rule it breaks."""


class TransactionError(ClientError):
    """Something is wrong with the transaction."""


class TransactionStateError(TransactionError):
    """The caller took the steps of a transaction in a wrong order."""


class TransactionAbortedError(TransactionError):
    """The server says that the transaction is over; nothing of it is visible."""


class WriteConflictError(TransactionAbortedError):
    """Another transaction changed the same table or partition and committed first; nothing is visible."""


class CommitOutcomeUnknownError(TransactionError):
    """The connection was lost during commit and the outcome is unknown: look, do not retry."""


class CompactionError(ClientError):
    """A compaction failed, or did not end in time; the message has the server's reason."""


class LockError(ClientError):
    """Something is wrong with the lock."""


class LockNotAcquiredError(LockError):
    """The lock was not granted within the bound, or was refused."""


class LockLostError(LockError):
    """The lock, the transaction or the heartbeat was lost while work was going on."""


class WorkerError(MutationError):
    """Something failed while records were being written."""


class BucketIdError(WorkerError):
    """A bucket id that the row or the table contradicts."""


class GroupRevisitedError(WorkerError):
    """A (partition, bucket) group came back after it had been closed."""


class RecordSequenceError(WorkerError):
    """Records of a group are out of order, or one ROW__ID occurs twice."""


class RecordLayoutError(WorkerError):
    """Columns of the record are missing, extra, or of a type that does not fit."""


class RecordValueError(WorkerError):
    """A value that the column, or ORC as Hive reads it, cannot hold."""


class DuplicateKeyError(WorkerError):
    """Several source rows of a merge would act on one row of the table, or insert one key."""


class RowIdNotFoundError(WorkerError):
    """An update or a delete names a row that the snapshot does not hold."""


class PartitionCreationError(WorkerError):
    """A partition is missing and may not, or could not, be created."""


class DeltaWriteError(WorkerError):
    """A file could not be written."""


class ReadError(MutationError):
    """A table directory cannot be read."""


class DirectoryStateError(ReadError):
    """Directories contradict each other or the snapshot."""


class CorruptFileError(ReadError):
    """An ORC file is damaged, or is not what its name says."""


class InputError(MutationError):
    """A change source cannot be read or applied."""


class InputFormatError(InputError):
    """A file or message is damaged, or is not what its format says; names file, line and field."""


class SourcePositionError(InputError):
    """The source does not have what follows the watermark, or the watermark would move backwards."""


class OutstandingChangesError(InputError):
    """Changes were captured and have not been applied; what was asked for would lose them."""


class ContradictionError(InputError):
    """Operations that cannot follow one another, or that the rows of the table contradict."""


class ManifestError(MutationError):
    """Task output is missing, doubled or contradictory."""


MAX_NAMES_IN_MESSAGE = 10


def listed(names: Sequence[str]) -> str:
    """Names as a message lists them: all, or the first ten and the number of the others."""
    rest = len(names) - MAX_NAMES_IN_MESSAGE
    return ", ".join(names[:MAX_NAMES_IN_MESSAGE]) + (f" and {rest} more" if rest > 0 else "")
