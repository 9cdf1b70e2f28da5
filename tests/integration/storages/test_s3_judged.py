"""Tables on S3: real Hive reads what we write there, and we what it writes; stores that fail."""

from __future__ import annotations

import datetime
import errno
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from judges.hive.judge import HiveJudge
from judges.storages.s3_server import S3Server
from metastore_client.remote.thrift_client import open_client
from mutation_api.errors import DeltaWriteError, ManifestError
from mutation_api.storage.connect import configure_storage, storage_at
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.s3_storage import S3Storage
from mutation_api.upkeep.sweep import sweep
from mutation_api.write.coordinator import MutatorCoordinator
from tests.fixtures.fix_clock import FakeClock
from tests.integration.storages.remote_table import (
    builder_of,
    check_nothing_is_left,
    check_turns,
    client_of,
    create,
    hidden,
    insert,
    seen,
)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("leaves_nothing")]

BEATING_THREADS = 2

on_each_line = pytest.mark.parametrize("hive_on_s3", ["2.3", "4.1"], indirect=True)


@pytest.mark.feature("S3")
@on_each_line
def test_ours_and_theirs_by_turns(hive_on_s3: HiveJudge, database_on_s3: str) -> None:
    """Our rows, SQL's changes over them, ours over SQL's, compactions: Hive reads all of it right."""
    location = check_turns(hive_on_s3, f"{database_on_s3}.t")
    assert storage_at(location).unfinished(location) == []


@on_each_line
def test_nothing_is_left_of_what_ended_badly(hive_on_s3: HiveJudge, database_on_s3: str) -> None:
    """Of an abort, and, once it is over, of a transaction whose driver died: neither marks nor uploads."""
    hive, name = hive_on_s3, f"{database_on_s3}.t"
    create(hive, name)
    with client_of(hive, name) as client:
        location = client.tables[0].location
        storage = storage_at(location)
        aborted = client.new_transaction()
        aborted.begin()
        insert(aborted, name, {"a": [1, 2]})
        assert len(storage.unfinished(location)) == 2
        aborted.abort()
        assert storage.unfinished(location) == []
        dead, alive = client.new_transaction(), None
        dead.begin()
        insert(dead, name, {"a": [1, 2]})
        with open_client(hive.uri) as metastore:
            (swept,) = sweep(metastore, name)
            assert swept.found == ()
            assert len(storage.unfinished(location)) == 2
            metastore.abort_txn(dead.txn_id)
            (swept,) = sweep(metastore, name)
        assert [each.txn_id for each in swept.removed] == [dead.txn_id]
        assert storage.unfinished(location) == []
        assert alive is None
    assert seen(hive, name) == []


@pytest.mark.parametrize("hive_on_s3", ["4.1"], indirect=True)
def test_a_writer_that_hands_nothing_in_is_refused(hive_on_s3: HiveJudge, database_on_s3: str) -> None:
    """Its rows would be lost; its mark tells of it."""
    hive, name = hive_on_s3, f"{database_on_s3}.t"
    create(hive, name)
    with client_of(hive, name) as client:
        transaction = client.new_transaction()
        transaction.begin()
        insert(transaction, name, {"a": [1, 2]})
        transaction._written._manifests.clear()
        transaction._written._writers.clear()
        with pytest.raises(ManifestError, match="handed in no manifests"):
            transaction.commit()
    assert seen(hive, name) == []


@pytest.mark.parametrize("hive_on_s3", ["4.1"], indirect=True)
def test_requests_of_a_file(hive_on_s3: HiveJudge, database_on_s3: str, s3: S3Server) -> None:
    """Two by the worker and one by the driver, and none whose number grows with rows."""
    hive, name = hive_on_s3, f"{database_on_s3}.t"
    create(hive, name)
    with client_of(hive, name) as client:
        for count in (40, 4000):
            with client.new_transaction() as transaction:
                s3.take_counts()
                insert(transaction, name, {"a": [*range(count)], "b": [*range(count)]})
                written = s3.take_counts()
                assert (written["create_upload"], written["upload_part"]) == (4, 4)
                assert written.get("put") == 1, "the mark of the attempt"
            committed = s3.take_counts()
            assert committed["complete_upload"] == 4
            assert committed.get("get", 0) + committed.get("head", 0) <= 4


@pytest.mark.parametrize("hive_on_s3", ["4.1"], indirect=True)
def test_a_bad_network(hive_on_s3: HiveJudge, database_on_s3: str, s3: S3Server) -> None:
    """Slow, busy, and its answers lost: the change set appears, once."""
    hive, name = hive_on_s3, f"{database_on_s3}.t"
    create(hive, name)
    lost = {"complete_upload": 3, "put": 2, "upload_part": 1, "delete_many": 1, "create_upload": 1}
    with client_of(hive, name) as client:
        s3.fail(busy_every=7, lost_answers=lost, latency_seconds=0.01)
        with client.new_transaction() as transaction:
            insert(transaction, name, {"a": [1, 2, 3], "b": [4, 5]})
        s3.fail()
        location = client.tables[0].location
        assert hidden(location) == []
    assert [row[0] for row in seen(hive, name)] == [1, 2, 3, 4, 5]


def at_the_first(name: str, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Do something before the first call of a method of the storage."""
    original, called, guard = getattr(S3Storage, name), threading.Event(), threading.Lock()

    def method(storage: S3Storage, *arguments: Any) -> Any:
        with guard:
            if not called.is_set():
                called.set()
                act()
        return original(storage, *arguments)

    monkeypatch.setattr(S3Storage, name, method)


class CountingMetastore:
    """A metastore client that counts heartbeats."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.beats = 0

    def __getattr__(self, name: str) -> Any:
        self.beats += name == "heartbeat_txn_range"
        return getattr(self._client, name)


@pytest.mark.parametrize("gone_seconds", [6.0, pytest.param(20.0, marks=pytest.mark.long)])
@pytest.mark.parametrize("hive_on_s3", ["2.3"], indirect=True)
def test_the_store_is_gone_for_a_while(
    gone_seconds: float,
    hive_on_s3: HiveJudge,
    database_on_s3: str,
    s3: S3Server,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the middle of a commit: it goes through, once, and the heart beats on meanwhile."""
    hive, name = hive_on_s3, f"{database_on_s3}.t"
    create(hive, name)
    gone = threading.Event()

    def go() -> None:
        s3.fail(gone_seconds=gone_seconds)
        gone.set()

    at_the_first("publish", go, monkeypatch)
    with open_client(hive.uri) as line:
        metastore = CountingMetastore(line)
        beats: list[int] = []

        def let_time_pass() -> None:
            assert gone.wait(60)
            for _ in range(4):
                clock.wait_for_waiters(BEATING_THREADS)
                clock.advance(100)
            beats.append(metastore.beats)

        time = threading.Thread(target=let_time_pass)
        time.start()
        with (
            builder_of(metastore, name).clock(clock).build() as client,
            client.new_transaction() as transaction,
        ):
            insert(transaction, name, {"a": [1, 2, 3], "b": [4, 5]})
        time.join()
        assert beats[0] >= 2
        check_nothing_is_left(line, database_on_s3)
    assert [row[0] for row in seen(hive, name)] == [1, 2, 3, 4, 5]


class Keys:
    """Keys of a profile that somebody replaces now and then: in its file, or told by a program."""

    def __init__(self, folder: Path, *, are_told: bool) -> None:
        self._file = folder / "credentials"
        self._answer = folder / "answer" if are_told else None
        self.environment = {
            "AWS_CONFIG_FILE": str(folder / "config"),
            "AWS_SHARED_CREDENTIALS_FILE": str(self._file),
        }
        told = f"credential_process = cat {self._answer}\n" if are_told else ""
        (folder / "config").write_text(f"[default]\n{told}")

    def replace(self, key: str) -> None:
        """Whoever asks from now on is given these."""
        if self._answer is None:
            told = {"access_key_id": key, "secret_access_key": "s", "session_token": "t"}
            lines = [f"aws_{name} = {text}" for name, text in told.items()]
            _replace(self._file, "\n".join(["[default]", *lines]))
        else:
            soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=2)
            told = {"AccessKeyId": key, "SecretAccessKey": "s", "SessionToken": "t"}
            _replace(self._answer, json.dumps({"Version": 1, "Expiration": soon.isoformat(), **told}))


def _replace(file: Path, text: str) -> None:
    """In one step, for those who read meanwhile."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


@pytest.fixture
def settings_without_keys(hive_on_s3: HiveJudge, s3: S3Server) -> Iterator[dict[str, str]]:
    """Of the server; it knows no expired keys afterwards."""
    yield {
        name: text for name, text in s3.settings.items() if not name.endswith((".access.key", ".secret.key"))
    }
    s3.expire()
    configure_storage(HadoopSettings(s3.settings))


@pytest.mark.parametrize("hive_on_s3", ["2.3"], indirect=True)
@pytest.mark.parametrize("are_told", [True, False], ids=["told by a program", "kept in a file"])
@pytest.mark.parametrize(
    "when",
    [
        "publish",
        *(
            pytest.param(step, marks=pytest.mark.long)
            for step in ("begin_upload", "send_parts", "unfinished", "delete_directory")
        ),
    ],
)
def test_keys_that_are_replaced(
    hive_on_s3: HiveJudge,
    database_on_s3: str,
    s3: S3Server,
    settings_without_keys: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    are_told: bool,
    when: str,
) -> None:
    """Those that the AWS client found expire at any step: it finds the new ones, and nobody notices."""
    hive, name = hive_on_s3, f"{database_on_s3}.t"
    create(hive, name)
    keys = Keys(tmp_path, are_told=are_told)
    for variable, text in keys.environment.items():
        monkeypatch.setenv(variable, text)
    keys.replace("first")
    configure_storage(HadoopSettings(settings_without_keys))

    def expire() -> None:
        keys.replace("second")
        s3.expire({"first": 0})

    at_the_first(when, expire, monkeypatch)
    with client_of(hive, name) as client, client.new_transaction() as transaction:
        insert(transaction, name, {"a": [1, 2, 3], "b": [4, 5]})
    with open_client(hive.uri) as metastore:
        check_nothing_is_left(metastore, database_on_s3)
    assert [row[0] for row in seen(hive, name)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("hive_on_s3", ["2.3"], indirect=True)
@pytest.mark.parametrize(
    "when",
    [
        "publish",
        *(
            pytest.param(step, marks=pytest.mark.long)
            for step in ("begin_upload", "send_parts", "unfinished")
        ),
    ],
)
def test_keys_that_expire_for_good(
    hive_on_s3: HiveJudge,
    database_on_s3: str,
    s3: S3Server,
    settings_without_keys: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    when: str,
) -> None:
    """A session token of the configuration: the error says what it is, the transaction is aborted, and with
    new keys a sweep leaves nothing.
    """
    hive, name = hive_on_s3, f"{database_on_s3}.t"
    create(hive, name)
    token = {"fs.s3a.access.key": "first", "fs.s3a.secret.key": "s", "fs.s3a.session.token": "t"}
    configure_storage(HadoopSettings({**settings_without_keys, **token}))
    at_the_first(when, lambda: s3.expire({"first": 0}), monkeypatch)
    with (
        client_of(hive, name) as client,
        pytest.raises(DeltaWriteError, match=rf"{name}.*credentials for the store have expired"),
        client.new_transaction() as transaction,
    ):
        insert(transaction, name, {"a": [1, 2, 3], "b": [4, 5]})
    configure_storage(HadoopSettings(s3.settings))
    with open_client(hive.uri) as metastore:
        location = client.tables[0].location
        assert hidden(location)
        check_nothing_is_left(metastore, database_on_s3)
    assert seen(hive, name) == []
    with client_of(hive, name) as client, client.new_transaction() as transaction:
        insert(transaction, name, {"a": [1]})
    assert [row[0] for row in seen(hive, name)] == [1]


@pytest.mark.parametrize("hive_on_s3", ["2.3"], indirect=True)
def test_an_upload_that_cannot_be_aborted_is_swept(
    hive_on_s3: HiveJudge, database_on_s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker fails to send a part, and to abort: it leaves its mark, or nobody would find the upload once
    the driver has died.
    """
    hive, name = hive_on_s3, f"{database_on_s3}.t"
    create(hive, name)

    def busy(*_: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "busy", "somewhere")

    with client_of(hive, name) as client, open_client(hive.uri) as metastore:
        location = client.tables[0].location
        transaction = client.new_transaction()
        transaction.begin()
        with monkeypatch.context() as patch:
            for step in ("send_parts", "abandon"):
                patch.setattr(S3Storage, step, busy)
            with pytest.raises(DeltaWriteError, match="busy"):
                insert(transaction, name, {"a": [1, 2]})
        assert storage_at(location).unfinished(location)
        metastore.abort_txn(transaction.txn_id)
        check_nothing_is_left(metastore, database_on_s3)


@pytest.mark.parametrize("hive_on_s3", ["2.3"], indirect=True)
def test_a_loser_that_uploads_after_the_commit(hive_on_s3: HiveJudge, database_on_s3: str) -> None:
    """Its mark is gone, so no sweep would find its uploads: it removes them itself."""
    hive, name = hive_on_s3, f"{database_on_s3}.t"
    create(hive, name)
    with client_of(hive, name) as client:
        with client.new_transaction() as transaction:
            insert(transaction, name, {"a": [2]})
            late = MutatorCoordinator(transaction.table(name), writer_id="w", attempt_id="late")
            late.insert(["a"], {"id": 4, "msg": "late"})
            late.insert(["b"], {"id": 6, "msg": "late"})
            transaction.add_manifests(name, "w", [])
        location = client.tables[0].location
        assert hidden(location) == []
        with pytest.raises(DeltaWriteError, match="transaction has ended"), late:
            late.close()
        assert hidden(location) == []
    assert seen(hive, name) == [(2, "m2", "ds=a")]
