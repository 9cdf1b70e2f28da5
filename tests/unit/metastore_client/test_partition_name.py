"""Partition names; every ASCII character is also compared with a running server in tests/contract."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_client.partition_name import (
    DEFAULT_PARTITION_NAME,
    check_partition_name,
    escape_path_name,
    make_partition_name,
    parse_partition_name,
    unescape_path_name,
)

ESCAPED = [*map(chr, range(1, 0x20)), "\x7f", *"\"#%'*/:=?[\\]^{"]


def test_exactly_these_characters_are_escaped() -> None:
    """`{` is in the set, `}` is not, and nothing beyond ASCII is."""
    written = {c: escape_path_name(c) for c in map(chr, range(1, 0x180))}
    assert [c for c, text in written.items() if text != c] == sorted(ESCAPED)
    assert all(written[c] == f"%{ord(c):02X}" for c in ESCAPED)


@pytest.mark.thorough
@given(st.text(min_size=1))
def test_unescaping_undoes_escaping(text: str) -> None:
    """For any text; an escaped text has no special character of a path."""
    escaped = escape_path_name(text)
    assert unescape_path_name(escaped) == text
    assert "/" not in escaped and "=" not in escaped


@given(st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=4))
def test_a_name_is_parsed_into_what_it_was_made_of(values: list[str]) -> None:
    """Keys come back in lower case."""
    keys = [f"Key{i}" for i in range(len(values))]
    name = make_partition_name(keys, values)
    assert parse_partition_name(name) == tuple((f"key{i}", v) for i, v in enumerate(values))
    check_partition_name(name)


def test_null_has_a_name() -> None:
    """The empty text is NULL to Hive."""
    assert make_partition_name(["ds"], [""]) == f"ds={DEFAULT_PARTITION_NAME}"


@pytest.mark.parametrize(("text", "read"), [("%", "%"), ("%4", "%4"), ("%zz", "%zz"), ("%3a", ":")])
def test_a_lone_percent_sign_is_read_as_it_is(text: str, read: str) -> None:
    """As Hive reads it; digits count in both cases."""
    assert unescape_path_name(text) == read


@pytest.mark.parametrize("name", ["a", "=b", "a=b/c", ""])
def test_what_is_no_name_is_refused(name: str) -> None:
    """A part needs a key and a value."""
    with pytest.raises(ValueError, match="not a partition name"):
        parse_partition_name(name)


@pytest.mark.parametrize("name", ["ds=a:b", "DS=a", "ds=%3a", "ds=", "ds=" + "x" * 765])
def test_names_that_hive_would_not_write_are_refused(name: str) -> None:
    """They would be kept as a partition that no reader finds."""
    with pytest.raises(ValueError, match="partition name"):
        check_partition_name(name)


def test_numbers_of_keys_and_values_must_agree() -> None:
    """The error shows both."""
    with pytest.raises(ValueError, match="one value per key"):
        make_partition_name(["a", "b"], ["1"])
