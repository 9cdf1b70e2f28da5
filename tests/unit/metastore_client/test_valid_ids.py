"""Lists of valid ids."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_client.model import OpenTxns, TxnInfo, TxnState
from metastore_client.valid_ids import NO_OPEN_ID, RangeValidity, ValidTxnList, ValidWriteIdList

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
    """Open ids before the last colon, aborted ones behind it."""
    middle = len(valid.exceptions) // 2
    opened, aborted = valid.exceptions[:middle], valid.exceptions[middle:]
    if len(valid.exceptions) == 1 or (len(opened) == 1 and len(aborted) == 1):
        return  # without a comma or an empty part the text is one of the 2.x form
    text = (
        f"{valid.high_watermark}:{valid.min_open}:{','.join(map(str, opened))}:{','.join(map(str, aborted))}"
    )
    parsed = ValidTxnList.parse(text)
    assert parsed == replace(valid, aborted=frozenset(aborted))
    assert parsed.to_write_id_text() == text


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
    assert ValidTxnList.parse("9:2:2,4:3,6-8") == ValidTxnList(
        9, (2, 3, 4, 6, 7, 8), 2, frozenset({3, 6, 7, 8})
    )


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
    assert valid == ValidTxnList(6, (2, 3), 3, frozenset({2}))
    assert [i for i in range(1, 8) if valid.is_valid(i)] == [1, 4, 5, 6]


def test_a_snapshot_with_write_ids_ends_at_the_own_transaction() -> None:
    """As Hive 3 and 4 make it: what began later is not seen, committed or not, and is not listed."""
    txns = tuple(
        TxnInfo(id, state, "u", "h")
        for id, state in [
            *[(7, TxnState.ABORTED), (9, TxnState.OPEN), (10, TxnState.ABORTED)],
            *[(12, TxnState.OPEN), (13, TxnState.ABORTED), (14, TxnState.OPEN)],
        ]
    )
    valid = ValidTxnList.from_open_txns(OpenTxns(15, txns), own_txn_id=12, has_write_ids=True)
    assert valid.to_write_id_text() == "12:9:9:7,10"
    assert [i for i in range(6, 16) if valid.is_valid(i)] == [6, 8, 11, 12]
    reader = ValidTxnList.from_open_txns(OpenTxns(15, txns), own_txn_id=None, has_write_ids=True)
    assert reader.to_write_id_text() == "15:9:9,12,14:7,10,13"
    alone = ValidTxnList.from_open_txns(OpenTxns(12, ()), own_txn_id=12, has_write_ids=True)
    assert alone.to_write_id_text() == f"12:{NO_OPEN_ID}::"


def test_the_bits_of_aborted_write_ids_are_little_endian() -> None:
    """What Hive 3.1.3 answered for [2,3,4,5] with the first and third aborted, and past the last byte."""
    valid = ValidWriteIdList.from_bits("d.t", 5, [2, 3, 4, 5], 3, b"\x05")
    assert valid == ValidWriteIdList(5, (2, 3, 4, 5), 3, frozenset({2, 4}), "d.t")
    assert valid.to_text() == "d.t:5:3:3,5:2,4"
    assert ValidWriteIdList.parse(valid.to_text()) == valid
    long = ValidWriteIdList.from_bits("d.t", 30, range(1, 31), 1, b"\x00\x81")
    assert long.aborted == {9, 16}
    assert ValidWriteIdList.from_bits("d.t", 0, [], None, b"").to_text() == f"d.t:0:{NO_OPEN_ID}::"


def test_a_list_up_to_an_id() -> None:
    """What came later is not seen; what was open or aborted before stays unseen; the list keeps its kind."""
    valid = ValidWriteIdList(9, (3, 5, 8), 5, frozenset({3, 8}), "d.t")
    assert valid.up_to(6) == ValidWriteIdList(6, (3, 5), 5, frozenset({3}), "d.t")
    assert valid.up_to(10) == valid
    assert [i for i in range(1, 12) if valid.up_to(6).is_valid(i)] == [1, 2, 4, 6]


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


def test_a_text_names_no_more_ids_than_there_can_be() -> None:
    """They are listed one by one."""
    assert ValidTxnList.parse("2000000:5:5,6:7-1000000").exceptions[-1] == 1_000_000
    with pytest.raises(ValueError, match="not a list of valid transactions"):
        ValidTxnList.parse("9223372036854775806:5:5,6:7-9223372036854775805")
