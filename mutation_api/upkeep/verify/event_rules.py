"""Rules on the events of one file, a stripe at a time. Pure, vectorised.

Each rule is a function from the events to a mask of those that break it, with a text for the first of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mutation_api.acid.bucket_codec import bucket_ids, statement_ids, unreadable_properties
from mutation_api.acid.event import Operation
from mutation_api.acid.merge_events import EventKeys, find_disorder
from mutation_api.acid.version import AcidVersion
from mutation_api.orc.read.event_file import EventFile, EventFileKind

__all__ = ["Broken", "broken_rules", "twice_rule"]

_Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Broken:
    """A rule that some events of a stripe break: the index of the first one, and how many do."""

    rule_name: str
    first: int
    count: int
    found: str
    expected: str


def broken_rules(
    keys: EventKeys,
    previous: EventKeys | None,
    has_row: _Mask | None,
    file: EventFile,
    version: AcidVersion,
    *,
    bucket_limit: int,
    any_bucket: bool,
) -> Iterator[Broken]:
    """Rules that the events of a stripe break.

    Args:
        keys: the events of the stripe, at least one.
        previous: the last event before them in the file, if any.
        has_row: whether each event has a row; None: all have.
        file: the file; its kind, ids and bucket decide what it may hold.
        version: the layout of the table.
        bucket_limit: buckets are below it.
        any_bucket: events of other buckets than the file's are allowed.
    """
    yield from _operations(keys, has_row, file, version)
    yield from _order(keys, previous, file, version)
    yield from _ids(keys, file, version)
    yield from _buckets(keys, file, version, bucket_limit, any_bucket=any_bucket)


def _broken(rule_name: str, mask: _Mask, found: str, expected: str) -> Iterator[Broken]:
    if mask.any():
        yield Broken(rule_name, int(mask.argmax()), int(mask.sum()), found, expected)


def _first(mask: _Mask, values: NDArray[np.integer]) -> int:
    """Value at the first place of a mask; any value if there is none."""
    return int(values[mask.argmax()])


def _operations(
    keys: EventKeys, has_row: _Mask | None, file: EventFile, version: AcidVersion
) -> Iterator[Broken]:
    codes = keys.operation
    allowed = _allowed(file, version)
    wrong = ~np.isin(codes, allowed)
    names = " or ".join(Operation(code).name for code in allowed)
    yield from _broken(
        "operation", wrong, f"operation {_first(wrong, codes)}", f"{names} in a {file.kind.value}"
    )
    if has_row is not None:
        missing = ~has_row & (codes != Operation.DELETE) & ~wrong
        name = "an insert" if _first(missing, codes) == Operation.INSERT else "an update"
        yield from _broken("row-missing", missing, f"{name} whose row is NULL", "a row")


def _allowed(file: EventFile, version: AcidVersion) -> list[int]:
    if file.kind is EventFileKind.DELETE_DELTA:
        return [Operation.DELETE]
    if file.kind is EventFileKind.BASE:
        return [Operation.INSERT, Operation.UPDATE]  # updates are from before a legacy table was upgraded
    return [Operation.INSERT] if version.splits_updates else list(Operation)


def _order(
    keys: EventKeys, previous: EventKeys | None, file: EventFile, version: AcidVersion
) -> Iterator[Broken]:
    at = find_disorder(keys)
    if at is not None:
        yield _disorder(keys, at, keys.slice(at - 1, at))
        return
    if previous is not None:
        last, key = previous.key(0), keys.key(0)
        if key < last or (key == last and keys.current_txn[0] > previous.current_txn[0]):
            yield _disorder(keys, 0, previous)
            return
    yield from _repeated(keys, previous, file, version)


def _disorder(keys: EventKeys, at: int, before: EventKeys) -> Broken:
    return Broken("order", at, 1, f"{_event(keys, at)} after {_event(before, 0)}", "ascending ROW__IDs")


def _event(keys: EventKeys, at: int) -> str:
    return f"{tuple(keys.key(at))} of id {int(keys.current_txn[at])}"


def _repeated(
    keys: EventKeys, previous: EventKeys | None, file: EventFile, version: AcidVersion
) -> Iterator[Broken]:
    """Events whose key is that of the event before, where each row has one event."""
    same = np.zeros(len(keys), np.bool_)
    same[1:] = (
        (keys.original_txn[1:] == keys.original_txn[:-1])
        & (keys.bucket[1:] == keys.bucket[:-1])
        & (keys.row_id[1:] == keys.row_id[:-1])
    )
    same[0] = previous is not None and previous.key(0) == keys.key(0)
    if not version.splits_updates and file.kind is EventFileKind.DELTA:
        before = np.empty_like(keys.operation)
        before[1:] = keys.operation[:-1]
        before[0] = Operation.DELETE if previous is None else previous.operation[0]
        same &= (keys.operation == Operation.INSERT) & (before == Operation.INSERT)
    is_delete = file.kind is EventFileKind.DELETE_DELTA
    rule_name = "deleted-twice" if is_delete else twice_rule(version)
    yield from _broken(rule_name, same, "the ROW__ID of the event before", "one event a row")


def twice_rule(version: AcidVersion) -> str:
    """The rule that two rows with one ROW__ID break."""
    return "key-twice" if version.uses_write_ids or not version.splits_updates else "key-twice-old"


def _ids(keys: EventKeys, file: EventFile, version: AcidVersion) -> Iterator[Broken]:
    current, original = keys.current_txn, keys.original_txn
    outside = (current < file.first) | (current > file.last)
    if file.kind is EventFileKind.BASE:
        outside = current > file.last
    span = f"at most {file.last}" if file.kind is EventFileKind.BASE else f"{file.first} to {file.last}"
    yield from _broken("id-range", outside, f"an event of id {_first(outside, current)}", span)
    inserted = (keys.operation == Operation.INSERT) & (original != current)
    yield from _broken(
        "original-id",
        inserted,
        f"id {_first(inserted, original)} in an insert of id {_first(inserted, current)}",
        "one id",
    )
    negative = keys.row_id < 0
    yield from _broken("row-number", negative, f"row id {_first(negative, keys.row_id)}", "0 or more")
    early = (keys.operation != Operation.INSERT) & (current < original)
    if version.splits_updates:
        early |= _deletes_of_later_statements(keys, file, version)
    yield from _broken(
        "early-delete",
        early,
        f"id {_first(early, current)} for a row of id {_first(early, original)}",
        "a later id",
    )


def _deletes_of_later_statements(keys: EventKeys, file: EventFile, version: AcidVersion) -> _Mask:
    """Hive 4 obeys a delete of the row's own id only if the row's statement comes before its own."""
    is_single = version.is_hive_4 and file.first == file.last and file.kind is EventFileKind.DELETE_DELTA
    if not is_single:
        return np.zeros(len(keys), np.bool_)
    later = statement_ids(keys.bucket) >= (file.statement_id or 0)
    result: _Mask = (keys.operation == Operation.DELETE) & (keys.current_txn == keys.original_txn) & later
    return result


def _buckets(
    keys: EventKeys, file: EventFile, version: AcidVersion, bucket_limit: int, *, any_bucket: bool
) -> Iterator[Broken]:
    fields = keys.bucket
    if version.encodes_buckets:
        unreadable = unreadable_properties(fields)
        yield from _broken(
            "bucket-field",
            unreadable,
            f"{_first(unreadable, fields)}",
            "(1 << 29) + (bucket << 16) + statement",
        )
        ids = bucket_ids(fields)
    else:
        unreadable, ids = np.zeros(len(fields), np.bool_), fields
    if not any_bucket:
        other = (ids != file.bucket_id) & ~unreadable
        yield from _broken("bucket-file", other, f"bucket {_first(other, ids)}", f"bucket {file.bucket_id}")
    beyond = (ids >= bucket_limit) & ~unreadable
    yield from _broken("bucket-count", beyond, f"bucket {_first(beyond, ids)}", f"below {bucket_limit}")
    if version.encodes_buckets and file.kind is EventFileKind.DELTA and file.first == file.last:
        yield from _statements(keys, file, unreadable)


def _statements(keys: EventKeys, file: EventFile, unreadable: _Mask) -> Iterator[Broken]:
    if file.statement_id is None:
        return  # a compaction may have made it of several statements
    found = statement_ids(keys.bucket)
    other = (found != file.statement_id) & ~unreadable & (keys.bucket >> 29 == 1)
    yield from _broken(
        "statement", other, f"statement {_first(other, found)}", f"statement {file.statement_id}"
    )
