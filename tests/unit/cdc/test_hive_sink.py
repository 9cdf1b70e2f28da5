"""Arguments of the function for foreachBatch that make no sense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mutation_api import ConfigurationError
from mutation_api.cdc import AppendRows, HiveSink, MergeRows, ReduceLog, hive_sink

URI = "thrift://metastore.example:9083"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: hive_sink(URI, "orders"), "at least one action"),
        (lambda: hive_sink(URI, "orders", AppendRows("d.t"), compactor="x"), "expected one of hive, own"),
        (lambda: hive_sink(URI, "", AppendRows("d.t")), "requires a name"),
        (lambda: hive_sink(URI, "orders", AppendRows("t")), "database"),
        (lambda: hive_sink(URI, "orders", AppendRows("d.T")), "lower case"),
        (
            lambda: hive_sink(URI, "orders", AppendRows("d.t"), MergeRows("d.t", on=["id"])),
            "d.t has two actions",
        ),
        (lambda: hive_sink(URI, "orders", AppendRows("d.t"), AppendRows("e.t")), "several databases"),
        (lambda: hive_sink(URI, "orders", AppendRows("d.t"), watermark_table="d.t"), "both a target"),
        (lambda: ReduceLog("d.t", key=[], order_by=["seq"]), "requires key columns"),
        (lambda: ReduceLog("d.t", key=["id"], order_by=[]), "order_by columns"),
    ],
)
def test_arguments_are_checked_before_a_query_starts(make: Callable[[], Any], words: str) -> None:
    """No metastore is asked for that."""
    with pytest.raises(ConfigurationError, match=words):
        make()


def test_marks_lie_beside_the_tables() -> None:
    """In their database, unless a table is named."""
    sink = hive_sink(URI, "orders", AppendRows("d.t"), MergeRows("d.u", on=["id"]))
    assert isinstance(sink, HiveSink)
    assert sink.watermark_table == "d.mutation_watermarks"
    named = hive_sink(URI, "orders", AppendRows("d.t"), AppendRows("e.t"), watermark_table="m.marks")
    assert named.watermark_table == "m.marks"
