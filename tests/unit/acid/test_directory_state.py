from __future__ import annotations

import pytest

from metastore_client.valid_ids import ValidTxnList
from mutation_api.acid.directory_state import DirectoryState, choose_directories
from mutation_api.acid.version import AcidVersion
from mutation_api.errors import DirectoryStateError

ALL = ValidTxnList.everything()
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
    """A base above the smallest open transaction may miss rows: it is not used, nor obsolete."""
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
    """Its number is the smallest long."""
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
