"""DEFAULT constraints in appends and deletes, on a metastore in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from metastore_client import (
    Address,
    ColumnInfo,
    ConstraintInfo,
    ConstraintKind,
    MetastoreConfig,
)
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api import Hive, MutatorClientBuilder, connect, create_acid_table
from mutation_api.errors import RecordLayoutError
from mutation_api.transaction.builder import user_of

IDS = pa.table({"id": pa.array([1, 2], pa.int32())})


def _connected(
    tmp_path: Path, default: str, user: str | None = None, others: Sequence[ColumnInfo] = ()
) -> Hive:
    metastore = InMemoryMetastore(warehouse=tmp_path, capabilities=HIVE_4_1)
    create_acid_table(metastore, "default.t", [ColumnInfo("id", "int"), ColumnInfo("s", "string"), *others])
    constraint = ConstraintInfo(ConstraintKind.DEFAULT, "d", "S", default)
    metastore.set_constraints("default", "t", [constraint])
    return connect(metastore, user=user)


def _rows(hive: Hive) -> list[dict[str, object]]:
    with hive.snapshot("default.t") as view:
        rows: list[dict[str, object]] = view.table("default.t").scan().to_arrow().sort_by("id").to_pylist()
    return rows


@pytest.mark.parametrize("user", ["etl", None])
def test_the_user_of_a_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: str | None) -> None:
    """It is the one of the transaction: given, or HADOOP_USER_NAME, and not the process's."""
    monkeypatch.setenv("HADOOP_USER_NAME", "hadoop")
    hive = _connected(tmp_path, "current_user()", user)
    with hive.transaction("default.t") as tx:
        tx.table("default.t").append(IDS)
    assert [row["s"] for row in _rows(hive)] == [user or "hadoop"] * 2


def test_the_user_of_a_configuration() -> None:
    """If no other is given, it is the transaction's, too."""
    config = MetastoreConfig((Address("localhost", 1),), user="etl")
    assert [user_of(config, given) for given in (None, "me")] == ["etl", "me"]
    assert [user_of("thrift://localhost:1", given) for given in (None, "me")] == [None, "me"]
    assert MutatorClientBuilder().metastore(config).build()._options.user == "etl"


def test_a_delete_needs_no_default(tmp_path: Path) -> None:
    """Alone, or in a change set of operations; an insert there does."""
    hive = _connected(tmp_path, "concat('a', 'b')")
    with hive.transaction("default.t") as tx:
        tx.table("default.t").append(IDS.append_column("s", pa.array(["x", "y"])))
    with hive.transaction("default.t") as tx:
        table = tx.table("default.t")
        table.delete(table.scan(["id"], where=pc.field("id") == 1, row_ids=True))
    assert _rows(hive) == [{"id": 2, "s": "y"}]
    with hive.transaction("default.t") as tx:
        table = tx.table("default.t")
        rows = table.scan(["id"], row_ids=True).to_arrow()
        table.apply(rows.append_column("operation", pa.array(["delete"])))
    assert _rows(hive) == []
    with hive.transaction("default.t") as tx:
        inserts = IDS.append_column("operation", pa.array(["insert", "INSERT"]))
        with pytest.raises(
            RecordLayoutError, match=r"t: DEFAULT concat.* of column s.*Give the column a value"
        ):
            tx.table("default.t").apply(inserts)
        with pytest.raises(
            RecordLayoutError, match=r"t: DEFAULT concat.* of column s.*Give the column a value"
        ):
            tx.table("default.t").append(IDS)


def test_a_merge_takes_a_source_with_a_union(tmp_path: Path) -> None:
    """The default stands beside the source's columns, which need not be expressions of Arrow."""
    hive = _connected(tmp_path, "'d'", others=[ColumnInfo("u", "uniontype<int,string>")])
    tags, offsets = pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32())
    union = pa.UnionArray.from_dense(tags, offsets, [pa.array([5], pa.int32()), pa.array(["x"])])
    with hive.transaction("default.t") as tx:
        merge = tx.table("default.t").merge(IDS.append_column("u", union), on=["id"])
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert _rows(hive) == [{"id": 1, "s": "d", "u": 5}, {"id": 2, "s": "d", "u": "x"}]
