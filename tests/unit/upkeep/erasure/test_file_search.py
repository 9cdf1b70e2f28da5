"""One file: each row counts, each byte has a meaning, and everything else is a reason."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mutation_api.format.layout import AcidVersion
from mutation_api.hive.erasure_keys import ErasedKeys, sought_keys
from mutation_api.orc.format.tail import read_tail
from mutation_api.storage.local import LocalStorage
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.upkeep.erasure.file_search import SearchedFile, search_file
from mutation_api.upkeep.erasure.table_search import TableSearch, search_table
from tests.support.acid_files import inserts, write_events, write_orc

COLUMNS = (AcidColumn("id", "bigint"), AcidColumn("msg", "string"))


def table_at(root: Path, *keys: AcidColumn, columns: tuple[AcidColumn, ...] = COLUMNS) -> AcidTable:
    return AcidTable(
        "shop", "t", Location.given(root), columns, keys, 0, (), AcidVersion.V2_HIVE4, bucketing_version=2
    )


def searched(path: Path, column: str, *keys: Any, columns: tuple[AcidColumn, ...] = COLUMNS) -> SearchedFile:
    sought = sought_keys(
        table_at(path.parent, columns=columns), column, ErasedKeys.of("", pa.array(list(keys)))
    )
    entry = LocalStorage().stat(Location.given(path))
    assert entry is not None
    return search_file(sought, entry)


def test_each_row_of_each_stripe_counts(tmp_path: Path) -> None:
    """Events of any operation; strings may contain a key without being one."""
    path = tmp_path / "bucket_00000"
    many = [(n % 7, f"a{n % 5}" * 300) for n in range(1000)]
    write_events(path, [*inserts(1, 536870912, 0, many), (2, 1, 536870912, 5000, 2, None)])
    assert len(read_tail(LocalStorage(), Location.given(path)).stripes) > 1
    assert searched(path, "id", 3, 99).found_rows == sum(id == 3 for id, _ in many)
    assert searched(path, "msg", "a1" * 300).found_rows == sum(msg == "a1" * 300 for _, msg in many)
    free = searched(path, "msg", "a1", "a")
    assert free.is_free
    assert (free.row_count, len(free.checksum)) == (1001, 64)


def test_rows_that_are_no_events(tmp_path: Path) -> None:
    """Files from before the table was transactional, by position or by name; columns added later are NULL."""
    path = tmp_path / "000000_0"
    write_orc(path, pa.table({"id": [1, 2], "msg": ["x", "y"]}))
    assert searched(path, "id", 2).found_rows == 1
    write_orc(path, pa.table({"_col0": [1, 2], "_col1": ["x", "y"]}))
    assert searched(path, "msg", "y").found_rows == 1
    write_orc(path, pa.table({"_col0": [1, 2]}))
    assert searched(path, "msg", "y").is_free


def test_a_range_that_ends_with_a_key(tmp_path: Path) -> None:
    """It is a value that is still there, even if no row has it."""
    path = tmp_path / "bucket_00000"
    write_events(path, inserts(1, 536870912, 0, [(1, "aaaa"), (2, "mmmm"), (3, "zzzz")]))
    stripe = read_tail(LocalStorage(), Location.given(path)).stripes[0]
    content = path.read_bytes()
    data = slice(
        stripe.offset + stripe.index_length, stripe.offset + stripe.index_length + stripe.data_length
    )
    assert content[data].count(b"zzzz") == 1
    path.write_bytes(content[: data.start] + content[data].replace(b"zzzz", b"yyyy") + content[data.stop :])
    found = searched(path, "msg", "zzzz")
    assert (found.found_rows, found.found_in_statistics > 1, found.is_free) == (0, True, False)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"id,msg\n1,x\n", "not an ORC file"),
        (b"ORC" + b"\x00" * 50, "cannot be decoded"),
    ],
)
def test_what_cannot_be_decoded(tmp_path: Path, content: bytes, reason: str) -> None:
    """It is named, and never counts as searched."""
    path = tmp_path / "bucket_00000"
    path.write_bytes(content)
    found = searched(path, "id", 1)
    assert reason in found.reason
    assert not found.is_free


def test_bytes_between_the_parts_of_a_file(tmp_path: Path) -> None:
    """Zeros are padding; anything else may be rows that no footer names any more."""
    path = tmp_path / "bucket_00000"
    write_events(path, inserts(1, 536870912, 0, [(1, "x")]))
    content = path.read_bytes()
    tail = read_tail(LocalStorage(), Location.given(path))
    at = len(content) - 1 - tail.postscript_length - tail.footer_length - tail.statistics_length
    path.write_bytes(content[:at] + b"\0" * 40 + content[at:])
    assert searched(path, "id", 5).is_free
    path.write_bytes(content[:at] + b"person" + content[at:])
    assert "belong to no stripe" in searched(path, "id", 5).reason


def test_columns_of_another_table(tmp_path: Path) -> None:
    """Results of a query may be staged anywhere."""
    path = tmp_path / "000000_0"
    write_orc(path, pa.table({"a": [1], "b": [2], "c": [3]}))
    assert "are not those of the table" in searched(path, "id", 5).reason


@pytest.mark.parametrize(
    ("name", "content", "is_free"),
    [
        ("bucket_00000", b"", True),
        ("_orc_acid_version", b"2", True),
        ("_orc_acid_version", b"\0\0\0\0", True),
        ("_orc_acid_version", b"2person", False),
        ("_SUCCESS", b"", True),
        ("_SUCCESS", b"x", False),
        ("bucket_00000_flush_length", b"\0" * 16, True),
        (".bucket_00000.crc", b"crc\0\0\0\2\0" + b"\1" * 8, True),
        (".bucket_00000.crc", b"person", False),
    ],
)
def test_small_files(tmp_path: Path, name: str, content: bytes, is_free: bool) -> None:
    """Those that belong to ACID directories are known by their whole content."""
    path = tmp_path / name
    path.write_bytes(content)
    assert searched(path, "id", 1).is_free is is_free


def test_types_of_keys(tmp_path: Path) -> None:
    """Decimals of any scale, chars with padding, binary and dates are found."""
    columns = (
        AcidColumn("d", "decimal(10,2)"),
        AcidColumn("c", "char(5)"),
        AcidColumn("b", "binary"),
        AcidColumn("day", "date"),
    )
    path = tmp_path / "000000_0"
    days = pa.array([19000, 19001], pa.int32()).cast(pa.date32())
    rows = pa.table(
        {
            "d": pa.array([Decimal("1.50"), Decimal("2.00")], pa.decimal128(10, 2)),
            "c": ["ab", "cd"],
            "b": pa.array([b"x", b"y"], pa.binary()),
            "day": days,
        }
    )
    write_orc(path, rows)
    assert searched(path, "d", "1.5", columns=columns).found_rows == 1
    assert searched(path, "d", Decimal("2"), columns=columns).found_rows == 1
    assert searched(path, "c", "cd", columns=columns).found_rows == 1
    assert searched(path, "b", b"y", columns=columns).found_rows == 1
    assert searched(path, "day", "2022-01-08", columns=columns).found_rows == 1


def of_table(root: Path, *partitions: str) -> TableSearch:
    table = table_at(root, *([AcidColumn("who", "string")] if partitions else []))
    column = "who" if partitions else "id"
    sought = sought_keys(table, column, ErasedKeys.of("", pa.array(["7"])))
    names = partitions or ("",)
    return search_table(sought, {name: table.partition_location(name) for name in names})


def test_places_of_a_table(tmp_path: Path) -> None:
    """Staged and hidden files, and directories that the metastore does not know."""
    rows = inserts(1, 536870912, 0, [(7, "x"), (8, "y")])
    for name in ("delta_1/b", "_mutation_12/w/0/b", ".hive-staging_1/x/b", "_tmp/b", "base_1/b"):
        write_events(tmp_path / name, rows)
    found = {
        str(each.location.relative_to(Location.given(tmp_path))): each for each in of_table(tmp_path).files
    }
    assert len(found) == 5
    assert all(each.searched.found_rows == 1 for each in found.values())
    assert [name for name, each in sorted(found.items()) if each.is_compactable] == ["base_1/b", "delta_1/b"]
    assert found["_mutation_12/w/0/b"].staged_by == 12


def test_keys_in_a_partition_column(tmp_path: Path) -> None:
    """All rows of such a partition count; the report does not show its name."""
    rows = inserts(1, 536870912, 0, [(1, "x"), (2, "y")])
    for name in ("who=7/delta_1/b", "who=8/delta_1/b", "who=9/delta_1/b", "_mutation_3/w/0/b"):
        write_events(tmp_path / name, rows)
    search = of_table(tmp_path, "who=7", "who=8")
    assert search.sought_partitions == {"who=7"}
    assert sorted(search.shown(each.location) for each in search.left) == [
        "_mutation_3/w/0/b",
        "who=…/delta_1/b",
        "who=…/delta_1/b",
    ]
    assert search.found_rows == 2
    assert search.partitions_to_rewrite == ["who=7"]
    assert sum("not known" in each.searched.reason for each in search.left) == 2
