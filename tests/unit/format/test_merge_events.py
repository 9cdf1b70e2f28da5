from __future__ import annotations

import numpy as np
import pytest

from metastore_client.valid_ids import ValidTxnList
from mutation_api.format.event import RecordIdentifier
from mutation_api.format.merge_events import (
    EventKeys,
    concatenate_keys,
    count_below,
    count_up_to,
    events_in_order,
    find_disorder,
    in_order,
    is_remaining,
    merge_legacy,
    order_of,
    visible_deletes,
)

ALL = ValidTxnList.everything()
INSERT, UPDATE, DELETE = 0, 1, 2


def events(*rows: tuple[int, int, int, int, int], precedence: int = -1) -> EventKeys:
    """Rows are (original transaction, bucket, row id, current transaction, operation)."""
    columns = np.asarray(rows, dtype=np.int64).reshape(-1, 5).T
    return EventKeys(
        columns[0],
        columns[1].astype(np.int32),
        columns[2],
        columns[3],
        columns[4].astype(np.int8),
        np.full(len(rows), precedence, np.int32),
    )


def test_the_newest_visible_event_of_a_row_decides() -> None:
    """Legacy: an update wins over its insert, a delete removes the row, an invisible event is ignored."""
    keys = concatenate_keys(
        [
            events((1, 0, 0, 1, INSERT), (1, 0, 1, 1, INSERT), (1, 0, 2, 1, INSERT), (1, 0, 3, 1, INSERT)),
            events((1, 0, 1, 2, UPDATE), (1, 0, 2, 2, DELETE), (1, 0, 3, 2, UPDATE)),
            events((1, 0, 3, 3, DELETE), (3, 0, 0, 3, INSERT)),
        ]
    )
    assert merge_legacy(keys, ALL).tolist() == [0, 4, 8]
    assert merge_legacy(keys, ValidTxnList(2)).tolist() == [0, 4, 6]
    assert merge_legacy(keys, ValidTxnList(3, (2,))).tolist() == [0, 1, 2, 8]


def test_within_a_transaction_the_higher_statement_wins() -> None:
    """Several updates of one row in one transaction."""
    keys = concatenate_keys(
        [
            events((1, 0, 0, 5, UPDATE), precedence=0),
            events((1, 0, 0, 5, UPDATE), precedence=2),
            events((1, 0, 0, 5, UPDATE), precedence=1),
            events((1, 0, 0, 1, INSERT)),
        ]
    )
    assert merge_legacy(keys, ALL).tolist() == [1]


def test_all_visible_events_are_in_the_order_of_a_file() -> None:
    """By key, the newest first; none is left out because a newer one has the same key."""
    keys = concatenate_keys(
        [
            events((1, 0, 0, 1, INSERT), (1, 0, 1, 1, INSERT)),
            events((1, 0, 0, 3, DELETE), (1, 0, 1, 2, UPDATE), (2, 0, 0, 2, INSERT)),
            events((1, 0, 1, 4, UPDATE), precedence=0),
            events((1, 0, 1, 4, UPDATE), precedence=1),
        ]
    )
    order = events_in_order(keys, ALL)
    assert order.tolist() == [2, 0, 6, 5, 3, 1, 4]
    assert find_disorder(keys.take(order)) is None
    assert events_in_order(keys, ValidTxnList(4, (3,))).tolist() == [0, 6, 5, 3, 1, 4]


def remaining(rows: EventKeys, valid: ValidTxnList, *deletes: EventKeys) -> list[int]:
    """Indices of the rows that remain of a split layout."""
    return np.flatnonzero(is_remaining(rows, visible_deletes(deletes, valid), valid)).tolist()


def test_split_rows_are_inserts_minus_visible_deletes() -> None:
    """A delete that the snapshot does not see removes nothing; two rows with one key are two rows."""
    rows = events((1, 0, 0, 1, INSERT), (1, 0, 1, 1, INSERT), (1, 0, 1, 1, INSERT), (1, 0, 2, 1, INSERT))
    deletes = events((1, 0, 0, 2, DELETE), (1, 0, 2, 3, DELETE))
    assert remaining(rows, ALL, deletes) == [1, 2]
    assert remaining(rows, ValidTxnList(3, (3,)), deletes) == [1, 2, 3]
    assert remaining(rows, ValidTxnList(0), deletes) == []
    assert remaining(rows, ALL, deletes, events((1, 0, 1, 4, DELETE))) == []
    assert remaining(rows, ALL) == [0, 1, 2, 3]
    assert remaining(rows.slice(0, 0), ALL, deletes) == []


@pytest.mark.parametrize("seed", range(40))
def test_deletes_are_found_in_any_files(seed: int) -> None:
    """Of few and of many transactions and buckets, sorted or not; what remains is what a set says."""
    rng = np.random.default_rng(seed)
    txns, buckets, numbers = int(rng.integers(1, 90)), int(rng.integers(1, 4)), int(rng.integers(1, 30))

    def drawn(count: int, operation: int) -> EventKeys:
        keys = sorted(
            (int(rng.integers(txns)), int(rng.integers(buckets)), int(rng.integers(numbers)))
            for _ in range(count)
        )
        return events(*((*key, 100 + int(rng.integers(9)), operation) for key in keys))

    rows = drawn(200, INSERT)
    files = [drawn(int(rng.integers(1, 200)), DELETE) for _ in range(int(rng.integers(1, 4)))]
    valid = ValidTxnList(107, (103,))
    gone = {f.key(n) for f in files for n in range(len(f)) if valid.is_valid(int(f.current_txn[n]))}
    expected = [n for n in range(200) if valid.is_valid(int(rows.current_txn[n])) and rows.key(n) not in gone]
    assert remaining(rows, valid, *files) == expected


def test_files_that_do_not_overlap_are_in_order() -> None:
    """Then rows need not be sorted; otherwise the order is by key, and stable."""
    first, second = events((1, 0, 0, 1, INSERT), (1, 0, 5, 1, INSERT)), events((1, 0, 5, 2, INSERT))
    third = events((1, 0, 3, 1, INSERT))
    assert in_order([second, first]) == [1, 0]
    assert in_order([first, third]) is None
    assert in_order([]) == []
    assert order_of(concatenate_keys([second, first, third])).tolist() == [1, 3, 0, 2]


def test_keys_too_wide_to_pack_are_merged_alike() -> None:
    """Ranges of 64 bits in two fields do not fit one integer."""
    low, high = -(2**63), 2**63 - 1
    keys = concatenate_keys(
        [
            events((low, -1, low, 1, INSERT), (high, 7, high, 1, INSERT)),
            events((low, -1, low, 2, DELETE), (high, 7, low, 2, INSERT)),
        ]
    )
    assert merge_legacy(keys, ALL).tolist() == [3, 1]
    assert remaining(keys.slice(0, 2), ALL, keys.slice(2, 4)) == [1]


@pytest.mark.parametrize(
    ("rows", "at"),
    [
        ([(1, 0, 0, 1, 0), (1, 0, 1, 1, 0)], None),
        ([(1, 0, 0, 2, 1), (1, 0, 0, 1, 0)], None),
        ([(1, 0, 0, 1, 0), (1, 0, 0, 1, 0)], None),
        ([(1, 0, 0, 1, 0), (1, 0, 0, 2, 1)], 1),
        ([(1, 0, 5, 1, 0), (2, 0, 0, 2, 0), (1, 0, 6, 1, 0)], 2),
        ([(1, 1, 0, 1, 0), (1, 0, 5, 1, 0)], 1),
        ([(1, 0, 1, 1, 0), (1, 0, 0, 1, 0)], 1),
        ([(5, 0, 0, 5, 0), (1, 0, 0, 5, 1)], 1),
        ([], None),
    ],
)
def test_disorder_is_found(rows: list[tuple[int, int, int, int, int]], at: int | None) -> None:
    """Key ascending, then transaction descending; the last but one case is inserts before updates."""
    assert find_disorder(events(*rows)) == at


def test_counts_up_to_and_below_a_key() -> None:
    """Compared field by field, equal keys included or not."""
    keys = events((1, 0, 0, 1, 0), (1, 0, 5, 2, 1), (1, 0, 5, 1, 0), (1, 1, 0, 1, 0), (3, 0, 0, 3, 0))
    for limit, up_to, below in [
        (RecordIdentifier(1, 0, 5), 3, 1),
        (RecordIdentifier(1, 0, 4), 1, 1),
        (RecordIdentifier(2, 0, 0), 4, 4),
        (RecordIdentifier(0, 9, 9), 0, 0),
        (RecordIdentifier(9, 0, 0), 5, 5),
    ]:
        assert (count_up_to(keys, limit), count_below(keys, limit)) == (up_to, below)
