"""Random logs of operations on composite keys, and what replaying them leaves."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from typing import Any

from mutation_api.cdc import Contradictions

KEY = ("number", "day", "text")
WORDS = ("insert", "update", "delete")
LETTERS = {"I": "insert", "U": "update", "D": "delete"}

Log = list[tuple[Any, ...]]


def random_log(rng: random.Random, count: int) -> Log:
    """Operations on few keys of three columns; positions give their order, the list is not sorted."""
    days = [datetime.date(1600, 1, 1), datetime.date(2020, 2, 29), datetime.date(9999, 12, 31)]
    keys = [
        (Decimal(n) / 100, rng.choice(days), rng.choice(["", "a", "A", "a ", "é", "日本"]))
        for n in rng.choices(range(-300, 300), k=count // 5)
    ]
    places = rng.sample([(n, row) for n in range(count) for row in range(3)], count)
    return [
        (rng.choice(WORDS), place, *rng.choice(keys), rng.choice([None, 0.5, -1e300]), [n])
        for n, place in enumerate(places)
    ]


def replayed(log: Log) -> tuple[dict[Any, tuple[Any, ...]], set[Any], dict[str, int]]:
    """Row by row: the rows left, the keys last deleted, contradictions."""
    rows: dict[Any, tuple[Any, ...]] = {}
    gone: set[Any] = set()
    found = dict.fromkeys(vars(Contradictions()), 0)
    for operation, _, *values in sorted(log, key=lambda each: each[1]):
        key = tuple(values[:3])
        if operation == "insert" and key in rows:
            found["inserts_of_present"] += 1
        if operation == "update" and key in gone:
            found["updates_of_absent"] += 1
        if operation == "delete" and key in gone:
            found["deletes_of_absent"] += 1
        if operation == "delete":
            rows.pop(key, None)
            gone.add(key)
        else:
            rows[key] = tuple(values)
            gone.discard(key)
    return rows, gone, found
