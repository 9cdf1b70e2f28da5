"""HDFS that asks for Kerberos and encrypts what is sent: tickets, keytabs, delegation tokens, and real Hive.

Runs with ``--kerberos`` only: see tests/fixtures/fix_kerberos.py.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from judges.hive.judge import HiveJudge
from judges.storages.hdfs_cluster import KerberosKeys, MiniHdfs
from mutation_api.storage import hdfs_client, hdfs_login
from mutation_api.storage.connect import configure_storage, storage_at
from mutation_api.storage.hadoop_settings import AUTHENTICATION, HadoopSettings
from mutation_api.storage.location import Location
from tests.fixtures.fix_hive_elsewhere import KINDS
from tests.fixtures.fix_judge import LINES, new_database, note_judge
from tests.fixtures.fix_kerberos import REALM, KeyServer
from tests.integration.storages.remote_table import check_turns, create, seen

pytestmark = [pytest.mark.kerberos, pytest.mark.slow]

SERVER = "hdfs/localhost"
HIVE = "hive/localhost"
ETL = f"etl@{REALM}"
DRIVER_TIMEOUT_SECONDS = 300.0
ROOT = Path(__file__).parents[3]
TOKEN_FILE = "HADOOP_TOKEN_FILE_LOCATION"
TICKETS = "KRB5CCNAME"
TOKEN_SECONDS = 3600


@pytest.fixture(scope="module")
def secure_hdfs(
    key_server: KeyServer, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MiniHdfs]:
    """One NameNode and one DataNode; everybody may write into /open."""
    keys = KerberosKeys(f"{SERVER}@{REALM}", key_server.keytab(SERVER))
    with MiniHdfs(tmp_path_factory.mktemp("hdfs"), kerberos=keys) as cluster:
        note_judge(request.config, cluster.description)
        cluster.make_directory("/open", mode="777")
        yield cluster


@pytest.fixture
def root(secure_hdfs: MiniHdfs) -> Iterator[Location]:
    """/open of that HDFS, which this process finds."""
    configure_storage(HadoopSettings(secure_hdfs.settings))
    yield Location.parse(f"{secure_hdfs.location}/open")
    configure_storage(None)


@pytest.fixture
def token(
    secure_hdfs: MiniHdfs, key_server: KeyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A file of tokens that the environment names, with one for etl; there is no ticket."""
    file = tmp_path / "tokens"
    secure_hdfs.write_token(file, ETL, key_server.keytab("etl"))
    monkeypatch.setenv(TOKEN_FILE, str(file))
    return file


@pytest.fixture(scope="module")
def secure_hives(secure_hdfs: MiniHdfs) -> Iterator[dict[str, HiveJudge]]:
    """Judges by line, filled by those who ask."""
    started: dict[str, HiveJudge] = {}
    yield started
    for judge in started.values():
        judge.close()


@pytest.fixture
def secure_hive(
    secure_hdfs: MiniHdfs,
    secure_hives: dict[str, HiveJudge],
    key_server: KeyServer,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> HiveJudge:
    """The judge of the line that an indirect parameter names, with its warehouse on that HDFS."""
    line = str(request.param)
    if line not in secure_hives:
        secure_hdfs.make_directory(f"/warehouse{line}", mode="777")
        settings = {
            **{name: text for name, text in secure_hdfs.settings.items() if name != "fs.defaultFS"},
            "hive.metastore.warehouse.dir": f"{secure_hdfs.location}/warehouse{line}",
            "hive.exec.scratchdir": f"{secure_hdfs.location}/warehouse{line}/scratch",  # Tez wants to own it
            "hive.metastore.execute.setugi": "false",  # it would be whom the client names, who has no ticket
            "fs.permissions.umask-mode": "000",  # etl and hive write by turns
            "hive.metastore.kerberos.principal": f"{HIVE}@{REALM}",
            "hive.metastore.kerberos.keytab.file": str(key_server.keytab(HIVE)),
            "yarn.resourcemanager.principal": f"{HIVE}@{REALM}",  # may renew the tokens of its jobs
        }
        secure_hives[line] = KINDS[line](tmp_path_factory.mktemp("hive_on_hdfs"), settings)
        note_judge(request.config, f"{secure_hives[line].description} on HDFS with Kerberos")
    return secure_hives[line]


def check_use(root: Location, name: str) -> None:
    """Write, read, list, rename and delete, as etl."""
    storage = storage_at(root)
    place = root / name
    storage.create_directory(place)
    content = bytes(range(256)) * 20_000
    file = storage.create(place / "a")
    file.write(content)
    file.close()
    assert storage.open_input(place / "a").read() == content
    storage.rename(place / "a", place / "b")
    assert [entry.name for entry in storage.list(place)] == ["b"]
    assert storage._status(place / "b").owner == "etl"
    storage.delete_directory(place)


@contextlib.contextmanager
def refused(*words: str) -> Iterator[None]:
    """At once, by an error of one line with these words: the library does not repeat the request."""
    slept: list[float] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hdfs_client, "time", SimpleNamespace(monotonic=time.monotonic, sleep=slept.append))
        with pytest.raises(PermissionError) as caught:
            yield
    assert slept == []
    assert caught.value.errno == errno.EACCES
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_a_ticket_opens_it(root: Location, key_server: KeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is sent, to the NameNode and the DataNode, is encrypted."""
    monkeypatch.setenv(TICKETS, f"FILE:{key_server.ticket('etl')}")
    check_use(root, "ticket")


def test_a_keytab_opens_it(
    root: Location, key_server: KeyServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The Kerberos library gets the tickets by itself, and new ones when they end."""
    monkeypatch.setenv(TICKETS, f"FILE:{tmp_path / 'cache'}")
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(key_server.keytab("etl")))
    check_use(root, "keytab")


def test_without_a_ticket(root: Location, key_server: KeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is none, or it has ended: what to do is told at once, and a new one is taken."""
    with refused("No Kerberos credentials", "kinit", f"{TOKEN_FILE} is not set"):
        storage_at(root).list(root)
    monkeypatch.setenv(TICKETS, f"FILE:{key_server.ticket('etl', '-l', '1s')}")
    time.sleep(2)
    with refused("Ticket expired", "kinit"):
        storage_at(root).list(root)
    key_server.ticket("etl")
    storage_at(root).list(root)


def test_settings_without_kerberos_are_told(root: Location, secure_hdfs: MiniHdfs) -> None:
    """The client alone waits three minutes for that NameNode, and then knows no reason."""
    settings = {name: text for name, text in secure_hdfs.settings.items() if name != AUTHENTICATION}
    configure_storage(HadoopSettings(settings))
    with refused("TOKEN or KERBEROS", AUTHENTICATION, "HADOOP_CONF_DIR"):
        storage_at(root).list(root)


@pytest.mark.parametrize("form", ["WRITABLE", "PROTOBUF"])
def test_a_token_is_enough(
    root: Location, secure_hdfs: MiniHdfs, key_server: KeyServer, token: Path, form: str
) -> None:
    """In both formats of Hadoop's file."""
    secure_hdfs.write_token(token, ETL, key_server.keytab("etl"), form=form)
    check_use(root, f"token_{form}")


def test_a_token_by_ip_is_found_by_name(root: Location, token: Path) -> None:
    """Hadoop calls a NameNode by IP in tokens; the client would look for the location's text."""
    by_name = Location.parse(str(root).replace("127.0.0.1", "localhost"))
    assert by_name != root
    check_use(by_name, "by_name")


def test_a_token_by_name_is_found_by_name(
    root: Location, secure_hdfs: MiniHdfs, key_server: KeyServer, token: Path
) -> None:
    """As Hadoop writes it with ``hadoop.security.token.service.use_ip`` off."""
    by_name = Location.parse(str(root).replace("127.0.0.1", "localhost"))
    secure_hdfs.write_token(token, ETL, key_server.keytab("etl"), service=by_name.authority)
    check_use(by_name, "named")


def test_a_token_of_another_name_node(
    root: Location, secure_hdfs: MiniHdfs, key_server: KeyServer, token: Path
) -> None:
    """Is told; a ticket is as good."""
    for service in ("10.1.1.1:8020", "ha-hdfs:other"):
        secure_hdfs.write_token(token, ETL, key_server.keytab("etl"), service=service)
        with refused(str(token), TOKEN_FILE, f"{service} (ends ", root.authority, "kinit"):
            storage_at(root).list(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TICKETS, f"FILE:{key_server.ticket('etl')}")
        check_use(root, "other")


def test_a_token_without_kerberos_in_the_settings(root: Location, secure_hdfs: MiniHdfs, token: Path) -> None:
    """It would not be used."""
    settings = {name: text for name, text in secure_hdfs.settings.items() if name != AUTHENTICATION}
    configure_storage(HadoopSettings(settings))
    with refused(str(token), "would not be used", AUTHENTICATION):
        storage_at(root).list(root)


def test_a_token_that_was_cancelled(
    root: Location, secure_hdfs: MiniHdfs, key_server: KeyServer, token: Path
) -> None:
    """The NameNode does not know it any more."""
    secure_hdfs.cancel_tokens(token, ETL, key_server.keytab("etl"))
    with refused("InvalidToken", str(token), root.authority):
        storage_at(root).list(root)


def test_new_tokens_are_taken(
    root: Location, secure_hdfs: MiniHdfs, key_server: KeyServer, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that come with settings replace others, and are gone with the settings; a client is made anew."""
    monkeypatch.delenv(TOKEN_FILE)
    configure_storage(HadoopSettings(secure_hdfs.settings, token.read_bytes()))
    check_use(root, "shipped")
    first = storage_at(root)
    secure_hdfs.cancel_tokens(token, ETL, key_server.keytab("etl"))
    secure_hdfs.write_token(token, ETL, key_server.keytab("etl"))
    configure_storage(HadoopSettings(secure_hdfs.settings, token.read_bytes()))
    assert storage_at(root) is not first
    check_use(root, "shipped_again")
    configure_storage(HadoopSettings(secure_hdfs.settings))
    with refused(f"{TOKEN_FILE} is not set"):
        storage_at(root).list(root)


@pytest.mark.long
def test_tokens_of_a_name_service(
    key_server: KeyServer, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two NameNodes have one token, which is good after a fail-over."""
    keys = KerberosKeys(f"{SERVER}@{REALM}", key_server.keytab(SERVER))
    with MiniHdfs(tmp_path_factory.mktemp("ha"), name_nodes=2, kerberos=keys) as cluster:
        cluster.make_directory("/open", mode="777")
        file = tmp_path_factory.mktemp("token") / "tokens"
        cluster.write_token(file, ETL, key_server.keytab("etl"))
        monkeypatch.setenv(TOKEN_FILE, str(file))
        root = Location.parse(f"{cluster.location}/open")
        configure_storage(HadoopSettings(cluster.settings))
        try:
            check_use(root, "first")
            cluster.fail_over(1)
            check_use(root, "second")
        finally:
            configure_storage(None)


@pytest.mark.long
def test_a_token_that_has_ended(
    key_server: KeyServer, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its longest life is told; the client takes none that ends within a minute."""
    keys = KerberosKeys(f"{SERVER}@{REALM}", key_server.keytab(SERVER))
    lives = {"dfs.namenode.delegation.token.max-lifetime": str(TOKEN_SECONDS * 1000)}
    with MiniHdfs(tmp_path_factory.mktemp("short"), configuration=lives, kerberos=keys) as cluster:
        cluster.make_directory("/open", mode="777")
        file = tmp_path_factory.mktemp("token") / "tokens"
        cluster.write_token(file, ETL, key_server.keytab("etl"))
        monkeypatch.setenv(TOKEN_FILE, str(file))
        root = Location.parse(f"{cluster.location}/open")
        configure_storage(HadoopSettings(cluster.settings))
        try:
            check_use(root, "in_time")
            late = SimpleNamespace(time=lambda: time.time() + TOKEN_SECONDS - 59)
            monkeypatch.setattr(hdfs_login, "time", late)
            configure_storage(HadoopSettings({**cluster.settings, "dfs.blocksize": "2M"}))
            with refused(str(file), f"{root.authority} (ended "):
                storage_at(root).list(root)
        finally:
            configure_storage(None)


@pytest.mark.long
@pytest.mark.feature("HDFS with Kerberos")
@pytest.mark.parametrize("secure_hive", LINES, indirect=True)
def test_hive_reads_ours_and_we_its(
    secure_hive: HiveJudge, root: Location, key_server: KeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our rows, SQL's changes over them, ours over SQL's, compactions; we are etl, and it is hive."""
    monkeypatch.setenv(TICKETS, f"FILE:{key_server.ticket('etl')}")
    with new_database(secure_hive) as database:
        check_turns(secure_hive, f"{database}.t")


@pytest.mark.long
@pytest.mark.parametrize("has_ticket", [True, False], ids=["ticket", "token"])
@pytest.mark.parametrize("secure_hive", ["2.3"], indirect=True)
def test_workers_have_what_the_driver_ships(
    secure_hdfs: MiniHdfs, secure_hive: HiveJudge, key_server: KeyServer, tmp_path: Path, has_ticket: bool
) -> None:
    """They have neither ticket nor token of their own; a new token, or that of a driver without a ticket.

    No text has a secret.
    """
    with new_database(secure_hive) as database:
        name = f"{database}.t"
        create(secure_hive, name)
        file = tmp_path / "secret"
        if has_ticket:
            file.write_bytes(key_server.ticket("etl").read_bytes())
        else:
            secure_hdfs.write_token(file, ETL, key_server.keytab("etl"))
        environment = {
            **os.environ,
            **({TICKETS: f"FILE:{file}"} if has_ticket else {TOKEN_FILE: str(file)}),
            "HADOOP_CONF_DIR": str(configuration_folder(tmp_path, secure_hdfs.settings)),
        }
        command = [
            sys.executable,
            "-m",
            "tests.integration.drivers.kerberos_driver",
            secure_hive.uri,
            name,
            str(file),
        ]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=DRIVER_TIMEOUT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        expected = [(2, "new", "a"), (4, "merged", "a"), (6, "m6", "b"), (9, "m9", "c")]
        assert [tuple(row) for row in json.loads(done.stdout.splitlines()[-1])] == expected
        assert seen(secure_hive, name) == [(number, msg, f"ds={ds}") for number, msg, ds in expected]


def configuration_folder(folder: Path, settings: Mapping[str, str]) -> Path:
    """With a core-site.xml of these settings."""
    entries = "".join(
        f"<property><name>{name}</name><value>{text}</value></property>" for name, text in settings.items()
    )
    (folder / "core-site.xml").write_text(f"<configuration>{entries}</configuration>")
    return folder
