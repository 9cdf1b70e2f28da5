"""What apply_arrow would write, against what it then writes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from mutation_api.errors import RecordValueError
from mutation_api.format.event import ROW_ID_COLUMN
from mutation_api.write import local_plan
from mutation_api.write.apply import apply_arrow
from mutation_api.write.local_plan import LocalOptions, forecast_arrow
from tests.unit.write.conftest import DS, LocalTable, MakeTable
from tests.unit.write.test_apply import LAYOUTS, inserts

LOCAL = LocalOptions(threads=3)


@pytest.mark.thorough(1)
@pytest.mark.parametrize(("line", "how"), LAYOUTS, ids=str)
def test_it_comes_true(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch, line: str, how: dict[str, Any]
) -> None:
    """Rows, groups and files exactly, bytes within a factor of three."""
    monkeypatch.setattr(local_plan, "ROWS_PER_INSERT_FILE", 100)
    table = make_table(line, **how)
    rows = inserts(range(3000))
    check(table, rows if "partitioned_by" in how else rows.drop_columns(["ds"]))
    known = table.rows(row_ids=True)
    changes = [
        *({**row, "operation": "update", "msg": "new"} for row in known if row["id"] % 3 == 0),
        *({ROW_ID_COLUMN: row[ROW_ID_COLUMN], "operation": "delete"} for row in known if row["id"] % 7 == 1),
        *({**row, "operation": "insert"} for row in known if row["id"] % 5 == 0),
    ]
    names = ["operation", *known[0]]
    taken = [each for each in changes if each["operation"] != "delete" or each not in changes[:1]]
    by_id = {repr(each.get(ROW_ID_COLUMN)): each for each in taken if each["operation"] != "insert"}
    taken = [*by_id.values(), *(each for each in taken if each["operation"] == "insert")]
    check(table, pa.Table.from_pylist([{name: change.get(name) for name in names} for change in taken]))


def check(table: LocalTable, changes: pa.Table) -> None:
    """Compare the forecast with what is written."""
    with table.client.new_transaction() as transaction:
        found = forecast_arrow(transaction, table.name, changes, local=LOCAL)
        written = apply_arrow(transaction, table.name, changes, local=LOCAL)
    counted = [sum(getattr(g, name) for g in found.groups) for name in ("inserted", "updated", "deleted")]
    assert counted == [written.inserted, written.updated, written.deleted]
    assert (found.file_count, len(found.groups)) == (written.file_count, written.bucket_count)
    assert tuple(sorted({g.partition for g in found.groups if g.partition})) == written.partitions
    assert found.row_count == written.row_count > 0
    assert written.byte_count / 3 < found.byte_count < written.byte_count * 3


def test_wrong_changes_are_found(make_table: MakeTable) -> None:
    """As far as addresses and values show it; nothing is written."""
    table = make_table("4.1", partitioned_by=DS)
    with table.client.new_transaction() as transaction:
        with pytest.raises(RecordValueError, match="must be one of"):
            forecast_arrow(transaction, table.name, inserts(range(3), operation=["insert", "x", "insert"]))
        assert forecast_arrow(transaction, table.name, inserts(range(3)).slice(0, 0)).row_count == 0
    assert table.files() == []
