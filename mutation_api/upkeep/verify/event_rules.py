"""Rules on the events of one file, a stripe at a time, and on its footer. Pure, vectorised.

Each rule is a function from the events to a mask of those that violate it, with a message for the first of
them.

The footer must have the right key index, counts, version, compression and number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mutation_api.format.event import (
    ACID_STATS,
    ACID_VERSION,
    KEY_INDEX,
    Operation,
    RecordIdentifier,
    bucket_ids,
    statement_ids,
    unreadable_properties,
)
from mutation_api.format.layout import AcidVersion
from mutation_api.format.merge_events import EventKeys, find_disorder
from mutation_api.orc.format.protobuf import MAGIC
from mutation_api.orc.format.tail import OrcTail
from mutation_api.orc.read.event_file import EventFile, EventFileKind

_Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Broken:
    """A rule that some events of a stripe violate: the index of the first one, and their number."""

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
    """Yield the rules that the events of a stripe violate.

    Args:
        keys: the events of the stripe, at least one.
        previous: the last event before them in the file, if any.
        has_row: True for each event that has a row. If None, all events have one.
        file: the file; its kind, ids and bucket determine what it may hold.
        version: the layout of the table.
        bucket_limit: the number that all buckets must be below.
        any_bucket: True if events of other buckets than the file's are allowed.
    """
    yield from _operations(keys, has_row, file, version)
    yield from _order(keys, previous, file, version)
    yield from _ids(keys, file, version)
    yield from _buckets(keys, file, version, bucket_limit, any_bucket=any_bucket)


def _broken(rule_name: str, mask: _Mask, found: str, expected: str) -> Iterator[Broken]:
    if mask.any():
        yield Broken(rule_name, int(mask.argmax()), int(mask.sum()), found, expected)


def _first(mask: _Mask, values: NDArray[np.integer]) -> int:
    """Return the value at the first True of a mask; any value if there is none."""
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
        return [Operation.INSERT, Operation.UPDATE]  # updates are older than the upgrade of a legacy table
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
    """Yield events that have the key of the previous event although each row may have only one event."""
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
    yield from _broken(rule_name, same, "the ROW__ID of the previous event", "one event per row")


def twice_rule(version: AcidVersion) -> str:
    """Return the rule that two rows with the same ROW__ID violate."""
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
    """Find deletes that Hive 4 ignores: those under the id of their row, unless its statement is earlier."""
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
        return  # a compaction may have merged several statements into it
    found = statement_ids(keys.bucket)
    other = (found != file.statement_id) & ~unreadable & (keys.bucket >> 29 == 1)
    yield from _broken(
        "statement", other, f"statement {_first(other, found)}", f"statement {file.statement_id}"
    )


_VERSION_2 = b"2"
_LEAST_VERSION_OF_OTHERS = 6
"""Lowest version of writers other than Java's; Hive 4 refuses lower ones."""
_VERSIONS = ((), (0, 11), (0, 12))
"""Versions of the format. Hive 4 refuses files of other versions; Hive 2.3 only warns."""


@dataclass(frozen=True)
class FooterFault:
    """A violated rule on a footer."""

    rule_name: str
    found: str
    expected: str


@dataclass(frozen=True)
class FileCounts:
    """The result of reading a whole file: events by operation, and the last key of each stripe."""

    operations: Sequence[int]
    last_keys: Sequence[RecordIdentifier]


def layout_faults(tail: OrcTail, byte_count: int) -> Iterator[FooterFault]:
    """Yield stripes at wrong positions, and contradicting row counts."""
    if tail.version[:2] not in _VERSIONS:
        yield FooterFault("unreadable", f"version {'.'.join(map(str, tail.version))}", "version 0.11 or 0.12")
    least = 0 if tail.writer == 0 else _LEAST_VERSION_OF_OTHERS
    if tail.writer_version is not None and not least <= tail.writer_version < 2**31:
        found = f"version {tail.writer_version} of writer {tail.writer}"
        yield FooterFault("unreadable", found, f"a version from {least}")
    if tail.statistics_count != len(tail.nodes):
        found = f"statistics of {tail.statistics_count} columns"
        yield FooterFault("unreadable", found, f"of all {len(tail.nodes)} columns")
    in_stripes = sum(stripe.row_count for stripe in tail.stripes)
    if in_stripes != tail.row_count:
        yield FooterFault(
            "row-count", f"{in_stripes} rows in stripes", f"{tail.row_count} rows in the footer"
        )
    data_end = byte_count - tail.footer_length - tail.statistics_length - tail.postscript_length - 1
    last = tail.stripes[-1].end if tail.stripes else len(MAGIC)
    if last != data_end:
        yield FooterFault(
            "unreadable", f"{data_end - last} bytes after the stripes", "stripes up to the statistics"
        )
    # Java includes the magic bytes, C++ does not.
    if tail.stripes and tail.content_length not in (None, last, last - len(MAGIC)):
        yield FooterFault("unreadable", f"stripes up to byte {last}", f"{tail.content_length} in the footer")


def codec_faults(tail: OrcTail, version: AcidVersion) -> Iterator[FooterFault]:
    """Yield a compression that the table's Hive does not support."""
    codec = tail.compression.name.lower()
    if codec not in (*version.compressions, "lzo"):
        yield FooterFault("codec", codec, "one of " + ", ".join(version.compressions))


def footer_faults(
    tail: OrcTail, counts: FileCounts, file: EventFile, version: AcidVersion
) -> Iterator[FooterFault]:
    """Yield entries of the footer that contradict the events.

    Args:
        tail: the file's tail.
        counts: the counts of the same file, read to its end.
        file: its kind determines which entries are required.
        version: the layout of the table.
    """
    yield from _key_index_faults(tail, counts, file, version)
    yield from _stats_faults(tail, counts, file, version)
    found = tail.user_metadata.get(ACID_VERSION)
    expected = _VERSION_2 if version.uses_write_ids else None
    if found is not None and found != expected and version.uses_write_ids:
        yield FooterFault("acid-version", repr(found.decode(errors="replace")), "'2'")


def _key_index_faults(
    tail: OrcTail, counts: FileCounts, file: EventFile, version: AcidVersion
) -> Iterator[FooterFault]:
    text = tail.user_metadata.get(KEY_INDEX)
    if text is None:
        # Hive 4 only warns, and its merging compaction leaves the entry out.
        is_base_like = file.kind is EventFileKind.BASE or (
            version.splits_updates and file.kind is EventFileKind.DELTA
        )
        if is_base_like and not version.is_hive_4:
            yield FooterFault("key-index", "no entry", "one key per stripe")
        return
    is_of_deletes = file.kind is EventFileKind.DELETE_DELTA
    rule_name = (
        "key-index-of-deletes" if is_of_deletes else "key-index"
    )  # Trino writes a different one for deletes
    keys = [each for each in text.decode(errors="replace").split(";") if each]
    expected = [f"{key.original_txn},{key.bucket},{key.row_id}" for key in counts.last_keys]
    # Hive 2 writes the footer before the last stripe. All readers accept that.
    fewest = len(expected) - (0 if version.uses_write_ids else 1)
    if not fewest <= len(keys) <= len(expected):
        yield FooterFault(rule_name, f"{len(keys)} keys", f"{len(expected)} keys, one per stripe")
        return
    for number, (key, last) in enumerate(zip(keys, expected, strict=False)):
        if key != last:
            yield FooterFault(rule_name, f"{key[:80]} for stripe {number}", last)
            return


def _stats_faults(
    tail: OrcTail, counts: FileCounts, file: EventFile, version: AcidVersion
) -> Iterator[FooterFault]:
    text = tail.user_metadata.get(ACID_STATS)
    expected = ",".join(str(counts.operations[operation]) for operation in Operation)
    if text is None:
        if file.kind is EventFileKind.DELETE_DELTA and not version.is_hive_4:
            yield FooterFault("acid-stats", "no entry", expected)
        return
    found = text.decode(errors="replace")
    if found != expected and not _is_of_hive_2(found, file, version):
        is_harmless = file.kind is EventFileKind.DELETE_DELTA and (version.is_hive_4 or found[-2:] != ",0")
        yield FooterFault("acid-stats-of-deletes" if is_harmless else "acid-stats", found[:80], expected)


def _is_of_hive_2(found: str, file: EventFile, version: AcidVersion) -> bool:
    """Return True if these counts mean a delete delta: Hive 2.3 writes them if a delete came first."""
    is_its_delta = version.splits_updates and not version.uses_write_ids and file.kind is EventFileKind.DELTA
    return is_its_delta and found.startswith("0,0,")
