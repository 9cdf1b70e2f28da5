"""What becomes of conditions that people type: clauses with sides, in the order that counts."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from mutation_api.errors import ConfigurationError
from mutation_api.format.layout import AcidVersion
from mutation_api.merge.clauses import Clause, MergeOptions, MergeRules
from mutation_api.merge.spark_merge import MergeInto
from mutation_api.merge.spark_rules import merge_by_rules
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable

pytestmark = pytest.mark.slow

TABLE = AcidTable(
    database="d",
    name="t",
    location=Location.parse("/warehouse/t"),
    columns=(AcidColumn("id", "int"), AcidColumn("old", "int")),
    partition_keys=(AcidColumn("ds", "string"),),
    num_buckets=1,
    bucket_columns=(),
    version=AcidVersion.V2_HIVE4,
)


class Transaction:
    """Knows the table; nothing else is asked before the merge runs."""

    def table(self, full_name: str) -> AcidTable:
        assert full_name == "d.T"
        return TABLE


@pytest.fixture
def source(spark: SparkSession) -> DataFrame:
    """Rows with a column that the table does not have, and without one that it has."""
    return spark.createDataFrame([], "op string, id int, seen int")


def described(source: DataFrame, **rules: Any) -> MergeInto:
    return merge_by_rules(Transaction(), "d.T", source=source, on=["id"], rules=MergeRules(**rules))  # type: ignore[arg-type]


def clauses(source: DataFrame, **rules: Any) -> list[str]:
    return [str(clause) for clause in described(source, **rules).clauses]


def test_all_are_updated_or_inserted_unless_told_otherwise(source: DataFrame) -> None:
    """Nothing is deleted; each part can be left out."""
    assert clauses(source) == ["whenMatched().update", "whenNotMatched().insert"]
    assert clauses(source, updates=False) == ["whenNotMatched().insert"]
    assert clauses(source, inserts=False, deletes_missing=True) == [
        "whenMatched().update",
        "whenNotMatchedBySource().delete",
    ]


def test_columns_get_their_side(source: DataFrame) -> None:
    """The source's first; in conditions on rows of the table alone it is the table's."""
    assert clauses(
        source, update_when="old < id", insert_when="op = 'I'", delete_missing_when="ds = 'x' AND id > 1"
    ) == [
        "whenMatched(target.old < source.id).update",
        "whenNotMatched(source.op = 'I').insert",
        "whenNotMatchedBySource(target.ds = 'x' AND target.id > 1).delete",
    ]


def test_what_says_that_a_row_is_gone_is_not_inserted(source: DataFrame) -> None:
    """Unless it reads the table's row, which an insert does not have; then the user has to say."""
    gone = "whenMatched(source.op = 'D').delete"
    stays = "NOT coalesce((source.op = 'D'), false)"
    assert clauses(source, delete_when="op = 'D'", updates=False) == [
        gone,
        f"whenNotMatched({stays}).insert",
    ]
    assert clauses(source, delete_when="op = 'D'", insert_when="seen > 1", updates=False) == [
        gone,
        f"whenNotMatched((source.seen > 1) AND {stays}).insert",
    ]
    with pytest.raises(
        ConfigurationError,
        match=r"delete_when 'old > seen' reads the table's row.* with insert_when, or pass inserts=False",
    ):
        described(source, delete_when="old > seen")
    found = clauses(source, delete_when="old > seen", insert_when="op = 'I'", updates=False)
    assert found[1] == "whenNotMatched(source.op = 'I').insert"
    assert len(clauses(source, delete_when="old > seen", inserts=False)) == 2


def test_orders_of_doubled_keys(source: DataFrame) -> None:
    """SQL with a direction; without one ascending, NULLs first as Spark has it."""
    first = described(source, first_by=("seen DESC", "cast(op AS int) nulls last", "id")).options.first_by
    assert first is not None
    shown = [str(column) for column in first.columns]
    assert [each.partition("<'")[2].rpartition("'>")[0] for each in shown] == [
        "source.seen DESC NULLS LAST",
        "cast(source.op AS int) ASC NULLS LAST",
        "source.id ASC NULLS FIRST",
    ]
    with pytest.raises(ConfigurationError, match=r"first_by '': expected SQL \[ASC\|DESC\]"):
        described(source, first_by=("",))


def test_options_are_those_of_a_merge(source: DataFrame) -> None:
    """They are passed on; what makes no sense is refused."""
    assert isinstance(described(source).clauses[0], Clause)
    options = {"null_safe": True, "write_unchanged": True, "prune_buckets": False, "missing_columns": "error"}
    merge = merge_by_rules(Transaction(), "d.T", source=source, on=["id"], rules=MergeRules(), **options)  # type: ignore[arg-type]
    found = merge.options
    assert found == MergeOptions(**options)  # type: ignore[arg-type]
