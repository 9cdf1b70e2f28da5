"""What doctor --replication says of a server, a database and its tables."""

from __future__ import annotations

import pytest

from metastore_client.errors import MetastoreError, MetastoreUnavailableError
from metastore_client.testing import HIVE_2_3, HIVE_4_1, InMemoryMetastore
from mutation_api.cli import doctor
from mutation_api.errors import ConfigurationError, ConnectionFailedError, TableNotFoundError
from mutation_api.upkeep.replication import ReplicationRole, replication_of
from tests.support.client_support import table_info

LISTENER = "org.apache.hive.hcatalog.listener.DbNotificationListener"
SETTINGS = {
    "hive.metastore.transactional.event.listeners": LISTENER,
    "hive.metastore.dml.events": "true",
    "hive.repl.cm.enabled": "true",
}


def server() -> InMemoryMetastore:
    """A Hive 4 whose default database is a source with one table."""
    metastore = InMemoryMetastore(configuration=SETTINGS, capabilities=HIVE_4_1)
    metastore.database_parameters["default"]["repl.source.for"] = "nightly"
    metastore.create_table(table_info("t"))
    return metastore


def missing(metastore: InMemoryMetastore) -> list[str]:
    report = replication_of(metastore, "default")
    assert report.is_replicated == (not [r for r in report.rules if r.is_met is False])
    return [rule.name for rule in report.rules if rule.is_met is False]


def test_nothing_is_missing() -> None:
    """All is found, the tables are listed, and nothing is changed."""
    metastore = server()
    report = replication_of(metastore, "DEFAULT")
    assert report.is_replicated
    assert report.role is ReplicationRole.SOURCE
    assert [(each.table, each.reason) for each in report.tables] == [("default.t", None)]
    shown = {rule.name for rule in report.rules if rule.is_met is None}
    assert "hive.repl.cm.retain" in shown
    assert not {"open_txn", "set_table_parameters"} & {*metastore.calls}


@pytest.mark.parametrize("name", SETTINGS)
def test_each_setting_that_is_missing_is_named(name: str) -> None:
    """With its value, and what to do."""
    metastore = InMemoryMetastore(configuration={**SETTINGS, name: "false"}, capabilities=HIVE_4_1)
    metastore.database_parameters["default"]["repl.source.for"] = "nightly"
    assert missing(metastore) == [name]
    (rule,) = (r for r in replication_of(metastore, "default").rules if r.is_met is False)
    assert rule.found == "false"
    assert rule.what_to_do


def test_an_early_release_is_not_enough() -> None:
    """It has no call for the names of a transaction's files."""
    metastore = InMemoryMetastore(configuration=SETTINGS, capabilities=HIVE_2_3)
    metastore.database_parameters["default"]["repl.source.for"] = "nightly"
    assert missing(metastore) == ["release"]


@pytest.mark.parametrize(
    ("properties", "role", "rules"),
    [
        ({}, ReplicationRole.NONE, ["repl.source.for"]),
        ({"repl.source.for": "p"}, ReplicationRole.SOURCE, []),
        ({"repl.target.for": "true"}, ReplicationRole.TARGET, ["repl.source.for", "writable"]),
        (
            {"repl.target.for": "true", "repl.background.enable": "true", "repl.source.for": "p"},
            ReplicationRole.TAKEN_OVER,
            [],
        ),
        (
            {"repl.source.for": "p", "repl.failover.endpoint": "SOURCE"},
            ReplicationRole.FAILING_OVER,
            ["writable"],
        ),
        (
            {"repl.source.for": "p", "repl.metrics.last.failback.starttime": "1795646025548"},
            ReplicationRole.BECOMING_TARGET,
            ["writable"],
        ),
        (
            {"repl.source.for": "p", "repl.incompatible": "true"},
            ReplicationRole.SOURCE,
            ["repl.incompatible"],
        ),
    ],
)
def test_what_the_database_says(properties: dict[str, str], role: ReplicationRole, rules: list[str]) -> None:
    """Its role, and the properties that stand in the way."""
    metastore = server()
    metastore.database_parameters["default"] = properties
    report = replication_of(metastore, "default")
    assert report.role is role
    assert [rule.name for rule in report.rules if rule.is_met is False] == rules


def test_each_table_has_its_reason() -> None:
    """One that we cannot write, and one that the server cannot describe."""
    metastore = server()
    metastore.create_table(table_info("outside", table_type="EXTERNAL_TABLE", parameters={}))
    report = replication_of(metastore, "default")
    assert [each.table for each in report.tables if each.reason] == ["default.outside"]
    assert not report.is_replicated
    assert replication_of(metastore, "default.T").is_replicated
    metastore.fail_next("get_table", MetastoreError("no such class"))
    assert "no such class" in str(replication_of(metastore, "default.t").tables[0].reason)


def write(metastore: InMemoryMetastore, *, abort: bool) -> None:
    """A transaction with a write id of the table."""
    txn_id = metastore.open_txn("somebody", "there", "")
    metastore.allocate_write_id(txn_id, "default", "t")
    (metastore.abort_txn if abort else metastore.commit_txn)(txn_id)


def test_it_warns_of_rows_that_a_first_load_hides() -> None:
    """Those committed after the first aborted write id; at a target, if the last known one is aborted."""
    metastore = server()

    def warning() -> str | None:
        return replication_of(metastore, "default").tables[0].warning

    write(metastore, abort=False)
    assert warning() is None
    write(metastore, abort=True)
    assert warning() is None
    write(metastore, abort=False)
    assert "its write id 2 is aborted, and later ones are committed" in str(warning())
    report = replication_of(metastore, "default")
    assert report.is_replicated
    assert "but its write id 2" in doctor._replication_text(report)
    assert report.to_dict()["tables"][0]["warning"] == warning()
    metastore.database_parameters["default"] = {"repl.target.for": "true"}
    assert warning() is None
    write(metastore, abort=True)
    assert "last known write id 4 is aborted" in str(warning())
    write(metastore, abort=False)
    assert warning() is None


def test_what_is_not_there_is_refused() -> None:
    """A database, a table; a server that cannot be asked is an error."""
    metastore = server()
    with pytest.raises(ConfigurationError, match="there is no database nowhere"):
        replication_of(metastore, "nowhere")
    with pytest.raises(TableNotFoundError, match=r"nowhere\.t does not exist .*its database nowhere"):
        replication_of(metastore, "nowhere.t")
    with pytest.raises(TableNotFoundError, match=r"table default\.none does not exist at "):
        replication_of(metastore, "default.none")
    metastore.fail_next("get_database_parameters", MetastoreUnavailableError("connection cut"))
    with pytest.raises(ConnectionFailedError, match=r"database default.*connection cut"):
        replication_of(metastore, "default")


def test_both_texts_name_what_is_missing() -> None:
    """For people with what to do; for programs with null where nothing is to be done."""
    metastore = InMemoryMetastore(configuration={}, capabilities=HIVE_4_1)
    report = replication_of(metastore, "default")
    text = doctor._replication_text(report)
    assert "NO   hive.repl.cm.enabled" in text
    assert text.endswith("will NOT be replicated, or only in part")
    told = report.to_dict()
    assert (told["role"], told["is_replicated"]) == ("none", False)
    to_do = {rule["name"]: rule["what_to_do"] for rule in told["rules"]}
    assert "must be true" in to_do["hive.metastore.dml.events"]
    assert to_do["release"] is None
