"""Checks of a file's events that a merge relies on: order, operations and buckets.

A file that fails a check is refused; merging it would silently lose or resurrect rows.
"""

from __future__ import annotations

import numpy as np

from mutation_api.acid.bucket_codec import (
    MAX_BUCKETS,
    MAX_STATEMENT_ID,
    bucket_ids,
    bucket_property,
    unreadable_properties,
)
from mutation_api.acid.event import Operation
from mutation_api.acid.merge_events import EventKeys, find_disorder
from mutation_api.acid.version import AcidVersion
from mutation_api.errors import CorruptFileError, DirectoryStateError
from mutation_api.orc.read.event_file import EventFile, EventFileKind

__all__ = ["check_buckets", "check_operations", "check_order"]


def check_order(keys: EventKeys, previous: EventKeys | None, file: EventFile) -> None:
    """Check that keys ascend, and that the newest event of a key comes first.

    Args:
        keys: keys of a stripe's events.
        previous: key of the last event before them; None if there is none.
        file: the file, for messages.

    Raises:
        CorruptFileError: they do not; names both events.
    """
    at = find_disorder(keys)
    if at is not None:
        raise _disorder(file, keys.slice(at - 1, at), keys.slice(at, at + 1))
    if previous is None:
        return
    key, last = keys.key(0), previous.key(0)
    if key < last or (key == last and keys.current_txn[0] > previous.current_txn[0]):
        raise _disorder(file, previous, keys)


def _disorder(file: EventFile, before: EventKeys, after: EventKeys) -> CorruptFileError:
    def text(keys: EventKeys) -> str:
        return f"{tuple(keys.key(0))} of transaction {int(keys.current_txn[0])}"

    return CorruptFileError(
        f"{file.location} is not sorted: event {text(after)} comes after {text(before)}; Hive would show old "
        "or deleted rows of such a file. The program that wrote it is faulty: write the transaction again"
    )


def check_operations(keys: EventKeys, file: EventFile, version: AcidVersion) -> None:
    """Check that in a split layout a delta holds only inserts, and a delete delta only deletes.

    Raises:
        DirectoryStateError: the file holds other events.
    """
    expected = {EventFileKind.DELTA: Operation.INSERT, EventFileKind.DELETE_DELTA: Operation.DELETE}
    operation = expected.get(file.kind)
    if operation is None or bool((keys.operation == operation).all()):
        return
    found = sorted({Operation(int(code)).name for code in np.unique(keys.operation)})
    advice = (
        "Hive 2 wrote it before the table was upgraded, and this server shows wrong rows: let Hive 2 compact "
        "the table (major) before the upgrade, or restore it from there"
        if version.uses_write_ids
        else "it was written for a legacy table"
    )
    raise DirectoryStateError(
        f"{file.location} holds {' and '.join(found)} events, but in a table with transactional_properties"
        f"=default a {file.kind.value} holds {operation.name} events only: {advice}"
    )


def check_buckets(keys: EventKeys, file: EventFile) -> None:
    """Check that every ROW__ID names the bucket of its file: Hive finds the deletes of a row by bucket.

    Raises:
        CorruptFileError: a bucket property that Hive never wrote.
        DirectoryStateError: an event of another bucket.
    """
    if file.bucket_id < MAX_BUCKETS:
        first = bucket_property(file.bucket_id, 0)
        if first <= int(keys.bucket.min()) and int(keys.bucket.max()) <= first + MAX_STATEMENT_ID:
            return
    unreadable = unreadable_properties(keys.bucket)
    if unreadable.any():
        at = int(unreadable.argmax())
        raise CorruptFileError(
            f"{file.location}: event {tuple(keys.key(at))} has a bucket property that Hive never wrote"
        )
    ids = bucket_ids(keys.bucket)
    misplaced = ids != file.bucket_id
    if misplaced.any():
        at = int(misplaced.argmax())
        raise DirectoryStateError(
            f"{file.location} holds event {tuple(keys.key(at))} of bucket {int(ids[at])}, but the file "
            f"belongs to bucket {file.bucket_id}: Hive silently ignores such deletes, and deletes of such "
            "rows. The program that wrote the file is faulty: write the transaction again"
        )
