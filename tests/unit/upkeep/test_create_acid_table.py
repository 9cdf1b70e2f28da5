"""Which table is created on which release; that Hive's SQL can use it is shown on real servers."""

from __future__ import annotations

import pytest

from metastore_client.errors import MetastoreUnavailableError
from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_2_3, HIVE_3_1, HIVE_4_1, InMemoryMetastore
from mutation_api.errors import ConfigurationError, ConnectionFailedError, TableNotMutableError
from mutation_api.format.layout import AcidVersion
from mutation_api.table.acid_table import TableRole
from mutation_api.transaction.preconditions import check_mutable
from mutation_api.upkeep.create_acid_table import create_acid_table

COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("Msg", "string"))
LATER = pytest.mark.parametrize("capabilities", [HIVE_3_1, HIVE_4_1], ids=lambda c: c.line)


@pytest.mark.parametrize(
    ("capabilities", "version", "bucketing_version"),
    [
        (HIVE_2_3, AcidVersion.V1_SPLIT, None),
        (HIVE_3_1, AcidVersion.V2_HIVE3, "2"),
        (HIVE_4_1, AcidVersion.V2_HIVE4, "2"),
    ],
)
def test_properties_are_those_of_the_line(
    capabilities, version: AcidVersion, bucketing_version: str | None
) -> None:  # type: ignore[no-untyped-def]
    """Split updates everywhere; the new hash where the server knows it, since it does not add that itself."""
    metastore = InMemoryMetastore(capabilities=capabilities)
    created = create_acid_table(
        metastore,
        "Default.T",
        COLUMNS,
        [ColumnInfo("ds", "string")],
        clustered_by=["ID"],
        num_buckets=4,
        properties={"orc.compress": "SNAPPY", "Transactional_Properties": "insert_only"},
    )
    assert created == metastore.get_table("default", "t")
    assert check_mutable(created, capabilities, TableRole.SINK) is version
    assert created.parameters.get("bucketing_version") == bucketing_version
    assert created.parameters["orc.compress"] == "SNAPPY"
    assert (created.bucket_columns, created.num_buckets) == (("id",), 4)
    assert [c.name for c in (*created.columns, *created.partition_keys)] == ["id", "msg", "ds"]


@LATER
@pytest.mark.parametrize("insert_only", [False, True])
def test_later_lines_need_no_buckets(capabilities, insert_only: bool) -> None:  # type: ignore[no-untyped-def]
    """-1 buckets: with 0 Hive 3.1 cannot update the table."""
    metastore = InMemoryMetastore(capabilities=capabilities)
    created = create_acid_table(metastore, "default.t", COLUMNS, insert_only=insert_only)
    assert created.num_buckets == -1
    version = check_mutable(created, capabilities, TableRole.SINK)
    assert version.has_row_ids is not insert_only


def test_what_a_line_does_not_have_is_refused_before_it_is_asked() -> None:
    """The reason names the rule; nothing was sent."""
    metastore = InMemoryMetastore()
    with pytest.raises(TableNotMutableError, match="must be bucketed"):
        create_acid_table(metastore, "default.t", COLUMNS)
    with pytest.raises(TableNotMutableError, match="does not know transactional_properties='insert_only'"):
        create_acid_table(
            metastore, "default.t", COLUMNS, clustered_by=["id"], num_buckets=2, insert_only=True
        )
    with pytest.raises(TableNotMutableError, match="'at' has type"):
        columns = [ColumnInfo("at", "timestamp with local time zone")]
        create_acid_table(metastore, "default.t", columns, clustered_by=["at"], num_buckets=2)
    assert "create_table" not in metastore.calls


def test_contradictory_wishes_and_what_is_there_are_named() -> None:
    """Half a CLUSTERED BY, a table that exists, a database that does not."""
    metastore = InMemoryMetastore()
    buckets = {"clustered_by": ["id"], "num_buckets": 2}
    with pytest.raises(ConfigurationError, match="go together"):
        create_acid_table(metastore, "default.t", COLUMNS, num_buckets=2)
    create_acid_table(metastore, "default.t", COLUMNS, **buckets)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"default\.t could not be created: .*exists"):
        create_acid_table(metastore, "default.t", COLUMNS, **buckets)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"nowhere\.t could not be created"):
        create_acid_table(metastore, "nowhere.t", COLUMNS, **buckets)  # type: ignore[arg-type]
    metastore.fail_next("create_table", MetastoreUnavailableError("connection cut"))
    with pytest.raises(ConnectionFailedError, match=r"default\.u could not be created: connection cut"):
        create_acid_table(metastore, "default.u", COLUMNS, **buckets)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", ["", "a.b", "a:b", "a,b", "a`b", "a\nb", "a\0b", "ROW__ID", "input__file__name"]
)
@pytest.mark.parametrize("is_partition", [False, True])
def test_a_column_that_hive_cannot_read_is_refused(name: str, is_partition: bool) -> None:
    """The table would be there, and Hive could not select from it, or would leave columns out."""
    metastore = InMemoryMetastore(capabilities=HIVE_4_1)
    bad = [ColumnInfo(name, "string")]
    columns, partitioned_by = ([*COLUMNS], bad) if is_partition else ([*COLUMNS, *bad], [])
    with pytest.raises(ConfigurationError, match="Hive cannot read a table with a column called"):
        create_acid_table(metastore, "default.t", columns, partitioned_by)
    assert metastore.get_all_tables("default") == []


def test_odd_names_that_hive_reads(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """Judged in tests/integration/files/test_odd_names_judged.py."""
    metastore = InMemoryMetastore(tmp_path, capabilities=HIVE_4_1)
    names = [" ", "a b", "é", "a'b", "_c0", "#x", "$y"]
    create_acid_table(metastore, "default.t", [ColumnInfo(each, "int") for each in names])
