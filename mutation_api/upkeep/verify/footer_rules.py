"""Rules on the footer of an ACID file: key index, counts, version, compression, number of rows. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mutation_api.acid.event import Operation
from mutation_api.acid.footer import ACID_STATS, ACID_VERSION, KEY_INDEX
from mutation_api.acid.row_id import RecordIdentifier
from mutation_api.acid.version import AcidVersion
from mutation_api.orc.format.orc_proto import MAGIC
from mutation_api.orc.format.tail import OrcTail
from mutation_api.orc.read.event_file import EventFile, EventFileKind

__all__ = ["FileCounts", "FooterFault", "codec_faults", "footer_faults", "layout_faults"]

_VERSION_2 = b"2"
_LEAST_VERSION_OF_OTHERS = 6
"""Of writers other than Java's; Hive 4 refuses lower ones."""
_VERSIONS = ((), (0, 11), (0, 12))
"""Of the format. Hive 4 refuses files of all others, Hive 2.3 only warns."""


@dataclass(frozen=True)
class FooterFault:
    """A rule that a footer breaks."""

    rule_name: str
    found: str
    expected: str


@dataclass(frozen=True)
class FileCounts:
    """What reading a whole file showed: events by operation, and the last key of each stripe."""

    operations: Sequence[int]
    last_keys: Sequence[RecordIdentifier]


def layout_faults(tail: OrcTail, byte_count: int) -> Iterator[FooterFault]:
    """Stripes that do not lie where stripes can lie, or rows that are counted differently."""
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
            "row-count", f"{in_stripes} rows in stripes", f"{tail.row_count} rows as the footer"
        )
    data_end = byte_count - tail.footer_length - tail.statistics_length - tail.postscript_length - 1
    last = tail.stripes[-1].end if tail.stripes else len(MAGIC)
    if last != data_end:
        yield FooterFault(
            "unreadable", f"{data_end - last} bytes behind the stripes", "stripes up to the statistics"
        )
    # Java counts the magic, C++ does not.
    if tail.stripes and tail.content_length not in (None, last, last - len(MAGIC)):
        yield FooterFault("unreadable", f"stripes up to byte {last}", f"{tail.content_length} as the footer")


def codec_faults(tail: OrcTail, version: AcidVersion) -> Iterator[FooterFault]:
    """A compression that the table's Hive does not know."""
    codec = tail.compression.name.lower()
    if codec not in (*version.compressions, "lzo"):
        yield FooterFault("codec", codec, "one of " + ", ".join(version.compressions))


def footer_faults(
    tail: OrcTail, counts: FileCounts, file: EventFile, version: AcidVersion
) -> Iterator[FooterFault]:
    """Entries of the footer that contradict the events.

    Args:
        tail: the file's tail.
        counts: of the same file, read to its end.
        file: its kind decides which entries are needed.
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
            yield FooterFault("key-index", "no entry", "one key a stripe")
        return
    is_of_deletes = file.kind is EventFileKind.DELETE_DELTA
    rule_name = (
        "key-index-of-deletes" if is_of_deletes else "key-index"
    )  # Trino writes another one for deletes
    keys = [each for each in text.decode(errors="replace").split(";") if each]
    expected = [f"{key.original_txn},{key.bucket},{key.row_id}" for key in counts.last_keys]
    # Hive 2 writes the footer before the last stripe. All readers accept that.
    fewest = len(expected) - (0 if version.uses_write_ids else 1)
    if not fewest <= len(keys) <= len(expected):
        yield FooterFault(rule_name, f"{len(keys)} keys", f"{len(expected)} keys, one a stripe")
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
        yield FooterFault("acid-stats", found[:80], expected)


def _is_of_hive_2(found: str, file: EventFile, version: AcidVersion) -> bool:
    """Hive 2.3 writes the counts of the delete delta into a delta whose statement began with a delete."""
    is_its_delta = version.splits_updates and not version.uses_write_ids and file.kind is EventFileKind.DELTA
    return is_its_delta and found.startswith("0,0,")
