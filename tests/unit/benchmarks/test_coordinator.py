"""The benchmark of one thread: what ours writes, and what would be noticed if a contestant wrote less."""

from __future__ import annotations

from pathlib import Path

from benchmarks.coordinator import bound_table, expected_content, insert_batches, table_of, written_content
from benchmarks.data.group_data import GroupedRows
from mutation_api.write.coordinator import MutatorCoordinator


def test_what_is_written_is_what_was_given(tmp_path: Path) -> None:
    """Rows and keys of all rounds are found in the files; a file that is missing shows."""
    rows = GroupedRows.made(bound_table(tmp_path, 2, 1), 3, 60)
    for txn_id in (1, 2):
        with MutatorCoordinator(bound_table(tmp_path, 2, txn_id)) as coordinator:
            insert_batches(coordinator, rows)
    assert written_content(tmp_path) == expected_content(rows.batches, 2)
    assert expected_content(rows.batches, 2)[0] == 120
    next(path for path in tmp_path.rglob("*bucket_*") if path.is_file()).unlink()
    assert written_content(tmp_path)[0] == 110


def test_every_contestant_has_tables_of_its_own() -> None:
    """Names hold in SQL without quotes."""
    assert table_of("java-api", 3) == "java_api.t3"
