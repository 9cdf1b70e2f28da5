"""Contradictions are named; consistent output passes. How a refusal leaves the table: test_committer."""

from __future__ import annotations

import dataclasses

import pytest

from mutation_api.errors import MAX_NAMES_IN_MESSAGE, ManifestError
from mutation_api.format.layout import AcidVersion
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import Staged
from mutation_api.table.acid_table import AcidTable, TableRole
from mutation_api.transaction.descriptors import describe
from mutation_api.transaction.manifest import DeltaManifest, FileKind
from mutation_api.transaction.manifest_checks import (
    StagedFile,
    StagedOutput,
    check_manifests,
    check_staged,
    relative_final_path,
)
from tests.support.client_support import table_info

V2 = [version for version in AcidVersion if version.encodes_buckets]
INSERT_ONLY = [version for version in AcidVersion if not version.has_row_ids]


def table_of(version: AcidVersion = AcidVersion.V1_LEGACY) -> AcidTable:
    info = table_info(location="file:/w/t")
    table = describe(info, version, TableRole.SINK, create_partitions=False, time_zone=None)
    return table.bind(7, 7 if version.uses_write_ids else None)


def manifest(version: AcidVersion = AcidVersion.V1_LEGACY, **changes: object) -> DeltaManifest:
    fields: dict[str, object] = {
        "database": "default", "table": "t", "txn_id": 7, "write_id": 7,
        "partition_name": "ds=a/hr=1",
        "partition_values": ("a", "1"), "bucket_id": 1, "kind": FileKind.DELTA, "writer_id": "w",
        "attempt_id": "0", "staged": Staged(Location.parse("/s")),
        "target": Location.parse("/"), "insert_count": 2, "update_count": 0,
        "delete_count": 0, "row_count": 2, "byte_count": 10, "stripe_count": 1, "tail_crc32": 0,
    }  # fmt: skip
    made = DeltaManifest(**(fields | changes))  # type: ignore[arg-type]
    return dataclasses.replace(
        made, target=Location.parse("/w/t/ds=a/hr=1") / relative_final_path(made, version)
    )


def output(*files: tuple[str, str, str, int], uploads: tuple[Staged, ...] = ()) -> StagedOutput:
    """Files as (writer, attempt, path, size)."""
    return StagedOutput(tuple(StagedFile(w, a, Location.parse(p), n) for w, a, p, n in files), uploads)


def upload(number: int) -> Staged:
    target = f"file:/w/t/ds=a/hr=1/delta_0000007_0000007_0000/bucket_{number:05d}"
    return Staged(Location.parse(target), f"id{number}", ("e",))


def delete_half(version: AcidVersion = AcidVersion.V1_SPLIT, **changes: object) -> DeltaManifest:
    return manifest(version, **{"kind": FileKind.DELETE_DELTA, "insert_count": 0, "row_count": 1, **changes})


@pytest.mark.parametrize("version", [v for v in AcidVersion if v.has_row_ids])
def test_names_of_final_files(version: AcidVersion) -> None:
    """Statement 0, as Hive's SQL; seven digits for the write id, five for the bucket."""
    made = manifest(version, write_id=10_000_001)
    assert relative_final_path(made, version) == "delta_10000001_10000001_0000/bucket_00001"
    deletes = delete_half(version, write_id=3)
    assert relative_final_path(deletes, version) == "delete_delta_0000003_0000003_0000/bucket_00001"


@pytest.mark.parametrize("version", INSERT_ONLY)
def test_files_of_insert_only_tables_are_named_as_hives_tasks_name_them(version: AcidVersion) -> None:
    """Six digits and an attempt, which is always 0."""
    assert relative_final_path(manifest(version), version) == "delta_0000007_0000007_0000/000001_0"


@pytest.mark.parametrize("version", INSERT_ONLY)
def test_an_insert_only_table_takes_inserts_only(version: AcidVersion) -> None:
    """Its rows have no ROW__ID, so an update or a delete cannot name them."""
    check_manifests(table_of(version), {"w"}, [manifest(version)], insert_only=False)
    for wrong, message in [
        (manifest(version, update_count=1, row_count=3), "3 rows in a delta cannot be 2 inserts, 1 updates"),
        (delete_half(version, delete_count=1), "has no delete deltas"),
    ]:
        with pytest.raises(ManifestError, match=message):
            check_manifests(table_of(version), {"w"}, [wrong], insert_only=False)


@pytest.mark.parametrize("version", V2)
def test_halves_of_updates_match_in_v2_too(version: AcidVersion) -> None:
    """One half of an update loses or doubles a row."""
    update = manifest(version, insert_count=0, update_count=1, row_count=1)
    check_manifests(
        table_of(version), {"w"}, [update, delete_half(version, update_count=1)], insert_only=False
    )
    with pytest.raises(ManifestError, match="1 updates in the delta but 0 in the delete delta"):
        check_manifests(table_of(version), {"w"}, [update], insert_only=False)


@pytest.mark.parametrize("version", V2)
def test_tables_without_buckets_take_any_bucket_id(version: AcidVersion) -> None:
    """It is the number of a writer there; 12 bits hold it."""
    table = dataclasses.replace(table_of(version), bucket_columns=(), num_buckets=-1)
    check_manifests(table, {"w"}, [manifest(version, bucket_id=n) for n in (0, 4095)], insert_only=False)
    with pytest.raises(ManifestError, match="buckets 0 to 4095"):
        check_manifests(table, {"w"}, [manifest(version, bucket_id=4096)], insert_only=False)


@pytest.mark.parametrize("version", [AcidVersion.V1_SPLIT, *V2, *INSERT_ONLY])
def test_a_file_under_another_write_id_is_refused(version: AcidVersion) -> None:
    """Readers would never see it, or some would see it too early."""
    with pytest.raises(ManifestError, match="written under id 8; the transaction's id for the table is 7"):
        check_manifests(table_of(version), {"w"}, [manifest(version, write_id=8)], insert_only=False)


@pytest.mark.parametrize("insert_only", [False, True])
def test_what_fits_passes(insert_only: bool) -> None:
    """One manifest for each bucket; none at all is fine too."""
    both = [manifest(bucket_id=0), manifest(bucket_id=1)]
    check_manifests(table_of(), {"w"}, both, insert_only=insert_only)
    check_manifests(table_of(), set(), [], insert_only=insert_only)


def test_halves_of_updates_match_bucket_by_bucket() -> None:
    """Equal sums over the table are not enough."""
    table = table_of(AcidVersion.V1_SPLIT)
    update = {"insert_count": 0, "update_count": 1, "row_count": 1}
    check_manifests(table, {"w"}, [manifest(**update), delete_half(update_count=1)], insert_only=False)
    crossed = [manifest(**update, bucket_id=0), delete_half(update_count=1, bucket_id=1)]
    with pytest.raises(ManifestError, match="1 updates in the delta but 0 in the delete delta"):
        check_manifests(table, {"w"}, crossed, insert_only=False)


@pytest.mark.parametrize(
    "wrong",
    [
        manifest(insert_count=0, delete_count=2),
        delete_half(insert_count=1),
        manifest(row_count=3),
    ],
)
def test_a_split_file_holds_its_own_kind_only(wrong: DeltaManifest) -> None:
    """Deletes in a delta, inserts in a delete delta, or a sum that is wrong."""
    with pytest.raises(ManifestError, match=f"{wrong.row_count} rows in a {wrong.kind.value} cannot be"):
        check_manifests(table_of(AcidVersion.V1_SPLIT), {"w"}, [wrong], insert_only=False)


def test_an_insert_only_lock_allows_no_changes() -> None:
    """Another writer may change the same row under such a lock."""
    changed = manifest(update_count=1, row_count=3)
    with pytest.raises(ManifestError, match=r"1 updates and 0 deletes, but the sink .* insert_only=True"):
        check_manifests(table_of(), {"w"}, [changed], insert_only=True)


def test_the_message_says_where() -> None:
    """Transaction, table, partition, bucket, kind, writer and attempt: enough to find the task."""
    with pytest.raises(ManifestError) as caught:
        check_manifests(table_of(), {"w"}, [manifest(bucket_id=5)], insert_only=False)
    assert str(caught.value) == (
        "transaction 7, table default.t partition ds=a/hr=1 bucket 5 delta of statement 0, writer 'w' "
        "attempt '0': the table has only buckets 0 to 1"
    )


def test_a_losing_attempt_may_leave_files() -> None:
    """Files of a known writer whose attempt has no manifest do not count as rows."""
    check_staged(table_of(), {"w"}, [manifest()], output(("w", "0", "/s", 10), ("w", "1", "/loser", 99)))


def test_strangers_are_named_up_to_a_bound() -> None:
    """A long list is cut, and the message says so."""
    count = MAX_NAMES_IN_MESSAGE + 3
    found = output(*[(f"stranger{n:02}", "0", f"/{n}", 1) for n in range(count)])
    with pytest.raises(ManifestError, match="stranger09 and 3 more wrote files but handed in no manifests"):
        check_staged(table_of(), {"w"}, [], found)


MARK = ("w", "0", "/t/_mutation_7/w/0/uploads_7", 0)


def test_uploads_that_were_reported_pass() -> None:
    """The mark is not a file of rows. A missing upload is allowed: not every store lists uploads."""
    reported = manifest(staged=upload(1))
    check_staged(table_of(), {"w"}, [reported], output(MARK, uploads=(upload(1),)))
    check_staged(table_of(), {"w"}, [reported], output(MARK))


@pytest.mark.parametrize(
    ("staged", "message"),
    [
        (
            Staged(Location.parse("/etc/other")),
            "staged file .*/etc/other is not in the directory of the attempt",
        ),
        (Staged(Location.parse("/of/1")), "staged file .*/of/1 is not in the directory of the attempt"),
        (Staged(Location.parse("/s/uploads_7")), "is not in the directory of the attempt"),
        (
            Staged(Location.parse("/etc/other"), "u"),
            r"uploaded to .*/etc/other, expected .*/bucket_00001",
        ),
        (upload(2), r"uploaded to .*/bucket_00002, expected .*/bucket_00001"),
    ],
    ids=["elsewhere", "of another attempt", "a mark", "an upload elsewhere", "another upload"],
)
def test_a_manifest_names_what_its_attempt_staged(staged: Staged, message: str) -> None:
    """And nothing else that the driver may move."""
    files = output(("w", "0", "/s", 10), ("w", "1", "/of/1", 10), ("w", "0", "/s/uploads_7", 10))
    with pytest.raises(ManifestError, match=message):
        check_staged(table_of(), {"w"}, [manifest(staged=staged)], files)


@pytest.mark.parametrize(
    "changes",
    [
        {"partition_name": "ds=b/hr=1"},
        {"partition_name": "ds=a/x=1"},
        {"partition_name": "ds=a/hr=1/../../other"},
        {"partition_name": "elsewhere"},
        {"partition_values": ("a", "2")},
    ],
)
def test_a_partitions_name_is_that_of_its_values(changes: dict[str, object]) -> None:
    """The values make a partition, the name says where its files go."""
    with pytest.raises(ManifestError, match=r"the partition's name does not match"):
        check_manifests(table_of(), {"w"}, [manifest(**changes)], insert_only=False)


def test_an_upload_without_a_manifest_is_refused() -> None:
    """Its rows would be lost, unless the attempt itself has lost."""
    with pytest.raises(ManifestError, match=r"no manifest for .*/w/t/.*/bucket_00002"):
        check_staged(
            table_of(), {"w"}, [manifest(staged=upload(1))], output(MARK, uploads=(upload(1), upload(2)))
        )
    loser = ("w", "1", "/t/_mutation_7/w/1/uploads_7", 0)
    both = output(MARK, loser, uploads=(upload(1), upload(2)))
    check_staged(table_of(), {"w"}, [manifest(staged=upload(1))], both)


def test_an_upload_that_was_begun_twice_is_one_file() -> None:
    """If the answer of the first request was lost, the store has an upload that no manifest names."""
    lost = dataclasses.replace(upload(1), upload_id="unknown")
    check_staged(table_of(), {"w"}, [manifest(staged=upload(1))], output(MARK, uploads=(lost, upload(1))))


def test_a_writer_that_uploaded_and_handed_nothing_in_is_refused() -> None:
    """Its mark shows that the attempt exists."""
    stranger = ("stranger", "0", "/t/_mutation_7/stranger/0/uploads_7", 0)
    with pytest.raises(ManifestError, match="stranger wrote files but handed in no manifests"):
        check_staged(table_of(), {"w"}, [manifest(staged=upload(1))], output(MARK, stranger))
