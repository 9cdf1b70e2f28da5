"""Jobs on YARN with Kerberos: executors get tokens of HDFS only, and jobs outlive all tickets and tokens.

A ticket of the job's user lives for a minute, and so does a token that nobody renews. HDFS, YARN and the
metastore ask for Kerberos. Runs with ``--kerberos`` only: see tests/fixtures/fix_kerberos.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from judges.hive.hive_judges import Hive23
from judges.storages.hdfs_cluster import KerberosKeys, MiniHdfs
from judges.storages.yarn_cluster import MiniYarn
from mutation_api.storage.connect import configure_storage
from mutation_api.storage.hadoop_settings import HadoopSettings
from tests.fixtures.fix_judge import new_database, noted
from tests.fixtures.fix_kerberos import REALM, KeyServer
from tests.fixtures.fix_yarn import (
    YarnCluster,
    packed_python,
    submit,
    upload_archive,
    write_configuration,
)
from tests.integration.clusters.rows_of_job import JOB, check_rows, create_table
from tests.support.hadoop_files import write_site

pytestmark = [pytest.mark.kerberos, pytest.mark.slow, pytest.mark.timeout(1500)]

SERVER = "hdfs/localhost"
HIVE = f"hive/localhost@{REALM}"
ETL = "etl"
LIFE_SECONDS = 60
SHORT_LIVES = {
    "dfs.namenode.delegation.token.renew-interval": str(LIFE_SECONDS * 1000),
    "hadoop.kerberos.min.seconds.before.relogin": "5",
}
MANY = 1_200_000
"""Rows of the job with which its second change set has 2,000,000 changes."""


@pytest.fixture(scope="module")
def secure_hdfs(
    key_server: KeyServer, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MiniHdfs]:
    """An HDFS whose tokens live for a minute, and a user whose tickets do."""
    keys = KerberosKeys(f"{SERVER}@{REALM}", key_server.keytab(SERVER))
    key_server.limit(ETL, LIFE_SECONDS)
    folder = tmp_path_factory.mktemp("hdfs")
    with noted(MiniHdfs(folder, kerberos=keys, configuration=SHORT_LIVES), request) as cluster:
        for place in ("/user", "/warehouse", "/tmp"):
            cluster.make_directory(place, mode="777")
        cluster.make_directory(f"/user/{ETL}", mode="755", user=ETL)
        yield cluster


@pytest.fixture(scope="module")
def secure_hive(
    secure_hdfs: MiniHdfs,
    key_server: KeyServer,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Hive23]:
    """Hive on it; its metastore asks for Kerberos, and takes a transaction for dead after a minute."""
    settings = {
        **{name: text for name, text in secure_hdfs.settings.items() if name != "fs.defaultFS"},
        "hadoop.rpc.protection": "integrity,privacy",  # HDFS insists on privacy, which no token can have here
        "hive.metastore.warehouse.dir": f"{secure_hdfs.location}/warehouse",
        "hive.metastore.sasl.enabled": "true",
        "hive.metastore.kerberos.principal": HIVE,
        "hive.metastore.kerberos.keytab.file": str(key_server.keytab("hive/localhost")),
        "fs.permissions.umask-mode": "000",  # etl and hive write by turns
        "hive.txn.timeout": "60s",
        "yarn.resourcemanager.principal": HIVE,
    }
    with noted(Hive23(tmp_path_factory.mktemp("hive"), settings), request) as judge:
        yield judge


@pytest.fixture(scope="module")
def secure_yarn(
    secure_hdfs: MiniHdfs,
    secure_hive: Hive23,
    key_server: KeyServer,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[YarnCluster]:
    """YARN on it; the configuration of clients has the metastore's address, too."""
    folder = tmp_path_factory.mktemp("yarn")
    keys = KerberosKeys(f"{SERVER}@{REALM}", key_server.keytab(SERVER))
    with noted(
        MiniYarn(folder, configuration={**secure_hdfs.settings, **SHORT_LIVES}, kerberos=keys), request
    ) as yarn:
        conf = write_configuration(folder / "client", secure_hdfs, yarn, SHORT_LIVES)
        write_site(
            conf / "hive-site.xml",
            {
                "hive.metastore.uris": secure_hive.uri,
                "hive.metastore.sasl.enabled": "true",
                "hive.metastore.kerberos.principal": HIVE,
            },
        )
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("KRB5CCNAME", f"FILE:{key_server.ticket(ETL)}")
            configure_storage(HadoopSettings(secure_hdfs.settings))
            try:
                upload_archive(packed_python(), secure_hdfs, owner=ETL)
            finally:
                configure_storage(None)
        yield YarnCluster(yarn, secure_hdfs, conf)


@pytest.fixture
def table(secure_hive: Hive23) -> Iterator[str]:
    """An empty partitioned table."""
    with new_database(secure_hive) as database:
        yield create_table(secure_hive, f"{database}.t")


@pytest.mark.parametrize(
    ("rows", "mode"),
    [
        pytest.param(6000, "cluster", marks=pytest.mark.long),
        pytest.param(6000, "client", marks=pytest.mark.long),
        pytest.param(MANY, "cluster", marks=pytest.mark.long),
    ],
)
def test_a_job_outlives_its_tickets(
    secure_yarn: YarnCluster,
    secure_hive: Hive23,
    key_server: KeyServer,
    table: str,
    tmp_path: Path,
    rows: int,
    mode: str,
) -> None:
    """An executor dies after two minutes, and its tasks write again, with the tokens that they began with.
    The heartbeat goes on, and then the job logs in to the metastore once more.
    """
    markers = tmp_path / "markers"
    markers.mkdir()
    keytab = key_server.keytab(ETL)
    done = submit(
        secure_yarn,
        JOB,
        ("-", table, str(rows), str(markers), "executor dies late"),
        mode=mode,
        options=("--principal", f"{ETL}@{REALM}", "--keytab", str(keytab)),
        environment=kerberos_environment(key_server, tmp_path),
    )
    found = done.result()
    assert found["changes"] == rows + rows // 3 * 2
    assert found["read"] == rows * 2 - rows // 3
    assert (markers / "executor").exists()
    assert done.application.user == ETL
    check_rows(secure_hive, table, rows)


@pytest.mark.long
def test_a_short_job_needs_a_ticket_only(
    secure_yarn: YarnCluster, secure_hive: Hive23, key_server: KeyServer, table: str, tmp_path: Path
) -> None:
    """Without a keytab the driver on the cluster has the tokens that Spark got with the ticket, for HDFS and
    for the metastore.
    """
    environment = kerberos_environment(key_server, tmp_path)
    environment["KRB5CCNAME"] = f"FILE:{key_server.ticket(ETL)}"
    words = ("-", table, "6000", str(tmp_path))
    done = submit(secure_yarn, JOB, words, mode="cluster", environment=environment)
    done.result()
    check_rows(secure_hive, table, 6000)


def kerberos_environment(key_server: KeyServer, folder: Path) -> dict[str, str]:
    """That of a machine of the realm, for a user without a ticket."""
    return {
        "KRB5_CONFIG": str(key_server.configuration),
        "KRB5CCNAME": f"FILE:{folder / 'no_ticket'}",
        "JDK_JAVA_OPTIONS": f"-Djava.security.krb5.conf={key_server.configuration}",
    }
