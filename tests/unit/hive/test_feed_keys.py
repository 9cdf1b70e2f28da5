"""Keys of a feed's tables, from Python and from the command line."""

from __future__ import annotations

import pytest

from mutation_api.errors import ConfigurationError
from mutation_api.hive.feed_rules import FeedKeys, keys_by_table, parsed_keys


@pytest.mark.parametrize(
    ("on", "expected"),
    [
        (None, {}),
        (["Id"], {"a.t": ("id",), "a.u": ("id",)}),
        ({"A.T": ["id", "line"]}, {"a.t": ("id", "line")}),
        (parsed_keys(["id, line"]), {"a.t": ("id", "line"), "a.u": ("id", "line")}),
        (parsed_keys(["a.t=id", "A.U=id,line"]), {"a.t": ("id",), "a.u": ("id", "line")}),
        (parsed_keys([]), {}),
    ],
)
def test_keys_by_table(on: FeedKeys | None, expected: dict[str, tuple[str, ...]]) -> None:
    """Names without a table are those of all tables."""
    assert keys_by_table(on, ["a.t", "A.u"], "on") == expected


@pytest.mark.parametrize(
    "texts", [["id", "line"], ["id", "a.t=id"], ["a.t=id", "id"], ["a.t=id", "A.T=line"]]
)
def test_contradicting_keys(texts: list[str]) -> None:
    """Either one list for all tables, or one for each."""
    with pytest.raises(ConfigurationError, match="once for each table"):
        parsed_keys(texts)
