"""The messages of benchmarks.data.order_changes leave what it says."""

from __future__ import annotations

import json
from decimal import Decimal

from benchmarks.data.order_changes import OrderChanges, Totals


def test_the_totals_are_those_of_the_messages() -> None:
    """Replayed on a dictionary, with a tombstone behind each delete."""
    changes = OrderChanges(1000, 600)
    table = {number: Decimal(number) / 100 for number in range(1, 1001)}
    codes = {"u": 0, "c": 0, "d": 0}
    for _ in range(3):
        for key, message in changes.messages(200):
            if message is None:
                assert json.loads(key)["id"] not in table
                continue
            told = json.loads(message)
            codes[told["op"]] += 1
            row = told["after"] or told["before"]
            assert row["id"] == json.loads(key)["id"]
            if told["op"] == "d":
                table.pop(row["id"], None)
            else:
                table[row["id"]] = Decimal(row["total"])
    assert codes == {"u": 420, "c": 120, "d": 60}
    assert changes.totals() == Totals(len(table), sum(table), sum(table.values(), Decimal(0)))
