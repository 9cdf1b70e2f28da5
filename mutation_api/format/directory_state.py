"""DirectoryState: the directories and files of a partition that make up a snapshot. Pure.

A partition directory contains generations of the same rows: bases, deltas of single transactions, deltas that
a compaction made from several, and files from before the table was transactional. Only the lists of valid ids
decide which of them a reader must read.

Source: Hive's AcidUtils.getAcidState (2.3, 3.1, 4.x). Tests compare with it on random directories.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from metastore_client.valid_ids import RangeValidity, ValidIdList, ValidTxnList
from mutation_api.errors import DirectoryStateError
from mutation_api.format.layout import (
    LONG_MIN,
    AcidVersion,
    BaseDirectory,
    DeltaDirectory,
    is_hidden,
    parse_directory_name,
)

COMPACTED = "compacted"
"""The ``dataFormat`` of the marker in a base that a compaction made."""

_NO_STATEMENT = -1
"""The number that sorts directories without a statement id before those with one."""


@dataclass(frozen=True)
class DirectoryState:
    """The part of a partition directory that a snapshot reads. All names are children of that directory.

    ``deltas`` contains insert and delete deltas in the order in which Hive reads them. With a base,
    ``original_files`` and ``original_directories`` are empty. ``obsolete`` lists the directories and files
    that this snapshot does not need because a chosen directory covers them. Directories that are too new for
    the snapshot are in no list.
    """

    base: BaseDirectory | None
    deltas: tuple[DeltaDirectory, ...]
    original_files: tuple[str, ...]
    original_directories: tuple[str, ...]
    obsolete: tuple[str, ...]


def choose_directories(
    directories: Iterable[str],
    files: Mapping[str, int],
    valid: ValidIdList,
    *,
    version: AcidVersion,
    location: str,
    valid_txns: ValidTxnList | None = None,
    base_formats: Mapping[str, str] | None = None,
) -> DirectoryState:
    """Choose the directories and files that a snapshot reads.

    Args:
        directories: names of the child directories, including hidden ones.
        files: sizes in bytes of the child files by name, including hidden ones.
        valid: the ids that the snapshot sees: transactions in v1, write ids of the table in v2.
        version: the layout, which decides which names are allowed and when a base is visible.
        location: the partition directory, only for messages.
        valid_txns: the transactions that the snapshot sees. Required if a name contains the transaction of a
            compaction.
        base_formats: ``dataFormat`` of the markers in bases, by directory name, if ``version.marks_bases``.

    Raises:
        DirectoryStateError: If Hive fails on a name or loses its rows, or if two directories have the same
            kind and range (Hive would read both). Also if a directory was compacted but ``valid_txns`` is
            missing, or if there are bases but this snapshot may use none of them (it is older than a
            compaction).
    """
    acid, original_directories = _parse(sorted(directories), version, location)
    acid = [d for d in acid if _is_finished(d, valid_txns, location)]
    bases = [d for d in acid if isinstance(d, BaseDirectory)]
    compacted = {b for b in bases if is_compacted(b, version, base_formats or {}, location)}
    base = _best_base(bases, compacted, valid, version, location)
    visible = [d for d in acid if isinstance(d, DeltaDirectory) and _is_visible(d, valid)]
    deltas, covered = _choose_deltas(visible, base.last if base else 0, valid)
    _check_no_doubles(deltas, location)
    original_files = [name for name in sorted(files) if files[name] > 0 and not is_hidden(name)]
    originals = original_files + original_directories
    return DirectoryState(
        base=base,
        deltas=tuple(deltas),
        original_files=() if base else tuple(original_files),
        original_directories=() if base else tuple(original_directories),
        obsolete=tuple(
            [b.name for b in bases if base and b != base and b.last <= base.last]
            + [d.name for d in covered]
            + (originals if base else [])
        ),
    )


def _parse(
    names: Iterable[str], version: AcidVersion, location: str
) -> tuple[list[BaseDirectory | DeltaDirectory], list[str]]:
    acid: list[BaseDirectory | DeltaDirectory] = []
    others: list[str] = []
    for name in names:
        if is_hidden(name):
            continue
        try:
            parsed = parse_directory_name(name, version)
        except DirectoryStateError as error:
            raise DirectoryStateError(f"{location}: {error}") from error
        if parsed is None:
            others.append(name)
        else:
            acid.append(parsed)
    return acid, others


def _is_finished(
    directory: BaseDirectory | DeltaDirectory, valid_txns: ValidTxnList | None, location: str
) -> bool:
    """Return True if the compaction that made a directory has committed, as far as the snapshot sees."""
    if directory.compaction_txn == 0:
        return True
    if valid_txns is None:
        raise DirectoryStateError(
            f"{location}: {directory.name} was made by the compaction of transaction "
            f"{directory.compaction_txn}, but the list of valid transactions (valid_txns) is missing, so "
            "it is unknown whether the compaction has committed: pass the list"
        )
    return valid_txns.is_valid(directory.compaction_txn)


def is_compacted(
    base: BaseDirectory, version: AcidVersion, base_formats: Mapping[str, str], location: str
) -> bool:
    """Return True if a compaction wrote a base, False if an overwrite did.

    For the arguments and DirectoryStateError see :func:`choose_directories`.
    """
    marker = base_formats.get(base.name)
    if marker not in (None, COMPACTED) and not version.is_hive_4:
        raise DirectoryStateError(
            f"{location}/{base.name} has a marker with dataFormat {marker!r}; Hive before 4 supports only "
            f"{COMPACTED!r} and fails"
        )
    return not version.marks_bases or base.compaction_txn > 0 or marker == COMPACTED


def _best_base(
    bases: list[BaseDirectory],
    compacted: set[BaseDirectory],
    valid: ValidIdList,
    version: AcidVersion,
    location: str,
) -> BaseDirectory | None:
    def is_usable(base: BaseDirectory) -> bool:
        if base.last == LONG_MIN:
            return True
        # Hive 4.1 also accepts the base of the smallest open id: its own readers see it before it commits.
        return valid.is_valid_base(base.last) if base in compacted else valid.is_valid(base.last)

    usable = [b for b in bases if is_usable(b)]
    # A base of an INSERT OVERWRITE that the snapshot does not see erased nothing that the snapshot needs. But
    # what a compaction covered may already be deleted.
    decisive = [b for b in bases if b in compacted] if version.is_hive_4 else bases
    if decisive and not usable:
        raise DirectoryStateError(
            f"{location}: not enough history: its bases ({', '.join(b.name for b in bases)}) come from "
            f"compactions newer than the snapshot with valid ids {valid.to_write_id_text()!r}; take a new "
            "snapshot"
        )
    # Hive takes any of several compacted bases with the same id, since they contain the same rows.
    return max(usable, key=lambda b: (b.last, b in compacted, b.compaction_txn), default=None)


def _check_no_doubles(deltas: list[DeltaDirectory], location: str) -> None:
    found: dict[tuple[int, int, int | None, bool], str] = {}
    for delta in deltas:
        key = (delta.first, delta.last, delta.statement_id, delta.is_delete)
        if key in found:
            raise DirectoryStateError(
                f"{location}: {found[key]} and {delta.name} contain the same events; Hive reads both and "
                "shows their rows twice, or fails where they have deletes. Wait until the cleaner has "
                "removed one, or move one away"
            )
        found[key] = delta.name


def _is_visible(delta: DeltaDirectory, valid: ValidIdList) -> bool:
    return valid.range_validity(delta.first, delta.last) is not RangeValidity.NONE


def _choose_deltas(
    visible: list[DeltaDirectory], base_last: int, valid: ValidIdList
) -> tuple[list[DeltaDirectory], list[DeltaDirectory]]:
    """Return the deltas to read and those that are covered.

    The deltas are visited from old to new, wide before narrow. A wide delta covers the narrow ones inside it.
    """
    chosen: list[DeltaDirectory] = []
    covered: list[DeltaDirectory] = []
    current, has_statement = base_last, False
    for delta in sorted(visible, key=_reading_order):
        if delta.last > current:
            if valid.range_validity(current + 1, delta.last) is RangeValidity.NONE:
                continue
            current, has_statement = delta.last, delta.statement_id is not None
        elif delta.last == current and has_statement:
            pass  # another statement of the same transaction
        elif not (chosen and _same_range(delta, chosen[-1])):  # the delta beside its delete_delta
            covered.append(delta)
            continue
        chosen.append(delta)
    return chosen, covered


def _reading_order(delta: DeltaDirectory) -> tuple[int, int, int, str]:
    statement = _NO_STATEMENT if delta.statement_id is None else delta.statement_id
    return (delta.first, -delta.last, statement, delta.name)


def _same_range(one: DeltaDirectory, other: DeltaDirectory) -> bool:
    return (one.first, one.last, one.statement_id) == (other.first, other.last, other.statement_id)


def first_missing(past: ValidIdList, now: ValidIdList) -> int | None:
    """Return the lowest id that is visible now but not in the past; None if there is none."""
    missing = [id for id in past.exceptions if now.is_valid(id)]
    above = range(past.high_watermark + 1, now.high_watermark + 1)
    missing.extend(next(([id] for id in above if now.is_valid(id)), []))
    return min(missing, default=None)


def spans(
    directory: BaseDirectory | DeltaDirectory, past: ValidIdList, missing: int, version: AcidVersion
) -> bool:
    """Return True if a directory contains rows of the past and later rows and does not distinguish them.

    ``missing`` is the result of :func:`first_missing`.
    """
    if isinstance(directory, BaseDirectory):
        return directory.last >= missing
    if version.has_row_ids or directory.first == directory.last:
        return False
    return past.range_validity(directory.first, directory.last) is RangeValidity.SOME
