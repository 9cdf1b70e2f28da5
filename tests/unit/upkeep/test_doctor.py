"""What the doctor says about a server and its tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from metastore_client.errors import MetastoreError, MetastoreUnavailableError
from metastore_client.model import CompactionInfo, CompactionType, ConstraintInfo, ConstraintKind
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.cli.doctor import _text
from mutation_api.errors import ConfigurationError, ConnectionFailedError, TableNotFoundError
from mutation_api.format.layout import AcidVersion
from mutation_api.upkeep.doctor import (
    LATE_SECONDS,
    NOT_TOLD,
    TableReport,
    compaction_notes,
    compactor_trouble,
    doctor,
)
from tests.support.client_support import table_info


def test_each_table_has_its_layout_or_its_reason(tmp_path: Path) -> None:
    """Tables come sorted; one that cannot be mutated has a reason, even if the server cannot describe it."""
    metastore = InMemoryMetastore(warehouse=tmp_path)
    metastore.create_table(table_info("split", parameters={"transactional": "true"}))
    metastore.create_table(table_info("plain", parameters={}))
    metastore.create_table(table_info("broken"))
    metastore.fail_next("get_table", MetastoreError("no such class"))
    broken, plain, split = doctor(metastore, "DEFAULT").tables
    assert broken == TableReport("default.broken", None, "the metastore could not describe it: no such class")
    assert plain.version is None
    assert plain.reason is not None
    assert "must be transactional" in plain.reason
    assert split == TableReport("default.split", AcidVersion.V1_LEGACY, None)


def test_a_table_whose_place_cannot_be_used_says_so(tmp_path: Path) -> None:
    """Also if the storage lacks its package or its scheme is unknown; the probes leave nothing behind."""
    metastore = InMemoryMetastore(warehouse=tmp_path)
    parameters = {"transactional": "true"}
    for name, location in {
        "gone": f"file:{tmp_path}/gone",
        "there": f"file:{tmp_path}/there",
        "unknown": "ftp://host/t",
        "relative": "warehouse/t",
    }.items():
        metastore.create_table(table_info(name, parameters=parameters, location=location))
    (tmp_path / "gone").rmdir()
    gone, relative, there, unknown = doctor(metastore, "default").tables
    assert there == TableReport("default.there", AcidVersion.V1_LEGACY, None)
    assert [*(tmp_path / "there").iterdir()] == []
    assert "cannot be reached: No such file or directory" in str(gone.reason)
    assert "unsupported scheme" in str(unknown.reason)
    assert "expected scheme:/path" in str(relative.reason)


def test_the_server_is_described_and_nothing_is_changed() -> None:
    """Release, capabilities and settings; a setting that the server does not report is not an error."""
    metastore = InMemoryMetastore(configuration={"hive.metastore.dml.events": "true"})
    server = dict(doctor(metastore, "default").server)
    assert server["release"] == "Hive 2.x"
    assert server["write ids"] == "no"
    assert server["hive.metastore.dml.events"] == "true"
    assert server["hive.compactor.worker.threads"] == NOT_TOLD
    read = {
        "capabilities",
        "get_config_value",
        "get_all_tables",
        "get_database_parameters",
        "get_open_txns",
    }
    assert set(metastore.calls) == read


def test_one_table_is_examined_alone(tmp_path: Path) -> None:
    """In any case; the others are not asked for. One that does not exist is refused."""
    metastore = InMemoryMetastore(warehouse=tmp_path)
    for name in ("one", "other"):
        metastore.create_table(table_info(name, parameters={"transactional": "true"}))
    (found,) = doctor(metastore, "default.ONE").tables
    assert found == TableReport("default.one", AcidVersion.V1_LEGACY, None)
    assert "get_all_tables" not in metastore.calls
    with pytest.raises(TableNotFoundError, match=r"none does not exist .*similar names: default\.one\."):
        doctor(metastore, "default.none")
    with pytest.raises(ConfigurationError, match="there is no database nodb: check the name"):
        doctor(metastore, "nodb")
    with pytest.raises(TableNotFoundError, match="its database nodb does not exist"):
        doctor(metastore, "nodb.one")


def test_an_empty_property_keeps_hive_2_from_compacting(tmp_path: Path) -> None:
    """It is named, with what to do; later servers do not mind."""
    parameters = {"transactional": "true", "note": ""}
    old = InMemoryMetastore(warehouse=tmp_path)
    old.create_table(table_info("t", parameters=parameters))
    (found,) = doctor(old, "default").tables
    assert (found.version, found.reason) == (AcidVersion.V1_LEGACY, None)
    assert "'note' is empty: remove it with ALTER TABLE … UNSET TBLPROPERTIES ('note')" in str(found.trouble)
    assert compactor_trouble(parameters, HIVE_4_1) is None
    assert compactor_trouble({"transactional": "true"}, old.capabilities()) is None


def entry(state: str, id: int, **facts: object) -> CompactionInfo:
    return CompactionInfo("default", "t", "ds=a", CompactionType.MAJOR, state, id, **facts)  # type: ignore[arg-type]


def test_compactions_that_wait_or_fail_are_named() -> None:
    """Late ones, the latest failures with their reason, and who did the last one that succeeded."""
    now = 2_000_000_000.0
    late, soon = int((now - LATE_SECONDS - 1) * 1000), int((now - 1) * 1000)
    entries = [
        entry("succeeded", 1, worker_id="host-mutate-7", end_time=late),
        entry("failed", 2, worker_id="h", error="disk full\n"),
        entry("did not initiate", 3),
        entry("working", 4, worker_id="h", start_time=late),
        entry("initiated", 5, enqueue_time=soon),
        entry("initiated", 6, enqueue_time=late),
        entry("ready for cleaning", 7, enqueue_time=late, end_time=soon),
    ]
    info = table_info("t", parameters={"no_auto_compaction": "true"})
    assert list(compaction_notes(info, entries[:6], now, {})) == [
        "no_auto_compaction is true, so only requested compactions are done: hive-mutate compact",
        "a major compaction of ds=a waits since 2033-05-18T02:33:19+00:00 for a worker: hive-mutate "
        "compactor, or hive.compactor.worker.threads",
        "the last 2 compactions failed",
        "last compacted by host-mutate-7 at 2033-05-18T02:33:19+00:00",
    ]
    plain = table_info("t", parameters={})
    assert list(compaction_notes(plain, entries[1:2], now, {})) == ["the last compaction failed: disk full"]
    (waits,) = compaction_notes(plain, entries[6:], now + LATE_SECONDS, {})
    assert "waits since 2033-05-18T03:33:19+00:00 for the cleaner" in waits
    assert compaction_notes(plain, entries[6:], now, {}) == ()


def test_hive_loses_rows_by_query_on_hdfs() -> None:
    """HIVE-29567; not in insert-only tables, elsewhere, or with the default."""
    by_query = {"hive.compactor.crud.query.based": "true"}
    on_hdfs = {"location": "hdfs://host/t"}
    (note,) = compaction_notes(table_info("t", parameters={}, **on_hdfs), [], 0.0, by_query)
    assert "lose all rows" in note
    insert_only = table_info("t", parameters={"transactional_properties": "insert_only"}, **on_hdfs)
    assert compaction_notes(insert_only, [], 0.0, by_query) == ()
    assert compaction_notes(table_info("t", parameters={}), [], 0.0, by_query) == ()
    assert compaction_notes(table_info("t", parameters={}, **on_hdfs), [], 0.0, {}) == ()


def test_a_metastore_without_threads_of_the_compactor_is_named() -> None:
    """Who else may do the work depends on the release."""
    off = {
        "hive.compactor.initiator.on": "false",
        "hive.compactor.worker.threads": "0",
        "hive.compactor.cleaner.on": "false",
    }
    old = doctor(InMemoryMetastore(configuration=off), "default").warnings
    assert len(old) == 2
    assert "another metastore does them" in old[1]
    new = doctor(InMemoryMetastore(configuration=off, capabilities=HIVE_4_1), "default").warnings
    assert len(new) == 3
    assert "hive-mutate compactor does them" in new[1]
    assert doctor(InMemoryMetastore(), "default").warnings == ()


def test_a_server_that_cannot_be_asked_is_an_error() -> None:
    """If the server cannot be asked, there is no report at all."""
    metastore = InMemoryMetastore()
    metastore.fail_next("get_all_tables", MetastoreUnavailableError("connection cut"))
    with pytest.raises(ConnectionFailedError, match=r"database default.*connection cut"):
        doctor(metastore, "default")
    with pytest.raises(ConfigurationError, match="not the full name of a table"):
        doctor(metastore, "a.b.c")


def test_constraints_of_a_table_are_shown(tmp_path: Path) -> None:
    """Those that are enforced; a CHECK that only Hive evaluates is a reason not to write."""
    metastore = InMemoryMetastore(warehouse=tmp_path, capabilities=HIVE_4_1)
    metastore.create_table(table_info("ruled"))
    check = ConstraintInfo(ConstraintKind.CHECK, "ck", "", "`id` > 0")
    others = [
        ConstraintInfo(ConstraintKind.NOT_NULL, "nn", "id"),
        ConstraintInfo(ConstraintKind.DEFAULT, "df", "msg", "'x'"),
        ConstraintInfo(ConstraintKind.NOT_NULL, "off", "msg", is_enabled=False),
    ]
    metastore.set_constraints("default", "ruled", [check, *others])
    report = doctor(metastore, "default")
    assert _text(report).splitlines()[-3:] == [
        "    CHECK (`id` > 0)",
        "    msg DEFAULT 'x'",
        "    id NOT NULL",
    ]
    odd = ConstraintInfo(ConstraintKind.CHECK, "odd", "msg", "md5(msg) <> 'x'")
    metastore.set_constraints("default", "ruled", [odd, *others])
    (table,) = doctor(metastore, "default").tables
    assert table.version is None
    assert "CHECK odd" in str(table.reason)
