"""What a release of Hive lacks, or we do not do there, with the reason that docs/compatibility.md shows."""

from __future__ import annotations

from typing import Any

import pytest

from metastore_client.capabilities import Capabilities
from metastore_client.model import ColumnInfo
from mutation_api.errors import TableNotMutableError
from mutation_api.table.acid_table import TableRole
from mutation_api.transaction.preconditions import check_mutable
from tests.support.client_support import table_info

SERVERS = {
    "2.3": Capabilities(version="3.0", has_write_ids=False),
    "3.1": Capabilities(version="3.0", has_write_ids=True),
    "4.1": Capabilities(version="4.1.0", has_write_ids=True, has_exclusive_write_lock=True),
    "4.2": Capabilities(version="4.2.1", has_write_ids=True, has_exclusive_write_lock=True),
}
ALL = tuple(SERVERS)
LATER = ("3.1", "4.1", "4.2")
ACID = {"transactional": "true"}


def with_property(name: str, value: str) -> dict[str, Any]:
    """A table with one more property."""
    return {"parameters": {**ACID, name: value}}


ZONED = {"columns": (ColumnInfo("id", "int"), ColumnInfo("t", "timestamp with local time zone"))}
NO_BUCKETS = {"bucket_columns": (), "num_buckets": -1}
CASES = [
    ("tables without buckets", ["2.3"], NO_BUCKETS, "must be bucketed", "ACID tables must be bucketed there"),
    (
        "insert-only tables",
        ["2.3"],
        with_property("transactional_properties", "insert_only"),
        "does not know transactional_properties='insert_only'",
        "not supported there",
    ),
    (
        "tables with `transactional_properties=legacy`",
        LATER,
        with_property("transactional_properties", "legacy"),
        "does not know transactional_properties='legacy'",
        "not supported there",
    ),
    ("`timestamp with local time zone`", ALL, ZONED, "'t' has type", "it cannot be stored in ORC"),
    (
        "replication targets",
        ALL,
        with_property("repl.last.id", "7"),
        "target of a replication",
        "only replication may write to them",
    ),
]


@pytest.mark.parametrize(
    ("line", "changes", "rule"),
    [
        pytest.param(
            line,
            changes,
            rule,
            id=f"{line}-{feature}",
            marks=pytest.mark.feature(feature, lines=[line], refused=reason),
        )
        for feature, lines, changes, rule, reason in CASES
        for line in lines
    ],
)
def test_what_a_line_does_not_have_is_refused(line: str, changes: dict[str, Any], rule: str) -> None:
    """Before anything is written, by name of table and rule."""
    with pytest.raises(TableNotMutableError, match=rule) as refusal:
        check_mutable(table_info("broken", **changes), SERVERS[line], TableRole.SINK)
    assert "default.broken" in str(refusal.value)
