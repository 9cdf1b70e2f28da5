"""One mistake is one error on every way; and the texts of the messages."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from metastore_client.valid_ids import ValidTxnList, ValidWriteIdList
from mutation_api.errors import (
    BucketIdError,
    MutationError,
    RecordValueError,
    RowIdNotFoundError,
    TableNotMutableError,
)
from mutation_api.format.event import MAX_BUCKETS, Operation, RowIdArrays, RowIds, bucket_property
from mutation_api.format.layout import AcidVersion
from mutation_api.table.acid_table import AcidTable, WriterOptions
from mutation_api.write.apply import apply_arrow
from mutation_api.write.change_rules import OPERATION_NAMES, Changes, check_row_ids
from mutation_api.write.classify import ChangeClassifier
from mutation_api.write.coordinator import MutatorCoordinator
from tests.support.one_table import OneTable
from tests.unit.write.tables import TXN_ID, acid_table, ids_of_bucket

DS = (("ds", "string"),)
UNBUCKETED = {"bucket_columns": (), "num_buckets": -1}
OF_VERSION = [v for v in AcidVersion if v.has_row_ids]
OF_V2 = [v for v in OF_VERSION if v.encodes_buckets]
INSERT_ONLY = [v for v in AcidVersion if not v.has_row_ids]


class Wrong(NamedTuple):
    """A change with a mistake: its operation, ROW__ID (the fourth part is its row's partition) and id."""

    operation: str
    row_id: tuple[int | str | None, ...] | None
    id: int = 0
    partition: str = "a"


# -- the ways by which a change comes ------------------------------------------------------------------------


def by_change_set(table: AcidTable, wrong: Wrong) -> None:
    """As a row of a DataFrame, beside a good one."""
    names = ("txn", "bucket", "row_id", "partition")
    kinds = (pa.int64(), pa.int32(), pa.int64(), pa.string())
    parts = [None, None, None, None] if wrong.row_id is None else [*wrong.row_id, None][:4]
    row_ids = pa.StructArray.from_arrays(
        [pa.array([None, part], kind) for part, kind in zip(parts, kinds, strict=True)],
        names=list(names),
        mask=pa.array([True, wrong.row_id is None]),
    )
    columns = pa.array([{"ds": wrong.partition, "id": 1}, {"ds": wrong.partition, "id": wrong.id}])
    uses_write_ids = table.version.uses_write_ids
    valid = (
        ValidWriteIdList(TXN_ID - 1, (), aborted=frozenset(), table="db.t")
        if uses_write_ids
        else ValidTxnList(TXN_ID - 1, ())
    )
    writers = None if table.is_bucketed else pa.array([0, 0], pa.int32())
    ChangeClassifier(table, valid).classify(pa.array(["insert", wrong.operation]), row_ids, columns, writers)


def by_record(table: AcidTable, wrong: Wrong) -> None:
    """As a single record of a coordinator."""
    record = {"id": wrong.id, "msg": "x", "ROW__ID": wrong.row_id}
    with MutatorCoordinator(table, options=WriterOptions(batch_rows=1)) as target:
        getattr(target, wrong.operation)([wrong.partition], record)


def by_batch(table: AcidTable, wrong: Wrong) -> None:
    """As an Arrow batch of a coordinator."""
    names = (table.version.transaction_field, "bucketid", "rowid", "partition")
    row_id = wrong.row_id and dict(zip(names, wrong.row_id, strict=False))
    batch = pa.table({"id": [wrong.id], "msg": ["x"], "ROW__ID": pa.array([row_id])})
    with MutatorCoordinator(table) as target:
        getattr(target, wrong.operation)([wrong.partition], batch)


def by_slice(table: AcidTable, wrong: Wrong) -> None:
    """As a slice of a group, as a plan hands it over."""
    row_id = wrong.row_id or (0, 0, 0)
    row_ids = RowIdArrays(*(np.array([part], np.int64) for part in row_id[:3]))
    known = wrong.operation in OPERATION_NAMES
    codes = np.array([OPERATION_NAMES.index(wrong.operation) if known else 7], np.int8)
    rows = pa.array([{"id": wrong.id, "msg": "x"}])
    with MutatorCoordinator(table) as target:
        target.write_events(f"ds={wrong.partition}", 0, codes, row_ids, rows)


def by_arrow(table: AcidTable, wrong: Wrong) -> None:
    """As a row of a change set of the local engine, beside a good one."""
    names = (table.version.transaction_field, "bucketid", "rowid", "partition")
    row_id = wrong.row_id and dict(zip(names, (*wrong.row_id, None)[:4], strict=True))
    kinds = (pa.int64(), pa.int64(), pa.int64(), pa.string())
    changes = {
        "operation": ["insert", wrong.operation],
        "ROW__ID": pa.array([None, row_id], pa.struct(list(zip(names, kinds, strict=True)))),
        "id": [1, wrong.id],
        "msg": ["x", "x"],
        "ds": [wrong.partition] * 2,
    }
    apply_arrow(OneTable(table), table.full_name, pa.table(changes))


Way = Callable[[AcidTable, Wrong], None]
COORDINATOR: tuple[Way, ...] = (by_record, by_batch)
ALL: tuple[Way, ...] = (by_change_set, by_arrow, *COORDINATOR, by_slice)


def refusals(
    path: Path, version: AcidVersion, wrong: Wrong, ways: tuple[Way, ...], **table: Any
) -> dict[str, tuple[type[MutationError], str]]:
    """By the name of the way: class and rule of the error, without location and found values."""
    found = {}
    for way in ways:
        with pytest.raises(MutationError) as caught:
            way(acid_table(path, version, keys=DS, **table), wrong)
        message = re.fullmatch(
            r"table db\.t(?:, partition 'ds=\w')?: (.*)\. Found in 1 of [12] changes: \(operation=.*\)",
            str(caught.value),
        )
        assert message, str(caught.value)
        found[way.__name__] = (type(caught.value), message[1])
    return found


def assert_alike(
    found: dict[str, tuple[type[MutationError], str]], error: type[MutationError], core: str
) -> None:
    """All ways raised the same, given error."""
    ((cls, text),) = set(found.values())
    assert cls is error
    assert core in text


# -- one mistake, one error ----------------------------------------------------------------------------------


@pytest.mark.thorough(1)
@pytest.mark.parametrize("version", OF_VERSION)
@pytest.mark.parametrize("operation", ["update", "delete"])
@pytest.mark.parametrize("row_id", [None, (None, 0, 0), (1, None, 0), (1, 0, None)])
def test_a_missing_row_id(
    tmp_path: Path, version: AcidVersion, operation: str, row_id: tuple[int | None, ...] | None
) -> None:
    """In whole or in part; a slice has all of them by its type."""
    found = refusals(tmp_path, version, Wrong(operation, row_id), (by_change_set, by_arrow, *COORDINATOR))
    assert_alike(found, RecordValueError, "needs the complete ROW__ID of its row; read it with read_table()")


@pytest.mark.parametrize("operation", ["update", "delete"])
def test_no_column_of_row_ids(tmp_path: Path, operation: str) -> None:
    """A missing column is a missing ROW__ID."""
    for record in ({"id": 1, "msg": "x"}, pa.table({"id": [1], "msg": ["x"]})):
        target = MutatorCoordinator(acid_table(tmp_path), options=WriterOptions(batch_rows=5))
        with pytest.raises(
            RecordValueError, match=rf"needs the complete ROW__ID.*'{operation}', ROW__ID=None"
        ):
            getattr(target, operation)([], record)
    with pytest.raises(RecordValueError, match=rf"needs the complete ROW__ID.*'{operation}', ROW__ID=None"):
        ChangeClassifier(acid_table(tmp_path), ValidTxnList(5, ())).classify(
            pa.array([operation]), None, pa.array([{"id": 1}])
        )


@pytest.mark.thorough(1)
@pytest.mark.parametrize("version", OF_VERSION)
@pytest.mark.parametrize("operation", ["update", "delete"])
@pytest.mark.parametrize(
    ("txn", "number"), [(TXN_ID, 0), (TXN_ID + 1, 0), (10**15, 0), (-1, 0), (1, -1)], ids=str
)
def test_a_row_that_cannot_be_seen(
    tmp_path: Path, version: AcidVersion, operation: str, txn: int, number: int
) -> None:
    """Rows of this or a later transaction, or with numbers that no row has."""
    bucket = bucket_property(0) if version.encodes_buckets else 0
    found = refusals(tmp_path, version, Wrong(operation, (txn, bucket, number)), ALL, num_buckets=1)
    kind = "write id" if version.uses_write_ids else "transaction"
    assert_alike(found, RowIdNotFoundError, f"or that {kind} {TXN_ID} cannot change: its {kind} is negative")


@pytest.mark.thorough(1)
@pytest.mark.parametrize("version", OF_VERSION)
@pytest.mark.parametrize("operation", ["update", "delete"])
@pytest.mark.parametrize("bucket", [2, 7, 4095])
def test_a_bucket_out_of_range(tmp_path: Path, version: AcidVersion, operation: str, bucket: int) -> None:
    """Also as a plain number in v2, which rows of Hive 2 keep there."""
    for value in {bucket, bucket_property(bucket)} if version.encodes_buckets else {bucket}:
        found = refusals(tmp_path, version, Wrong(operation, (1, value, 0)), ALL)
        assert_alike(found, BucketIdError, "a bucket that the table does not have: expected 0 <= bucket < 2")


@pytest.mark.parametrize("version", OF_V2)
@pytest.mark.parametrize("table", [{}, UNBUCKETED], ids=["bucketed", "not bucketed"])
@pytest.mark.parametrize("value", [-1, MAX_BUCKETS, 2 << 29, bucket_property(0) | 1 << 12])
def test_a_bucket_field_that_hive_does_not_write(
    tmp_path: Path, version: AcidVersion, table: dict[str, Any], value: int
) -> None:
    """Readers would silently ignore such a delete."""
    found = refusals(tmp_path, version, Wrong("delete", (1, value, 0)), ALL, **table)
    assert_alike(found, BucketIdError, "a bucket field that Hive never writes")


@pytest.mark.parametrize("version", [v for v in OF_VERSION if not v.keeps_misplaced_rows])
def test_an_update_that_would_move_to_another_bucket(tmp_path: Path, version: AcidVersion) -> None:
    """The plan computes the bucket of a slice; it is not computed again."""
    (other,) = ids_of_bucket(acid_table(tmp_path, version), 1, 1)
    bucket = bucket_property(0) if version.encodes_buckets else 0
    wrong = Wrong("update", (1, bucket, 0), id=other)
    found = refusals(tmp_path, version, wrong, (by_change_set, by_arrow, *COORDINATOR))
    assert_alike(found, BucketIdError, "changes CLUSTERED BY id, or because Hive put the row there")


@pytest.mark.parametrize("version", OF_VERSION)
def test_an_update_that_would_move_to_another_partition(tmp_path: Path, version: AcidVersion) -> None:
    """If ROW__ID has the partition."""
    (same,) = ids_of_bucket(acid_table(tmp_path, version), 0, 1)
    bucket = bucket_property(0) if version.encodes_buckets else 0
    wrong = Wrong("update", (1, bucket, 0, "ds=a"), id=same, partition="b")
    found = refusals(tmp_path, version, wrong, (by_change_set, by_arrow, *COORDINATOR))
    assert_alike(found, RecordValueError, "a partition other than its row's; to move the row, delete the old")


@pytest.mark.parametrize("version", INSERT_ONLY)
@pytest.mark.parametrize("operation", ["update", "delete"])
@pytest.mark.parametrize("row_id", [None, (1, 0, 0), (1, bucket_property(0), 0), (TXN_ID, 99, -1)])
def test_a_table_without_row_ids(
    tmp_path: Path, version: AcidVersion, operation: str, row_id: tuple[int, int, int] | None
) -> None:
    """Whatever ROW__ID says."""
    found = refusals(tmp_path, version, Wrong(operation, row_id), ALL)
    assert_alike(found, TableNotMutableError, "it is insert-only: its rows have no ROW__ID, so they can be")


@pytest.mark.parametrize("version", list(AcidVersion))
def test_an_unknown_operation(tmp_path: Path, version: AcidVersion) -> None:
    """A text or a code."""
    found = refusals(tmp_path, version, Wrong("upsert", None), (by_change_set, by_arrow, by_slice))
    assert_alike(found, RecordValueError, "must be one of 'insert', 'update', 'delete' (codes 0, 1 and 2)")


@pytest.mark.parametrize("version", OF_VERSION)
def test_only_a_coordinator_looks_at_the_row_id_of_an_insert(tmp_path: Path, version: AcidVersion) -> None:
    """There the caller claims the attached bucket; in a change set it is the bucket of a row that moves."""
    (other,) = ids_of_bucket(acid_table(tmp_path, version), 1, 1)
    bucket = bucket_property(0) if version.encodes_buckets else 0
    wrong = Wrong("insert", (TXN_ID, bucket, -5), id=other)
    found = refusals(tmp_path, version, wrong, COORDINATOR)
    assert_alike(
        found, BucketIdError, "the bucket attached to an insert differs from the bucket of its values"
    )
    by_change_set(acid_table(tmp_path, version, keys=DS), wrong)
    by_arrow(acid_table(tmp_path, version, keys=DS), wrong)


# -- what a message says -------------------------------------------------------------------------------------


def changes(table: AcidTable, row_ids: RowIds, **settings: Any) -> Changes:
    """Deletes."""
    return Changes(table, np.full(len(row_ids), Operation.DELETE, np.int8), row_ids, **settings)


def test_many_mistakes_are_counted_and_few_are_shown(tmp_path: Path) -> None:
    """Location, number of wrong changes, three of them with bucket and columns, long values cut."""
    numbers = np.arange(9)
    row_ids = RowIds.complete(RowIdArrays(numbers, np.full(9, bucket_property(1, 2)), numbers - 5))
    table = acid_table(tmp_path, AcidVersion.V2_HIVE4, keys=DS)
    columns = {"id": pa.array(["y" * 100] * 9)}
    with pytest.raises(RowIdNotFoundError) as caught:
        check_row_ids(changes(table, row_ids, partition_name="ds=a", columns=columns))
    message = str(caught.value)
    assert message.startswith("table db.t, partition 'ds=a': ROW__ID names a row")
    found = message.partition(". Found in 7 of 9 changes, such as ")[2].split("; ")
    field = bucket_property(1, 2)
    shown = f"'{'y' * 59}…"
    assert found == [
        f"(operation='delete', ROW__ID=({n}, {field}, {n - 5}), bucket=1, id={shown})" for n in range(3)
    ]


def test_a_message_shows_what_python_cannot_hold(tmp_path: Path) -> None:
    """A day of the year 10000 does not hide the mistake."""
    days = pa.array([2932897], pa.date32())
    with pytest.raises(OverflowError):
        days[0].as_py()
    with pytest.raises(
        RecordValueError, match=r"needs the complete ROW__ID.*ROW__ID=None, d=<date32\[day\]>\)"
    ):
        check_row_ids(changes(acid_table(tmp_path), RowIds.none(1), columns={"d": days}))
    known = {"d": pa.array([datetime.date(2020, 1, 2)])}
    with pytest.raises(RecordValueError, match=r"d=datetime\.date\(2020, 1, 2\)\)"):
        check_row_ids(changes(acid_table(tmp_path), RowIds.none(1), columns=known))


def test_a_snapshot_is_heeded_where_it_is_known(tmp_path: Path) -> None:
    """Without a snapshot, as in a coordinator, rows of open and aborted transactions are accepted."""
    row_ids = RowIds.complete(RowIdArrays(np.array([0, 3, 4]), np.zeros(3, int), np.arange(3)))
    table = acid_table(tmp_path)
    check_row_ids(changes(table, row_ids))
    check_row_ids(changes(table, row_ids), ValidTxnList(6, (5,)))
    with pytest.raises(RowIdNotFoundError, match=r"Found in 1 of 3 changes: \(.*ROW__ID=\(3, 0, 1\)"):
        check_row_ids(changes(table, row_ids), ValidTxnList(6, (3,)))
