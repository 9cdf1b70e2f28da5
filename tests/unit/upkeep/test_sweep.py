"""What a sweep removes, and what it never touches."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from metastore_client.errors import MetastoreUnavailableError
from metastore_client.testing import InMemoryMetastore
from mutation_api.errors import ConnectionFailedError, TableNotMutableError
from mutation_api.storage.location import Location
from mutation_api.transaction.staging import Abandoned
from mutation_api.upkeep.sweep import sweep
from tests.support.client_support import table_info


@pytest.fixture
def metastore(tmp_path: Path) -> InMemoryMetastore:
    """Tables t and u, and one that is not an ACID table."""
    metastore = InMemoryMetastore(warehouse=tmp_path)
    metastore.create_table(table_info("plain", parameters={}))
    for name in ("t", "u"):
        metastore.create_table(table_info(name, location=f"file:{tmp_path}/{name}"))
    return metastore


def left(table: Path, txn_id: int) -> Location:
    """A file that a transaction staged."""
    staged = table / f"_mutation_{txn_id}"
    (staged / "w" / "0").mkdir(parents=True)
    (staged / "w" / "0" / "file").write_bytes(b"x")
    return Location.given(staged)


def test_only_what_is_over_goes(metastore: InMemoryMetastore, tmp_path: Path) -> None:
    """Files of aborted and committed transactions go; those of open and unknown ones stay."""
    dead, done, alive = (metastore.open_txn("u", "h", "") for _ in range(3))
    metastore.abort_txn(dead)
    metastore.commit_txn(done)
    unknown = alive + 1000
    places = {txn_id: left(tmp_path / "t", txn_id) for txn_id in (dead, done, alive, unknown)}
    (tmp_path / "t" / "_mutation_probe_1").write_bytes(b"")
    (tmp_path / "u" / "delta_0000001_0000001_0000").mkdir()
    plain, t, u = sweep(metastore, "default")
    assert "must be transactional" in str(plain.reason)
    expected = {Abandoned(i, places[i]) for i in (dead, done)}
    expected.add(Abandoned(None, Location.given(tmp_path / "t" / "_mutation_probe_1")))
    assert set(t.found) == set(t.removed) == expected
    assert sorted(p.name for p in (tmp_path / "t").iterdir()) == [
        f"_mutation_{unknown}",
        f"_mutation_{alive}",
    ]
    assert (u.found, u.removed) == ((), ())
    assert [p.name for p in (tmp_path / "u").iterdir()] == ["delta_0000001_0000001_0000"]


def test_a_dry_run_removes_nothing(metastore: InMemoryMetastore, tmp_path: Path) -> None:
    """A dry run finds the same."""
    dead = metastore.open_txn("u", "h", "")
    metastore.abort_txn(dead)
    staged = left(tmp_path / "t", dead)
    (swept,) = sweep(metastore, "default.t", dry_run=True)
    assert (swept.found, swept.removed) == ((Abandoned(dead, staged),), ())
    assert Path(staged.path).exists()


def test_a_transaction_that_begins_meanwhile_keeps_its_files(
    metastore: InMemoryMetastore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The open transactions are listed before the directories."""
    asked = metastore.get_open_txns

    def then_another_begins():
        answer = asked()
        left(tmp_path / "t", metastore.open_txn("u", "h", ""))
        return answer

    monkeypatch.setattr(metastore, "get_open_txns", then_another_begins)
    (swept,) = sweep(metastore, "default.t")
    assert swept.found == ()
    assert len([*(tmp_path / "t").iterdir()]) == 1


def test_partitions_that_lie_elsewhere_are_swept(
    metastore: InMemoryMetastore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files staged for partitions elsewhere lie near these."""
    (partition,) = metastore.add_partitions("default", "t", [("a", "1")])
    elsewhere = tmp_path / "elsewhere"
    moved = dataclasses.replace(partition, location=f"file:{elsewhere}")
    monkeypatch.setattr(metastore, "get_partitions_by_names", lambda *_, **__: [moved])
    dead = metastore.open_txn("u", "h", "")
    metastore.abort_txn(dead)
    staged = left(elsewhere, dead)
    (swept,) = sweep(metastore, "default.t")
    assert swept.removed == (Abandoned(dead, staged),)


def test_a_table_that_cannot_be_looked_at(metastore: InMemoryMetastore) -> None:
    """As the only table it is an error; among others it is one line of the report."""
    with pytest.raises(TableNotMutableError, match="does not exist"):
        [*sweep(metastore, "default.none")]
    with pytest.raises(TableNotMutableError, match="must be transactional"):
        [*sweep(metastore, "default.plain")]


def test_without_the_metastores_word_nothing_goes(metastore: InMemoryMetastore, tmp_path: Path) -> None:
    """Without the server's list of transactions nothing is removed."""
    dead = metastore.open_txn("u", "h", "")
    metastore.abort_txn(dead)
    staged = left(tmp_path / "t", dead)
    metastore.fail_next("get_open_txns", MetastoreUnavailableError("connection cut"))
    with pytest.raises(ConnectionFailedError, match="connection cut"):
        [*sweep(metastore, "default.t")]
    assert Path(staged.path).exists()
