"""Waiting single records: what is refused at once, and how the error of a batch names a record."""

from __future__ import annotations

import pytest

from mutation_api.errors import (
    RecordLayoutError,
    RecordValueError,
    TransactionStateError,
)
from mutation_api.table.acid_table import WriterOptions
from tests.unit.write.tables import acid_table, coordinator, files_below, row_id


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ((1, "x"), r"row\.asDict\(\).* got tuple"),
        (["id", "msg"], "got list"),
        (None, "got NoneType"),
        ({1: 1, "msg": "x"}, r"must be strings, got \[1, 'msg'\]"),
    ],
)
def test_what_is_no_record_is_refused(tmp_path, record, message):
    """Even if it looks like the names of the record before."""
    target = coordinator(acid_table(tmp_path, num_buckets=1), options=WriterOptions())
    target.insert([], {"id": 1, "msg": "x"})
    with pytest.raises(RecordLayoutError, match=rf"table db\.t: .*{message}"):
        target.insert([], record)


@pytest.mark.parametrize(
    ("record", "error"),
    [({"id": 2**70, "msg": "x"}, RecordValueError), ({"id": 3, "msg": b"x"}, RecordLayoutError)],
)
def test_an_error_at_a_later_flush_names_the_record(tmp_path, record, error):
    """The caller does not know which records form a batch."""
    table = acid_table(tmp_path, num_buckets=1)
    target = coordinator(table, options=WriterOptions(batch_rows=10))
    target.update([], {"ROW__ID": row_id(1, 0, 4), "id": 1, "msg": "fine"})
    target.update([], {"ROW__ID": row_id(1, 0, 5), **record})
    with pytest.raises(error, match=r"update of record \{'id': .*\} with ROW__ID \(1, 0, 5\)"):
        target.close()
    with pytest.raises(TransactionStateError, match="failed earlier"):
        target.insert([], {"id": 1, "msg": "y"})
    target.abort()
    assert files_below(tmp_path) == []


def test_a_refusal_quotes_a_long_record_in_part(tmp_path):
    """A message of a megabyte is useless; the wrong column comes first."""
    target = coordinator(acid_table(tmp_path, num_buckets=1), options=WriterOptions(batch_rows=10))
    target.insert([], {"id": 2**70, "msg": "x" * 1_000_000})
    with pytest.raises(RecordValueError, match=r"id.*too large") as refused:
        target.close()
    assert len(str(refused.value)) < 1000
    target.abort()
