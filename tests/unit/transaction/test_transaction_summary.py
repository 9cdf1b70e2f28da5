"""The summary counts what the user did, and prints it."""

from __future__ import annotations

import dataclasses
import json

from mutation_api.transaction.manifest import DeltaManifest, FileKind
from mutation_api.transaction.transaction_state import StepSummary, TableSummary, TransactionSummary

DELTA = DeltaManifest(
    "db", "t", 7, 7, "ds=b", ("b",), 0, FileKind.DELTA, "w", "0", "s", "f", 1000, 20, 0, 1020, 500, 1, 0
)
DELETE_DELTA = dataclasses.replace(
    DELTA, kind=FileKind.DELETE_DELTA, insert_count=0, delete_count=3, row_count=23, byte_count=50
)
OTHER = dataclasses.replace(DELTA, partition_name="ds=a", insert_count=1, update_count=0, row_count=1)


def test_an_update_of_a_split_table_counts_once() -> None:
    """It is an event in each of two files; a legacy table has it in its only file, the delta."""
    summary = TableSummary.of("db.t", [DELTA, DELETE_DELTA, OTHER], ("ds=a",))
    steps = (StepSummary(1001, 20, 3),)
    assert summary == TableSummary("db.t", ("ds=a", "ds=b"), ("ds=a",), 1001, 20, 3, 3, 1050, steps)
    legacy = dataclasses.replace(DELTA, delete_count=4, row_count=1024)
    found = TableSummary.of("db.t", [legacy])
    assert found == TableSummary("db.t", ("ds=b",), (), 1000, 20, 4, 1, 500, (StepSummary(1000, 20, 4),))


def test_an_untouched_table_has_zeros() -> None:
    """An unpartitioned table touches no partitions, an empty one nothing at all."""
    assert TableSummary.of("db.t", []) == TableSummary("db.t")
    flat = dataclasses.replace(DELTA, partition_name="", partition_values=())
    assert TableSummary.of("db.t", [flat]).partitions_touched == ()


def test_printed_as_an_aligned_table() -> None:
    """One line per table, numbers below each other, thousands apart; then the phases and the wait."""
    summary = TransactionSummary(
        txn_id=7,
        state="committed",
        tables=(TableSummary.of("db.t", [DELTA, DELETE_DELTA]), TableSummary("db.longer")),
        phase_seconds={"begin": 0.5, "commit": 1.25},
        lock_wait_seconds=2.0,
        roll_overs=1,
    )
    head, headings, first, second, foot = str(summary).splitlines()
    assert head == "transaction 7: committed"
    assert headings.split() == [
        "table", "partitions", "created", "inserted", "updated", "deleted", "files", "bytes"
    ]  # fmt: skip
    assert first.split() == ["db.t", "1", "0", "1,000", "20", "3", "2", "550"]
    assert second.split() == ["db.longer", *"0000000"]
    assert len({len(line) for line in (headings, first, second)}) == 1
    assert foot == "seconds: begin 0.50, commit 1.25; waited 2.00 for the lock; rolled over 1 times"


def test_before_begin() -> None:
    """There is no id and nothing to report yet."""
    assert str(TransactionSummary(None, "inactive")).splitlines()[0] == "transaction not begun: inactive"
    assert str(TransactionSummary(None, "inactive")).endswith("seconds: none")


def test_as_json() -> None:
    """Plain values all the way down."""
    summary = TransactionSummary(7, "committed", (TableSummary.of("db.t", [DELTA]),), {"begin": 1.0})
    assert json.loads(json.dumps(summary.to_dict()))["tables"][0]["inserted"] == 1000
