"""Checks that the output of the tasks is consistent. Pure; each error names the two sides of a contradiction.

A missing manifest loses rows, and a manifest that occurs twice duplicates rows. So nothing is published
before every check of every table has passed. Manifests come from workers and are not trusted: each must refer
to a file in the staging directory of its attempt, or to an upload to the one location where it belongs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from metastore_client.partition_name import parse_partition_name
from mutation_api.errors import ManifestError, listed
from mutation_api.format.layout import AcidVersion
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import Staged
from mutation_api.table.acid_table import AcidTable
from mutation_api.transaction.manifest import DeltaManifest, FileKind, parse_attempt_mark, relative_path


@dataclass(frozen=True)
class StagedFile:
    """A file found in the staging directory, with its size in bytes."""

    writer_id: str
    attempt_id: str
    location: Location
    size: int


@dataclass(frozen=True)
class StagedOutput:
    """The output staged for a table: files in its staging directories, and uploads to its final locations.

    If an attempt uploads, its only file is its mark (see ``staging``).
    """

    files: tuple[StagedFile, ...]
    uploads: tuple[Staged, ...] = ()


def relative_final_path(manifest: DeltaManifest, version: AcidVersion) -> str:
    """Return the path of the file below its partition: ``delta_0000005_0000005_0000/bucket_00001``."""
    return relative_path(manifest.kind, manifest.write_id, manifest.bucket_id, version, manifest.statement_id)


def check_manifests(
    table: AcidTable, writers: Collection[str], manifests: Sequence[DeltaManifest], *, insert_only: bool
) -> None:
    """Check the manifests of one table against each other and against the table.

    Args:
        table: the table, bound to the transaction.
        writers: ids of the writers that have handed in their manifests.
        manifests: the manifests of all writers.
        insert_only: True if the table's lock allows inserts only.

    Raises:
        ManifestError: If a rule is violated; each function below checks one rule.
    """
    for manifest in manifests:
        _check_owner(table, writers, manifest)
        _check_target(table, manifest)
        _check_counts(table, manifest)
        if insert_only and manifest.update_count + manifest.delete_count:
            raise ManifestError(
                f"{_where(manifest)}: {manifest.update_count} updates and {manifest.delete_count} deletes, "
                "but the sink was added with insert_only=True"
            )
    _check_unique(manifests)
    if _has_delete_deltas(table.version):
        _check_pairs(manifests)


def check_staged(
    table: AcidTable, writers: Collection[str], manifests: Sequence[DeltaManifest], found: StagedOutput
) -> None:
    """Check the staged files and uploads against the manifests.

    Files and uploads of an attempt without any manifest are allowed if the writer is known, because another
    attempt has won. Missing uploads are not detected here: not every store lists uploads, and completing a
    missing one fails.

    Raises:
        ManifestError: If a file belongs to an unknown writer, if an attempt did not report a file or upload,
            if a reported file is not one of its attempt or has another size, or if an upload is in the wrong
            location.
    """
    strangers = sorted({f.writer_id for f in found.files} - set(writers))
    if strangers:
        raise ManifestError(
            f"table {table.full_name}, transaction {table.txn_id}: {listed(strangers)} wrote files but "
            "handed in no manifests, so the rows would be lost. Close the coordinator and call "
            "transaction.add_manifests()"
        )
    _check_named_files(table, manifests, found.files)
    attempts = {(m.writer_id, m.attempt_id) for m in manifests}
    reported = {m.staged.location for m in manifests}
    forgotten = [
        str(f.location)
        for f in found.files
        if (f.writer_id, f.attempt_id) in attempts and f.location not in reported and not _is_mark(f)
    ]
    if all((f.writer_id, f.attempt_id) in attempts for f in found.files):
        # A location has two uploads if the request was repeated because its response was lost.
        forgotten += [str(u.location) for u in found.uploads if u.location not in reported]
    if forgotten:
        raise ManifestError(
            f"table {table.full_name}, transaction {table.txn_id}: no manifest for "
            f"{listed(sorted(forgotten))}, although the same attempt handed in others; the rows would be "
            "lost. Call transaction.add_manifests() with all manifests of the attempt"
        )


def _check_named_files(
    table: AcidTable, manifests: Sequence[DeltaManifest], files: Sequence[StagedFile]
) -> None:
    sizes = {(f.writer_id, f.attempt_id, f.location): f.size for f in files if not _is_mark(f)}
    for manifest in manifests:
        location = manifest.staged.location
        if manifest.staged.upload_id:
            target = table.partition_location(manifest.partition_name)
            target /= relative_final_path(manifest, table.version)
            if location != target:
                raise ManifestError(f"{_where(manifest)}: uploaded to {location}, expected {target}")
            continue
        size = sizes.get((manifest.writer_id, manifest.attempt_id, location))
        if size != manifest.byte_count:
            found = "is not in the directory of the attempt" if size is None else f"has {size} bytes"
            raise ManifestError(
                f"{_where(manifest)}: staged file {location} {found}; "
                f"its manifest says {manifest.byte_count} bytes"
            )


def _is_mark(file: StagedFile) -> bool:
    return parse_attempt_mark(file.location.name) is not None


def _check_owner(table: AcidTable, writers: Collection[str], manifest: DeltaManifest) -> None:
    if (manifest.database, manifest.table) != (table.database, table.name):
        raise ManifestError(f"{_where(manifest)}: handed in for table {table.full_name}")
    if manifest.txn_id != table.txn_id:
        raise ManifestError(f"{_where(manifest)}: handed in to transaction {table.txn_id}")
    if manifest.write_id != table.required_write_id():
        raise ManifestError(
            f"{_where(manifest)}: written under id {manifest.write_id}; the transaction's id for the table "
            f"is {table.required_write_id()}, and readers filter by it"
        )
    if manifest.writer_id not in writers:
        raise ManifestError(f"{_where(manifest)}: writer {manifest.writer_id!r} has not been announced")


def _check_target(table: AcidTable, manifest: DeltaManifest) -> None:
    if not 0 <= manifest.bucket_id < table.bucket_limit:
        raise ManifestError(f"{_where(manifest)}: the table has only buckets 0 to {table.bucket_limit - 1}")
    if len(manifest.partition_values) != len(table.partition_keys):
        raise ManifestError(
            f"{_where(manifest)}: got {len(manifest.partition_values)} partition values; the table has "
            f"{len(table.partition_keys)} partition keys"
        )
    if not _names_partition(table, manifest):
        raise ManifestError(
            f"{_where(manifest)}: the partition's name does not match the table's partition keys "
            f"({', '.join(table.partition_key_names) or 'none'}) and its values {manifest.partition_values}"
        )
    if manifest.kind is FileKind.DELETE_DELTA and not _has_delete_deltas(table.version):
        raise ManifestError(
            f"{_where(manifest)}: a table in {table.version.value} layout has no delete deltas"
        )
    expected = relative_final_path(manifest, table.version)
    if not manifest.target.path.endswith(f"/{expected}"):
        raise ManifestError(f"{_where(manifest)}: target {manifest.target} does not end in {expected}")


def _names_partition(table: AcidTable, manifest: DeltaManifest) -> bool:
    if not manifest.partition_name:
        return not table.partition_keys
    try:
        pairs = parse_partition_name(manifest.partition_name)
    except ValueError:
        return False
    return pairs == tuple(zip(table.partition_key_names, manifest.partition_values, strict=True))


def _has_delete_deltas(version: AcidVersion) -> bool:
    return version.splits_updates and version.has_row_ids


def _check_counts(table: AcidTable, manifest: DeltaManifest) -> None:
    counts = {
        "inserts": manifest.insert_count,
        "updates": manifest.update_count,
        "deletes": manifest.delete_count,
    }
    absent: tuple[str, ...] = ()
    if not table.version.has_row_ids:
        absent = ("updates", "deletes")
    elif table.version.splits_updates:
        absent = ("deletes",) if manifest.kind is FileKind.DELTA else ("inserts",)
    wrong = [k for k, n in counts.items() if n < 0 or (n and k in absent)]
    if wrong or sum(counts.values()) != manifest.row_count:
        raise ManifestError(
            f"{_where(manifest)}: {manifest.row_count} rows in a {manifest.kind.value} cannot be "
            + ", ".join(f"{n} {k}" for k, n in counts.items())
        )


def _check_unique(manifests: Iterable[DeltaManifest]) -> None:
    count = Counter(m.group for m in manifests)
    for manifest in manifests:
        if count[manifest.group] > 1:
            writers = sorted({m.writer_id for m in manifests if m.group == manifest.group})
            raise ManifestError(
                f"{_where(manifest)}: written {count[manifest.group]} times, by {listed(writers)}; the "
                "writers of a change set must write different groups: combine the changes of a group in "
                "one writer"
            )


def _check_pairs(manifests: Iterable[DeltaManifest]) -> None:
    """Check that each split update has both of its events; one without the other corrupts a row."""
    updates: dict[tuple[object, ...], dict[FileKind, int]] = defaultdict(dict)
    for manifest in manifests:
        updates[manifest.group[:-1]][manifest.kind] = manifest.update_count
    for manifest in manifests:
        halves = updates[manifest.group[:-1]]
        inserted, deleted = halves.get(FileKind.DELTA, 0), halves.get(FileKind.DELETE_DELTA, 0)
        if inserted != deleted:
            raise ManifestError(
                f"{_where(manifest)}: {inserted} updates in the delta but {deleted} in the delete delta"
            )


def _where(manifest: DeltaManifest) -> str:
    partition = f" partition {manifest.partition_name}" if manifest.partition_name else ""
    return (
        f"transaction {manifest.txn_id}, table {manifest.full_table_name}{partition} "
        f"bucket {manifest.bucket_id} {manifest.kind.value} of statement {manifest.statement_id}, "
        f"writer {manifest.writer_id!r} attempt {manifest.attempt_id!r}"
    )
