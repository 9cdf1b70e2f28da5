from __future__ import annotations

import pytest

from metastore_client.valid_ids import NO_OPEN_ID, ValidTxnList, ValidWriteIdList
from mutation_api.errors import DirectoryStateError
from mutation_api.format.directory_state import DirectoryState, choose_directories
from mutation_api.format.layout import AcidVersion, BaseDirectory

ALL = ValidTxnList.everything()
ALL_WRITE_IDS = ValidWriteIdList(NO_OPEN_ID)
V1 = AcidVersion.V1_LEGACY


def choose(*directories: str, valid: ValidTxnList = ALL, **files: int) -> DirectoryState:
    return choose_directories(directories, files, valid, version=V1, location="/t")


def names(state: DirectoryState) -> list[str]:
    return [d.name for d in state.deltas]


def test_wide_deltas_hide_narrow_ones_of_both_kinds() -> None:
    """The worked example of the format's description: base, compacted deltas, and what came later."""
    state = choose(
        "base_0000005",
        "delta_0000004_0000004_0000",
        "delta_0000006_0000006_0000",
        "delta_0000006_0000006_0001",
        "delta_0000006_0000008",
        "delete_delta_0000006_0000008",
        "delta_0000009_0000009_0000",
        "delete_delta_0000009_0000009_0000",
        valid=ValidTxnList(9),
    )
    assert state.base is not None
    assert state.base.name == "base_0000005"
    assert names(state) == [
        "delete_delta_0000006_0000008",
        "delta_0000006_0000008",
        "delete_delta_0000009_0000009_0000",
        "delta_0000009_0000009_0000",
    ]
    assert sorted(state.obsolete) == [
        "delta_0000004_0000004_0000",
        "delta_0000006_0000006_0000",
        "delta_0000006_0000006_0001",
    ]


def test_the_greatest_usable_base_wins() -> None:
    """A base above the smallest open transaction may miss rows: it is neither used nor obsolete."""
    bases = ("base_0000003", "base_0000007", "base_0000009")
    state = choose(*bases, valid=ValidTxnList(9, (8,), min_open=8))
    assert state.base is not None
    assert state.base.last == 7
    assert state.obsolete == ("base_0000003",)


def test_bases_that_are_all_too_new_are_an_error() -> None:
    """The snapshot is older than the compaction; reading what is left would lose rows."""
    with pytest.raises(DirectoryStateError, match=r"/t: not enough history: .*base_0000007.*'5:"):
        choose("base_0000007", "delta_0000008_0000008", valid=ValidTxnList(5))


def test_the_base_of_a_converted_table_is_always_usable() -> None:
    """The number of such a base is the smallest long."""
    state = choose("base_-9223372036854775808", "delta_0000001_0000001", valid=ValidTxnList(0))
    assert state.base is not None
    assert names(state) == []


def test_originals_count_without_a_base_only() -> None:
    """Empty and hidden ones never do."""
    files = {"000000_0": 10, "000001_0": 0, "_SUCCESS": 1, ".x.crc": 1}
    state = choose_directories(
        ["sub", "_tmp", "delta_0000001_0000001"], files, ALL, version=V1, location="/t"
    )
    assert (state.original_files, state.original_directories) == (("000000_0",), ("sub",))
    state = choose_directories(["sub", "base_0000001"], files, ALL, version=V1, location="/t")
    assert (state.original_files, state.original_directories) == ((), ())
    assert set(state.obsolete) == {"000000_0", "sub"}


def test_open_and_aborted_transactions_are_left_out() -> None:
    """They are not obsolete either: the first is needed later, the second is the cleaner's business."""
    deltas = [f"delta_000000{n}_000000{n}" for n in (1, 2, 3)]
    state = choose(*deltas, valid=ValidTxnList(2, (1,)))
    assert names(state) == ["delta_0000002_0000002"]
    assert state.obsolete == ()


def test_a_compacted_delta_with_an_invalid_id_is_still_read() -> None:
    """Its events are filtered one by one."""
    assert names(choose("delta_0000001_0000003", valid=ValidTxnList(3, (2,)))) == ["delta_0000001_0000003"]


def test_all_statements_of_a_transaction_are_read_in_order() -> None:
    """Each has a directory of its own."""
    found = ("delta_0000001_0000001_0010", "delta_0000001_0000001_0002", "delete_delta_0000001_0000001_0002")
    assert names(choose(*found)) == [
        "delete_delta_0000001_0000001_0002",
        "delta_0000001_0000001_0002",
        "delta_0000001_0000001_0010",
    ]


def test_a_directory_without_statement_hides_numbered_ones() -> None:
    """As Hive reads them; a writer must never mix the two."""
    state = choose("delta_0000001_0000001", "delta_0000001_0000001_0000")
    assert names(state) == ["delta_0000001_0000001"]
    assert state.obsolete == ("delta_0000001_0000001_0000",)


def test_a_bad_name_is_refused_with_its_place() -> None:
    """The message has the partition's location and the directory."""
    with pytest.raises(DirectoryStateError, match=r"/t: directory 'delta_1_1'"):
        choose("delta_1_1")


def test_hidden_directories_are_not_looked_at() -> None:
    """However bad their names are."""
    assert names(choose("_delta_1_1", ".delta_x")) == []


def choose_v2(
    *directories: str,
    version: AcidVersion = AcidVersion.V2_HIVE4,
    valid: ValidWriteIdList = ALL_WRITE_IDS,
    txns: ValidTxnList | None = ALL,
) -> DirectoryState:
    return choose_directories(directories, {}, valid, version=version, location="/t", valid_txns=txns)


def test_a_compaction_counts_when_its_transaction_is_seen() -> None:
    """It covers the directories that it was made of, statement ids included; without it those are read."""
    statements = ("delta_0000005_0000005_0000", "delta_0000005_0000005_0001", "delta_0000006_0000006_0000")
    compacted = ("delta_0000005_0000006_v0000020", "delete_delta_0000005_0000006_v0000020")
    assert names(choose_v2(*statements, *compacted)) == sorted(compacted)
    assert names(choose_v2(*statements, *compacted, txns=ValidTxnList(30, (20,), 20))) == list(statements)
    state = choose_v2(*statements, *compacted, "base_0000006_v0000021")
    assert (state.base, names(state)) == (BaseDirectory("base_0000006_v0000021", 6, 21), [])
    match = r"0000020 was made by the compaction of transaction 20, .*pass the list"
    with pytest.raises(DirectoryStateError, match=match):
        choose_v2(*compacted, txns=None)


def test_a_compacted_base_wins_over_one_that_was_overwritten() -> None:
    """At one id; the youngest compaction if there are several."""
    state = choose_v2("base_0000005", "base_0000005_v0000010", "base_0000005_v0000012")
    assert state.base is not None
    assert state.base.name == "base_0000005_v0000012"
    assert state.obsolete == ("base_0000005", "base_0000005_v0000010")


def test_a_base_that_nobody_sees_is_passed_over_by_hive_4_only() -> None:
    """INSERT OVERWRITE under way or aborted: older Hives fail every query on that."""
    aborted = ValidWriteIdList(5, (5,), aborted=frozenset({5}))
    directories = ("base_0000005", "delta_0000001_0000001_0000")
    state = choose_v2(*directories, valid=aborted)
    assert (state.base, names(state)) == (None, ["delta_0000001_0000001_0000"])
    with pytest.raises(DirectoryStateError, match="not enough history"):
        choose_v2(*directories, valid=aborted, version=AcidVersion.V2_HIVE3)


def test_two_directories_of_the_same_events_are_refused() -> None:
    """Hive reads both and doubles their rows."""
    with pytest.raises(DirectoryStateError, match=r"delta_0000005_0000006 and .*20 contain the same events"):
        choose_v2("delta_0000005_0000006", "delta_0000005_0000006_v0000020")
