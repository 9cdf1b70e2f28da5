from __future__ import annotations

import pytest

from mutation_api.errors import DirectoryStateError
from mutation_api.format.layout import (
    LONG_MIN,
    AcidVersion,
    BaseDirectory,
    DeltaDirectory,
    bucket_file_name,
    delete_delta_directory_name,
    delta_directory_name,
    is_hidden,
    parse_bucket_file_name,
    parse_directory_name,
    parse_original_file_name,
)

V1, HIVE3, HIVE4 = AcidVersion.V1_LEGACY, AcidVersion.V2_HIVE3, AcidVersion.V2_HIVE4


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (delta_directory_name(5, 7, None), "delta_0000005_0000007"),
        (delta_directory_name(5, 5, 3), "delta_0000005_0000005_0003"),
        (delta_directory_name(5, 9, None, 12), "delta_0000005_0000009_v0000012"),
        (delete_delta_directory_name(5, 9, None, 12), "delete_delta_0000005_0000009_v0000012"),
        (delta_directory_name(10000001, 10000001, 10000), "delta_10000001_10000001_10000"),
        (delete_delta_directory_name(5, 5, 0), "delete_delta_0000005_0000005_0000"),
        (bucket_file_name(3), "bucket_00003"),
        (bucket_file_name(123456), "bucket_123456"),
    ],
)
def test_names_are_padded_as_hive_pads_them(name: str, expected: str) -> None:
    """Ids have at least seven digits, statements four, buckets five; none is ever cut."""
    assert name == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("base_0000005", BaseDirectory("base_0000005", 5)),
        ("base_5", BaseDirectory("base_5", 5)),
        ("base_-9223372036854775808", BaseDirectory("base_-9223372036854775808", LONG_MIN)),
        ("delta_0000001_0000002", DeltaDirectory("delta_0000001_0000002", 1, 2, None, False)),
        ("delta_0000001_0000001_0004", DeltaDirectory("delta_0000001_0000001_0004", 1, 1, 4, False)),
        ("delete_delta_0000001_0000001", DeltaDirectory("delete_delta_0000001_0000001", 1, 1, None, True)),
        ("staging", None),
        ("deltas", None),
        ("base", None),
        ("ds=2015-11-19", None),
    ],
)
def test_a_directory_name_says_what_it_holds(name: str, expected: object) -> None:
    """Bases are found by listing, so an unpadded one works in Hive too; any other name is original data."""
    assert parse_directory_name(name, V1) == expected


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("delta_1_1", "delta_0000001_0000001"),
        ("delete_delta_2_2", "delete_delta_0000002_0000002"),
        ("delta_0000001_0000001_0", "delta_0000001_0000001_0000"),
        ("delta_00000001_00000001", "delta_0000001_0000001"),
        ("delta_0000001_0000002_v0000033", "Hive 4"),
        ("base_0000002_v0000033", "Hive 4"),
        ("delta_0000001_0000001_0000_v0000033", "Hive 4"),
        ("delta_0000002_0000001", "ends before"),
        ("delta_", "starts like"),
        ("base_x", "starts like"),
        ("delta_0000001", "starts like"),
        ("delete_delta_0000001_000000a", "starts like"),
    ],
)
def test_names_that_hive_fails_on_or_loses_are_refused(name: str, reason: str) -> None:
    """The message names the directory and what is wrong with it."""
    with pytest.raises(DirectoryStateError, match=reason) as caught:
        parse_directory_name(name, V1)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "bucket_id"),
    [
        ("bucket_00003", 3),
        ("bucket_123456", 123456),
        ("bucket_3", None),
        ("bucket_00000_0", None),
        ("bucket_00000_flush_length", None),
        ("000000_0", None),
    ],
)
def test_only_exact_bucket_names_are_bucket_files(name: str, bucket_id: int | None) -> None:
    """Hive 2.3 looks for the padded name."""
    assert parse_bucket_file_name(name, V1) == bucket_id


@pytest.mark.parametrize(
    ("name", "bucket_id"), [("000002_0", 2), ("7_13", 7), ("000002_0_copy_1", None), ("data.orc", None)]
)
def test_an_original_file_may_have_a_bucket(name: str, bucket_id: int | None) -> None:
    """Hive 2.3 understands N_M only."""
    assert parse_original_file_name(name, V1).bucket_id == bucket_id


@pytest.mark.parametrize(("name", "hidden"), [("_tmp", True), (".x", True), ("a_b", False)])
def test_underscore_and_dot_hide(name: str, hidden: bool) -> None:
    """At every level."""
    assert is_hidden(name) is hidden


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("base_0000005_v0000010", BaseDirectory("base_0000005_v0000010", 5, 10)),
        ("base_0000005_v0", BaseDirectory("base_0000005_v0", 5)),
        (
            "delete_delta_10000001_10000002_v0000033",
            DeltaDirectory("delete_delta_10000001_10000002_v0000033", 10000001, 10000002, None, True, 33),
        ),
        (
            "delta_0000001_0000001_0004_v0000033",
            DeltaDirectory("delta_0000001_0000001_0004_v0000033", 1, 1, 4, False, 33),
        ),
    ],
)
def test_hive_4_names_the_transaction_of_a_compaction(name: str, expected: object) -> None:
    """Hive 3 does not know such names."""
    assert parse_directory_name(name, HIVE4) == expected
    with pytest.raises(DirectoryStateError, match="cannot read its _v suffix"):
        parse_directory_name(name, HIVE3)


@pytest.mark.parametrize(
    "name", ["delta_0000001_0000002_v33", "delete_delta_2_2", "base_0000005_v", "delta_1_v1"]
)
def test_badly_formed_names_are_refused_with_hive_4_too(name: str) -> None:
    """Hive looks for unpadded ones under another name; the others fail every query."""
    with pytest.raises(DirectoryStateError, match=r"is not padded|starts like"):
        parse_directory_name(name, HIVE4)


def test_files_of_hive_4_may_name_an_attempt() -> None:
    """Since Hive 3, copies of original files have a bucket, too."""
    assert parse_bucket_file_name("bucket_00003_0", HIVE4) == 3
    assert parse_bucket_file_name("bucket_00003_0", HIVE3) is None
    assert parse_bucket_file_name("bucket_3_0", HIVE4) is None
    assert parse_original_file_name("000002_0_copy_1", HIVE3).bucket_id == 2
    assert parse_original_file_name("data.orc", HIVE4).bucket_id is None


def test_each_layout_is_of_a_release_of_hive() -> None:
    """Their names say which, too."""
    found = {version.value: version.hive_release for version in AcidVersion}
    assert found == {
        "v1-legacy": 2,
        "v1-split": 2,
        "v2-hive3": 3,
        "v2-hive4": 4,
        "insert-only-hive3": 3,
        "insert-only-hive4": 4,
    }
