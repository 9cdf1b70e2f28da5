"""Lists of valid ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_client.model import OpenTxns, TxnInfo, TxnState
from metastore_client.valid_ids import NO_OPEN_ID, RangeValidity, ValidTxnList

ids = st.integers(min_value=1, max_value=40)
lists = st.builds(
    ValidTxnList,
    high_watermark=st.integers(min_value=0, max_value=40),
    exceptions=st.sets(ids, max_size=12).map(lambda found: tuple(sorted(found))),
    min_open=st.one_of(ids, st.just(NO_OPEN_ID)),
)


@given(lists)
def test_text_round_trip(valid: ValidTxnList) -> None:
    """The 2.x form keeps everything."""
    assert ValidTxnList.parse(valid.to_text()) == valid


@given(lists)
def test_the_comma_form_means_the_same(valid: ValidTxnList) -> None:
    """Open ids before the last colon, aborted ones behind it; only the union decides about validity."""
    middle = len(valid.exceptions) // 2
    opened, aborted = valid.exceptions[:middle], valid.exceptions[middle:]
    if len(valid.exceptions) == 1 or (len(opened) == 1 and len(aborted) == 1):
        return  # without a comma or an empty part the text is one of the 2.x form
    text = (
        f"{valid.high_watermark}:{valid.min_open}:{','.join(map(str, opened))}:{','.join(map(str, aborted))}"
    )
    assert ValidTxnList.parse(text) == valid


@given(lists, ids, ids)
def test_a_range_counts_its_ids(valid: ValidTxnList, one: int, other: int) -> None:
    """ALL, SOME or NONE as the single ids say."""
    first, last = sorted((one, other))
    answers = {valid.is_valid(i) for i in range(first, last + 1)}
    expected = {
        frozenset({True}): RangeValidity.ALL,
        frozenset({False}): RangeValidity.NONE,
        frozenset({True, False}): RangeValidity.SOME,
    }[frozenset(answers)]
    assert valid.range_validity(first, last) is expected


def test_texts_of_hive() -> None:
    """Forms that servers and readers of 2.3 write."""
    assert ValidTxnList.parse("5:3:3:4") == ValidTxnList(5, (3, 4), 3)
    assert ValidTxnList.parse("10:9223372036854775807:3:5") == ValidTxnList(10, (3, 5))
    assert ValidTxnList.parse(f"5:{NO_OPEN_ID}:") == ValidTxnList(5)
    assert ValidTxnList.parse(f"5:{NO_OPEN_ID}::") == ValidTxnList(5)
    assert ValidTxnList.parse("9:2:2,4:3,6-8") == ValidTxnList(9, (2, 3, 4, 6, 7, 8), 2)


@pytest.mark.parametrize("text", ["", "x", "5:y:", "5:3:a", "5:3:1,b:"])
def test_what_is_no_list_is_refused(text: str) -> None:
    """Taking it for an empty one would make open transactions visible."""
    with pytest.raises(ValueError, match="not a list of valid transactions"):
        ValidTxnList.parse(text)


def test_a_snapshot_of_a_transaction() -> None:
    """Others' open and all aborted ids are exceptions, the own id is not."""
    txns = (
        TxnInfo(2, TxnState.ABORTED, "u", "h"),
        TxnInfo(3, TxnState.OPEN, "u", "h"),
        TxnInfo(5, TxnState.OPEN, "u", "h"),
    )
    valid = ValidTxnList.from_open_txns(OpenTxns(6, txns), own_txn_id=5)
    assert valid == ValidTxnList(6, (2, 3), 3)
    assert [i for i in range(1, 8) if valid.is_valid(i)] == [1, 4, 5, 6]


def test_everything_is_valid_without_a_metastore() -> None:
    """For directories that are read by themselves."""
    assert ValidTxnList.everything().is_valid(10**12)
    assert ValidTxnList.everything().is_valid_base(10**12)


def test_a_base_needs_all_below_it_closed() -> None:
    """A compacted base over an open transaction would hide its later commit."""
    valid = ValidTxnList(9, (4,), 4)
    assert valid.is_valid_base(3)
    assert not valid.is_valid_base(4)
    assert not valid.is_valid_base(8)
