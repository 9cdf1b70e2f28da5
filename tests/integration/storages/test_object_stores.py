"""Tables on Azure and Google Cloud Storage, by emulators; Hive does not read there, the library does."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from azure.storage.blob import generate_account_sas
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from judges.storages.emulators import AzureServer, Emulator, GcsServer
from metastore_client.model import ColumnInfo, TableInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.spark import job
from mutation_api.spark.job import apply_changes
from mutation_api.spark.snapshot_frame import read_table
from mutation_api.storage.connect import configure_storage, storage_at
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import OutputFile, Staged
from mutation_api.storage.tree import side_by_side
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.upkeep.sweep import sweep
from tests.integration.jobs.test_spark_faults import OPTIONS, ROWS, DiesOnce, inserts
from tests.integration.jobs.test_spark_faults import small_batches as small_batches  # a fixture
from tests.integration.storages.remote_table import change, hidden, insert, rows_with_ids

pytestmark = pytest.mark.slow

NAME = "default.t"


@dataclass(frozen=True)
class Place:
    """An empty place in a store, and the requests there by which a file is staged and published."""

    server: Emulator
    root: Location
    stages: str
    publishes: str


@pytest.fixture(params=["gcs", "azure"])
def place(request: pytest.FixtureRequest) -> Place:
    """One in each store."""
    server: Emulator = request.getfixturevalue(request.param)
    root: Location = request.getfixturevalue(f"{request.param}_root")
    stages, publishes = {"gcs": ("put", "move"), "azure": ("put_block", "commit")}[request.param]
    return Place(server, root, stages, publishes)


@pytest.fixture
def metastore(place: Place) -> InMemoryMetastore:
    """One with a table there: two buckets, partitioned."""
    result = InMemoryMetastore(capabilities=HIVE_4_1)
    result.create_table(
        TableInfo(
            database="default",
            name="t",
            columns=(ColumnInfo("id", "int"), ColumnInfo("msg", "string")),
            partition_keys=(ColumnInfo("ds", "string"),),
            location=str(place.root / "t"),
            num_buckets=2,
            bucket_columns=("id",),
            parameters={"transactional": "true", "transactional_properties": "default"},
        )
    )
    return result


def client_of(metastore: InMemoryMetastore) -> MutatorClient:
    builder = MutatorClientBuilder().metastore(metastore)
    return builder.add_sink_table("default", "t", create_partitions=True).build()


def rows(client: MutatorClient) -> list[tuple[int, str, str]]:
    with client.new_transaction() as transaction:
        found = rows_with_ids(transaction, NAME)
    return sorted((row["id"], row["msg"], partition) for partition, row in found)


def staged(hidden_place: Location, target: Location, data: bytes) -> OutputFile:
    """A closed staged file."""
    file = storage_at(target).stage(hidden_place, target)
    file.write(data)
    file.close()
    return file


def content(location: Location) -> bytes:
    with storage_at(location).open_input(location) as stream:
        data: bytes = stream.read()
    return data


@contextlib.contextmanager
def refused(kind: type[OSError], number: int, at: str) -> Iterator[pytest.ExceptionInfo[OSError]]:
    """The error has errno, one line and the place."""
    with pytest.raises(kind) as caught:
        yield caught
    assert caught.value.errno == number
    assert at in str(caught.value.filename)
    assert "\n" not in str(caught.value)


def test_change_sets_appear_whole(place: Place, metastore: InMemoryMetastore) -> None:
    """Inserts, then updates and deletes over them; nothing staged is left."""
    with client_of(metastore) as client:
        with client.new_transaction() as transaction:
            insert(transaction, NAME, {"a": [1, 2, 3, 4], "b": [5, 6]})
        assert [row[0] for row in rows(client)] == [1, 2, 3, 4, 5, 6]
        with client.new_transaction() as transaction:
            change(transaction, NAME)
        assert rows(client) == [(2, "new2", "ds=a"), (4, "new4", "ds=a"), (6, "new6", "ds=b")]
    assert hidden(place.root) == []
    assert storage_at(place.root).unfinished(place.root) in ((), [])


def test_nothing_is_left_of_what_ended_badly(place: Place, metastore: InMemoryMetastore) -> None:
    """Of an abort, and, once it is over, of a transaction whose driver died."""
    storage = storage_at(place.root)
    with client_of(metastore) as client:
        aborted = client.new_transaction()
        aborted.begin()
        insert(aborted, NAME, {"a": [1, 2]})
        aborted.abort()
        assert storage.stat(place.root / "t") is None
        dead = client.new_transaction()
        dead.begin()
        insert(dead, NAME, {"a": [1, 2]})
        (swept,) = sweep(metastore, "default.t")
        assert swept.found == ()
        metastore.abort_txn(dead.txn_id)
        (swept,) = sweep(metastore, "default.t")
        assert [each.txn_id for each in swept.removed] == [dead.txn_id]
        assert storage.stat(place.root / "t") is None
        assert storage.unfinished(place.root) in ((), [])
        assert rows(client) == []


def test_requests_of_a_file(place: Place, metastore: InMemoryMetastore) -> None:
    """One by the worker and one by the driver, and none whose number grows with rows."""
    with client_of(metastore) as client:
        for count in (40, 4000):
            with client.new_transaction() as transaction:
                place.server.take_counts()
                insert(transaction, NAME, {"a": [*range(count)], "b": [*range(count)]})
                written = place.server.take_counts()
                assert written[place.stages] == 4
                assert sum(written.values()) <= 6, "an attempt makes a mark for its uploads, and looks for it"
            committed = place.server.take_counts()
            assert committed[place.publishes] == 4
            assert committed.get("get", 0) == 0


def test_a_bad_network(place: Place, metastore: InMemoryMetastore) -> None:
    """Busy, and its answers lost: the change set appears, once."""
    lost = {place.stages: 1, place.publishes: 2, "put": 1, "delete": 1, "list": 1, "head": 1}
    with client_of(metastore) as client:
        place.server.fail(busy_every=9, lost_answers=lost)
        with client.new_transaction() as transaction:
            insert(transaction, NAME, {"a": [1, 2, 3], "b": [4, 5]})
        place.server.fail()
        assert [row[0] for row in rows(client)] == [1, 2, 3, 4, 5]
    assert hidden(place.root) == []


@pytest.mark.long
@pytest.mark.usefixtures("small_batches")
def test_a_spark_job_that_loses_workers(
    place: Place, metastore: InMemoryMetastore, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task's first attempt is killed while it writes: every row is there once, and nothing else."""
    monkeypatch.setattr(job, "ChangeWriter", DiesOnce)
    with client_of(metastore) as client:
        with client.new_transaction() as transaction:
            frame = inserts(spark).withColumn("id", sf.col("id").cast("int"))
            apply_changes(transaction, NAME, frame, num_partitions=2, options=OPTIONS)
        assert [row[0] for row in rows(client)] == [*range(ROWS)]
        read = (
            read_table(client.open_snapshot(NAME), NAME, spark=spark).agg(sf.count("*"), sf.sum("id")).first()
        )
        assert read == (ROWS, ROWS * (ROWS - 1) // 2)
    assert hidden(place.root) == []
    assert storage_at(place.root).unfinished(place.root) in ((), [])


def test_a_lost_answer_is_found_out(place: Place) -> None:
    """What was created or published is known as one's own, and nobody else's is."""
    storage, target = storage_at(place.root), place.root / "d/t"
    place.server.fail(lost_answers={"put": 1})
    file = storage.create(place.root / "d/created")
    file.write(b"created")
    file.close()
    assert content(place.root / "d/created") == b"created"
    first = staged(place.root / "_m/1", target, b"first")
    second = staged(place.root / "_m/2", target, b"second")
    place.server.fail(lost_answers={place.publishes: 1})
    storage.publish(first.staged, target)
    place.server.fail(lost_answers={place.publishes: 1})
    with refused(FileExistsError, errno.EEXIST, "d/t"):
        storage.publish(second.staged, target)
    assert content(target) == b"first"


def test_of_many_who_publish_one_wins(place: Place) -> None:
    """All at the same time; the others are refused, and the file is one of them, whole."""
    storage, target = storage_at(place.root), place.root / "d/t"
    files = [staged(place.root / f"_m/{n}", target, str(n).encode() * 1000) for n in range(16)]

    def publish(file: OutputFile) -> bool:
        try:
            storage.publish(file.staged, target)
        except (FileExistsError, FileNotFoundError):  # Azure drops the blocks of those who lose
            return False
        return True

    won = side_by_side(publish, files, 16)
    assert won.count(True) == 1
    assert content(target) == str(won.index(True)).encode() * 1000
    storage.abandon(file.staged for file in files)
    assert content(target) == str(won.index(True)).encode() * 1000


def test_publishing_twice_is_fine(place: Place) -> None:
    """A driver that does not know whether it did does it again."""
    storage, target = storage_at(place.root), place.root / "d/t"
    file = staged(place.root / "_m/1", target, b"once")
    for _ in range(2):
        storage.publish(file.staged, target)
    assert content(target) == b"once"


def test_what_is_replaced_while_it_is_read_is_noticed(place: Place) -> None:
    """Bytes of two files are never one."""
    storage, target = storage_at(place.root), place.root / "d/t"
    for data in (b"a" * 500_000, b"b" * 500_000):
        file = storage.create(target)
        file.write(data)
        file.close()
        if data.startswith(b"a"):
            stream = storage.open_input(target)
            storage.delete_file(target)
    with pytest.raises(OSError, match="d/t"):
        stream.read(10)


def test_a_bucket_that_is_missing_is_told(place: Place) -> None:
    """In one line, with the place."""
    elsewhere = Location(
        place.root.scheme, place.root.authority.replace("tables", "missing"), place.root.path
    )
    with refused(FileNotFoundError, errno.ENOENT, "missing"):
        storage_at(elsewhere).list(elsewhere)


def test_markers_of_googles_connector(gcs: GcsServer, gcs_root: Location) -> None:
    """They make directories, are listed as nothing else, and go with them."""
    bucket = gcs.client().bucket(gcs_root.authority)
    for name in ("d/", "d/e/"):
        bucket.blob(f"{gcs_root.path.lstrip('/')}/{name}").upload_from_string(b"")
    storage = storage_at(gcs_root)
    assert [(e.name, e.is_directory) for e in storage.list(gcs_root / "d")] == [("e", True)]
    assert storage.list(gcs_root / "d/e") == []
    storage.delete_directory(gcs_root / "d")
    assert storage.stat(gcs_root / "d") is None


def test_markers_of_azures_connector(azure: AzureServer, azure_root: Location) -> None:
    """They make directories, are listed as nothing else, and go with them, the innermost first."""
    client, base = azure.client(), azure_root.path.lstrip("/")
    for name in ("d", "d/e", "d/e/f"):
        client.upload_blob(f"{base}/{name}", b"", metadata={"hdi_isfolder": "true"})
    client.upload_blob(f"{base}/d/e/file", b"x")
    storage = storage_at(azure_root)
    assert [(e.name, e.is_directory) for e in storage.list(azure_root)] == [("d", True)]
    assert [(e.name, e.is_directory) for e in storage.list(azure_root / "d")] == [("e", True)]
    assert [(e.name, e.size) for e in storage.list(azure_root / "d/e")] == [("f", 0), ("file", 1)]
    assert storage.list(azure_root / "d/e/f") == []
    with pytest.raises(IsADirectoryError):
        storage.open_input(azure_root / "d/e/f")
    storage.delete_directory(azure_root / "d")
    assert [*client.list_blobs(base)] == []


def test_blocks_of_others_are_not_dropped(azure: AzureServer, azure_root: Location) -> None:
    """All attempts at a blob share its list of blocks: who gives up must not take the others' along."""
    storage, target = storage_at(azure_root), azure_root / "d/t"
    first = staged(azure_root / "_m/1", target, b"first")
    second = staged(azure_root / "_m/2", target, b"second")
    first.discard()
    storage.publish(second.staged, target)
    assert content(target) == b"second"
    assert storage.unfinished(azure_root) == []


def test_what_is_abandoned_meets_a_commit(azure: AzureServer, azure_root: Location) -> None:
    """Blocks that come late are over a committed blob: it stays as it is."""
    storage, target = storage_at(azure_root), azure_root / "d/t"
    storage.publish(staged(azure_root / "_m/1", target, b"first").staged, target)
    late = staged(azure_root / "_m/2", target, b"second")
    for each in (late.staged, Staged(target, late.staged.upload_id)):
        storage.abandon([each])
        assert content(target) == b"first"


def test_an_abandoned_upload_whose_answers_are_lost_is_gone(azure: AzureServer, azure_root: Location) -> None:
    """The empty blob that drops the blocks must not stay."""
    storage, target = storage_at(azure_root), azure_root / "d/t"
    file = staged(azure_root / "_m/1", target, b"x")
    azure.fail(lost_answers={"commit": 1, "delete": 1})
    storage.abandon([file.staged])
    assert storage.stat(target) is None
    assert storage.unfinished(azure_root) == []


def test_a_token_is_enough(azure: AzureServer, azure_root: Location) -> None:
    """A shared access signature for the account, no key."""
    token = generate_account_sas(
        azure.account,
        azure.key,
        resource_types="sco",
        permission="rwdlac",
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    endpoint = azure.settings[f"fs.azure.blob.endpoint.{azure.host}"]
    configure_storage(
        HadoopSettings({"fs.azure.blob.endpoint": endpoint, f"fs.azure.sas.fixed.token.{azure.host}": token})
    )
    target = azure_root / "d/t"
    file = staged(azure_root / "_m/1", target, b"x")
    storage_at(target).publish(file.staged, target)
    assert content(target) == b"x"


def test_a_wrong_key_is_told_without_it(azure: AzureServer, azure_root: Location) -> None:
    """One line that names the place, and no secret."""
    wrong = "d3JvbmcgYW5kIHNlY3JldA=="
    configure_storage(HadoopSettings({**azure.settings, f"fs.azure.account.key.{azure.host}": wrong}))
    with refused(PermissionError, errno.EACCES, "d/t") as caught:
        storage_at(azure_root).stat(azure_root / "d/t")
    assert wrong not in str(caught.value)


def test_a_signature_is_in_no_error(azure: AzureServer, azure_root: Location) -> None:
    """The client's own messages show the whole address."""
    token = "sv=2024-11-04&ss=b&sig=c2VjcmV0%3D&sp=rwdl"
    settings = {
        "fs.azure.blob.endpoint": "http://127.0.0.1:9/devstoreaccount1",
        "fs.azure.sas.fixed.token": token,
        "fs.azure.io.retry.max.retries": "0",
    }
    configure_storage(HadoopSettings(settings))
    with refused(ConnectionError, errno.ECONNREFUSED, "d/t") as caught:
        storage_at(azure_root).stat(azure_root / "d/t")
    assert "c2VjcmV0" not in str(caught.value)
    assert "sp=rwdl" in str(caught.value), "the address is shown, so this test can fail"
