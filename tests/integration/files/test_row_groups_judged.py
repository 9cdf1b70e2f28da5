"""Hive begins to read in the middle of our stripes, at the row group that a condition leads it to."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from judges.hive.judge import HiveJudge
from metastore_client.remote.thrift_client import open_client
from mutation_api.format.hive_type import arrow_type, parse_hive_type
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.write.coordinator import MutatorCoordinator
from tests.fixtures.fix_judge import LINES
from tests.integration.files.hive_values import random_value

pytestmark = pytest.mark.slow

COUNT = 45_000
ROW_GROUP = 10_000
KINDS = 400
"""Distinct random rows; ids make them one of a kind."""
TYPES = {
    "few": "string", "b": "boolean", "i1": "tinyint", "i4": "int", "f": "float", "d": "double",
    "v": "varchar(6)", "y": "binary", "n": "decimal(12,3)", "big": "decimal(38,10)", "dt": "date",
    "t": "timestamp", "a": "array<string>", "m": "map<string,double>", "st": "struct<x:int,y:array<boolean>>",
}  # fmt: skip
READERS = {
    "row": {"hive.vectorized.execution.enabled": "false", "hive.fetch.task.conversion": "none"},
    "vector": {"hive.vectorized.execution.enabled": "true", "hive.fetch.task.conversion": "none"},
}


def rows() -> pa.Table:
    """All types, nulls in each column; in the third row group two columns hold nothing else."""
    rng = random.Random(20_261_122)
    ids = np.arange(COUNT)
    columns = {
        "id": pa.array(ids),
        "msg": pa.array([None if n % 7 == 0 else f"{n * 2654435761 % 2**32:x}" for n in ids.tolist()]),
    }
    places = pa.array(np.random.default_rng(5).integers(0, KINDS, COUNT))
    in_third = (ids // ROW_GROUP) == 2
    for name, text in TYPES.items():
        kind = parse_hive_type(text)
        values = [random_value(rng, kind, early_fractions=False) for _ in range(KINDS)]
        column = pa.array(values, arrow_type(kind, timestamp_unit="us")).take(places)
        if name in ("i4", "a"):
            column = column.take(pa.array(ids, mask=in_third))
        columns[name] = column
    return pa.table(columns)


@pytest.mark.long
@pytest.mark.parametrize("hive_line", LINES, indirect=True)
def test_a_row_group_read_alone_has_the_rows_of_the_whole(hive_line: HiveJudge, line_database: str) -> None:
    """Every column of a row is the same, whether Hive reads all row groups or begins at the row's."""
    declared = ", ".join(
        f"{name} {text}" for name, text in {"id": "bigint", "msg": "string", **TYPES}.items()
    )
    name = f"{line_database}.t"
    hive_line.sql(
        f"CREATE TABLE {name} ({declared}) CLUSTERED BY (id) INTO 1 BUCKETS STORED AS ORC "
        "TBLPROPERTIES ('transactional'='true', 'transactional_properties'='default')"
    )
    client = MutatorClientBuilder().metastore(hive_line.uri).add_sink_table(line_database, "t", False).build()
    written = rows()
    with client, client.new_transaction() as transaction:
        with MutatorCoordinator(transaction.table(name)) as coordinator:
            coordinator.insert([], written)
            manifests = coordinator.close()
        assert [manifest.stripe_count for manifest in manifests] == [1]
        transaction.add_manifests(name, coordinator.writer_id, manifests)
    for id_ in (ROW_GROUP - 1, ROW_GROUP, 2 * ROW_GROUP + 17, COUNT - 1):
        found = {
            (reader, pushed): hive_line.sql(
                f"SELECT * FROM {name} WHERE id = {id_}",
                settings={**settings, "hive.optimize.index.filter": pushed},
            )
            for reader, settings in READERS.items()
            for pushed in ("true", "false")
        }
        (expected,) = found["row", "false"]
        assert expected[:2] == [id_, written["msg"][id_].as_py()]
        assert found == {key: [expected] for key in found}, id_


def test_hive_does_skip_row_groups(hive: HiveJudge, hive_database: str) -> None:
    """Otherwise the test above would prove nothing."""
    name = f"{hive_database}.t"
    hive.sql(
        f"CREATE TABLE {name} (id bigint, msg string) CLUSTERED BY (id) INTO 1 BUCKETS STORED AS ORC "
        "TBLPROPERTIES ('transactional'='true', 'transactional_properties'='default')"
    )
    client = MutatorClientBuilder().metastore(hive.uri).add_sink_table(hive_database, "t", False).build()
    written = rows().select(["id", "msg"])
    with (
        client,
        client.new_transaction() as transaction,
        MutatorCoordinator(transaction.table(name)) as coordinator,
    ):
        coordinator.insert([], written)
        transaction.add_manifests(name, coordinator.writer_id, coordinator.close())
    with open_client(hive.uri) as metastore:
        location = metastore.get_table(hive_database, "t").location.removeprefix("file:")
    found = hive.read(
        location, "id:bigint,msg:string", transactional_properties="default", where=("id", "=", 23_456)
    )
    expected = written.slice(2 * ROW_GROUP, ROW_GROUP).to_pylist()
    assert [list(row.values) for row in found] == [list(row.values()) for row in expected]
