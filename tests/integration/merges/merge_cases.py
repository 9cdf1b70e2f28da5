"""Random cases of merges: the table's shape, how it came about, the source and the clauses. Pure."""

from __future__ import annotations

import datetime
import random
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

from tests.integration.merges import merge_model as m
from tests.integration.merges.merge_model import (
    MATCHED,
    NOT_MATCHED,
    NOT_MATCHED_BY_SOURCE,
    Expression,
    Merge,
    Rule,
)

LARGEST = {"small": 9, "large": 40}
"""Rows of a source; a table has about twelve."""

_KEYS: dict[str, list[Any]] = {
    "bigint": [-3, 0, 1, 2, 3, 7, 2**40],
    "int": [-3, 0, 1, 2, 3, 7, 99],
    "string": ["", "a", "b", "B", "é", "a b", "x" * 20],
    "varchar(20)": ["", "a", "b", "B", "é", "a b", "x" * 20],
    "date": [datetime.date(1969, 12, 31), *(datetime.date(2024, 2, day) for day in (1, 2, 28, 29))],
    "decimal(10,2)": [Decimal(text) for text in ("-1.50", "0.00", "1.00", "1.01", "1.10", "12345678.90")],
}
_SOURCE_KEYS = {"decimal(10,2)": "decimal(12,3)", "bigint": "int"}
"""Types that the source's key has now and then; 2 ** 40 stays away then."""

_PARTITIONS: dict[str, list[Any]] = {
    "string": ["a", "b c", "x/y"],
    "int": [1, 2, 30],
    "date": [datetime.date(2024, 2, 29), datetime.date(2025, 1, 1)],
}
_COMPLEX: dict[str, list[Any]] = {
    "map<string,int>": [{}, {"k": 1}, {"k": 1, "l": 2}, {"k": None}],
    "array<int>": [[], [1], [1, 2], [2, 1]],
    "struct<a:int,b:string>": [{"a": 1, "b": "x"}, {"a": None, "b": "x"}, {"a": 1, "b": None}],
    "array<map<string,int>>": [[{"k": 1}], [{"k": 1}, {"l": 2}]],
}
_AMOUNTS = [Decimal(text) for text in ("1.000", "1.005", "1.010", "2.500", "-2.500", "70.000")]


LAYOUTS = [
    ("2.3", "legacy", 21000),
    ("2.3", "default", 22000),
    ("3.1", "default", 31000),
    ("4.1", "default", 41000),
    ("3.1", "insert_only", 32000),
    ("4.1", "insert_only", 42000),
]
"""Line, layout, and where its seeds begin, which no other test has."""

Layout: TypeAlias = tuple[str, str]


def seeded(counts: Mapping[Layout, int], first: int = 0) -> list[tuple[str, str, int]]:
    """Line, layout and seed of each case; ``counts``: how many a layout has, ``first``: of its seeds."""
    return [
        (line, layout, start + first + number)
        for line, layout, start in LAYOUTS
        for number in range(counts.get((line, layout), 0))
    ]


@dataclass(frozen=True)
class Shape:
    """A table: ``layout`` as its transactional_properties, ``num_buckets`` 0 for none.

    ``partition_type`` '' means that ``p`` is an ordinary column.
    """

    layout: str
    key_type: str
    complex_type: str
    partition_type: str
    bucket_columns: tuple[str, ...]
    num_buckets: int
    bucketing_version: int
    is_original: bool

    @property
    def is_insert_only(self) -> bool:
        """Whether rows can only be inserted."""
        return self.layout == "insert_only"

    @property
    def types(self) -> dict[str, str]:
        """All columns, ``p`` last."""
        return {
            "k": self.key_type,
            "k2": "string",
            "n": "int",
            "v": "decimal(8,2)",
            "s": "string",
            "x": self.complex_type,
            "p": self.partition_type or "string",
        }

    @property
    def target(self) -> m.Target:
        """The table for the model."""
        scales = {"v": 2} | ({"k": 2} if self.key_type.startswith("decimal") else {})
        placed_by = {*self.bucket_columns, *(["p"] if self.partition_type else [])}
        partition = "p" if self.partition_type else None
        return m.Target(tuple(self.types), partition, frozenset(placed_by), scales)


@dataclass(frozen=True)
class Source:
    """Rows to merge, and their types."""

    types: dict[str, str]
    rows: list[m.Row]


def random_shape(rng: random.Random, line: str, layout: str) -> Shape:
    """A table that this line of Hive has; ``layout`` is ``legacy``, ``default`` or ``insert_only``."""
    has_write_ids = line != "2.3"
    buckets = [("k",), ("k",), ("n",), ("s", "k")] + ([(), ()] if has_write_ids else [])
    bucket_columns = rng.choice(buckets)
    return Shape(
        layout=layout,
        key_type=rng.choice(list(_KEYS)),
        complex_type=rng.choice(list(_COMPLEX)),
        partition_type=rng.choice(["", "string", "string", "int", "date"]),
        bucket_columns=bucket_columns,
        num_buckets=rng.choice([1, 2, 3]) if bucket_columns else 0,
        bucketing_version=rng.choice([1, 2]) if has_write_ids else 1,
        is_original=layout != "insert_only" and rng.random() < 0.25,
    )


def random_steps(rng: random.Random, shape: Shape) -> list[str]:
    """What happens to the table before the merge; the first makes rows."""
    if rng.random() < 0.08:
        return []
    first = "sql insert" if shape.is_original else rng.choice(["insert", "insert", "sql insert"])
    if shape.is_insert_only:
        return [first, *rng.choices(["insert", "sql insert"], k=rng.randrange(2))]
    more = rng.choices(
        ["change", "insert", "sql insert", "sql update", "sql delete", "minor", "major"],
        [6, 3, 1, 1, 1, 2, 2],
        k=rng.choice([1, 2, 2, 3]),
    )
    compactions = [step for step in more if step in ("minor", "major")]
    # Hive may fail where it has nothing to compact, or has not cleaned what it compacted before.
    rest = [first, "change", *(step for step in more if step not in compactions)]
    return [*rest, *compactions[:1], *(["change"] if compactions and rng.random() < 0.5 else [])]


def random_rows(rng: random.Random, shape: Shape, count: int) -> list[m.Row]:
    """Rows of the table; NULLs everywhere, some keys several times."""
    return [_row(rng, shape) for _ in range(count)]


def _row(rng: random.Random, shape: Shape) -> m.Row:
    return {
        "k": rng.choice([None, *_KEYS[shape.key_type] * 2]),
        "k2": rng.choice([None, "x", "x", "y"]),
        "n": rng.choice([None, *range(-2, 6)]),
        "v": rng.choice([None, *(a.quantize(Decimal("0.01")) for a in _AMOUNTS)]),
        "s": rng.choice([None, "", "x", "some text"]),
        "x": rng.choice([None, *_COMPLEX[shape.complex_type]]),
        "p": rng.choice([None, *_PARTITIONS[shape.partition_type or "string"] * 2]),
    }


def random_merge(rng: random.Random, shape: Shape) -> Merge:
    """Keys, clauses in any order, options."""
    keys = [("k",), ("k",), ("k", "k2"), ("k2", "k", "p"), ("p", "k"), ("k", "n")]
    on_too = m.binary(m.source("op"), "<>", m.literal("N")) if rng.random() < 0.1 else None
    return Merge(
        on=rng.choice(keys),
        rules=_rules(rng, shape),
        null_safe=on_too is None and rng.random() < 0.25,
        on_too=on_too,
        first_by=rng.choice([0, 0, 1, -1]),
        missing=tuple(rng.sample(["v", "s", "x"], rng.choice([0, 0, 0, 1, 2]))),
        write_unchanged=rng.random() < 0.2,
        collects_keys=rng.random() < 0.7,
    )


def random_source(rng: random.Random, shape: Shape, merge: Merge, rows: list[m.Row]) -> Source:
    """Rows with keys of the table and others; most keys come once."""
    count = rng.choice([0, *[LARGEST["small"]] * 8, LARGEST["large"]])
    found = random_rows(rng, shape, count)
    for row in found:
        row["op"] = rng.choice(["D", "I", "U", "N", None])
        row["v"] = rng.choice([None, *_AMOUNTS])
        if rows and rng.random() < 0.6:
            row |= {name: rng.choice(rows)[name] for name in merge.on}
        if rows and rng.random() < 0.15:
            row |= rng.choice(rows)  # the same row again, often unchanged by an update
    if rng.random() < 0.75:
        found = list({tuple(map(repr, (row[name] for name in merge.on))): row for row in found}.values())
    types = {**shape.types, "v": "decimal(9,3)"}
    small = all(row["k"] is None or shape.key_type != "bigint" or row["k"] < 2**31 for row in found)
    if rng.random() < 0.3 and small:
        types["k"] = _SOURCE_KEYS.get(shape.key_type, shape.key_type)
    if types["k"] == "decimal(12,3)":
        for row in rng.sample(found, len(found) // 4):
            row["k"] = row["k"] and row["k"] + Decimal("0.004")  # another key than the one it is stored as
    found = [{**row, "seq": number} for number, row in enumerate(found)]
    rng.shuffle(found)
    types |= {"op": "string", "seq": "int"}
    names = [name for name in types if name not in merge.missing]
    return Source(
        {name: types[name] for name in names}, [{name: row[name] for name in names} for row in found]
    )


# -- clauses -----------------------------------------------------------------------------------------------


def _rules(rng: random.Random, shape: Shape) -> tuple[Rule, ...]:
    kinds = {
        MATCHED: (_matched, [0, 1, 1, 2, 3]),
        NOT_MATCHED: (_not_matched, [0, 1, 1, 2]),
        NOT_MATCHED_BY_SOURCE: (_not_matched_by_source, [0, 0, 0, 1, 2]),
    }
    rules: list[Rule] = []
    while not rules:
        for when, (choose, counts) in kinds.items():
            if when == NOT_MATCHED or not shape.is_insert_only:
                rules += [choose(rng) for _ in range(rng.choice(counts))]
    rng.shuffle(rules)
    return tuple(rules)


def _matched(rng: random.Random) -> Rule:
    condition = _perhaps(rng, [m.source, m.target])
    if rng.random() < 0.3:
        return Rule(MATCHED, "delete", condition)
    if rng.random() < 0.45:
        return Rule(MATCHED, "update", condition)
    values = {
        "s": m.joined(rng.choice([m.source, m.target])("k2"), "!"),
        "v": m.binary(m.target("v"), "+", m.source("n")),
        "n": rng.choice([m.source("n"), m.literal(4), m.binary(m.target("n"), "+", m.literal(1))]),
        "k2": m.source("k2"),
        "p": m.source("p"),
    }
    return Rule(MATCHED, "update", condition, _some(rng, values))


def _not_matched(rng: random.Random) -> Rule:
    condition = _perhaps(rng, [m.source])
    if rng.random() < 0.6:
        return Rule(NOT_MATCHED, "insert", condition)
    values = {
        "k2": m.source("k2"),
        "n": rng.choice([m.source("n"), m.literal(4)]),
        "v": m.binary(m.source("n"), "+", m.literal(1)),
        "s": rng.choice([m.literal("new"), m.joined(m.source("k2"), "+")]),
        "p": m.source("p"),
    }
    return Rule(NOT_MATCHED, "insert", condition, {"k": m.source("k"), **_some(rng, values)})


def _not_matched_by_source(rng: random.Random) -> Rule:
    condition = _perhaps(rng, [m.target])
    if rng.random() < 0.5:
        return Rule(NOT_MATCHED_BY_SOURCE, "delete", condition)
    values = {
        "s": m.joined(m.target("s"), "?"),
        "n": m.literal(-7),
        "v": m.binary(m.target("v"), "+", m.target("n")),
    }
    return Rule(NOT_MATCHED_BY_SOURCE, "update", condition, _some(rng, values))


def _some(rng: random.Random, values: dict[str, Expression]) -> dict[str, Expression]:
    return {name: values[name] for name in rng.sample(list(values), rng.randrange(1, 4))}


def _perhaps(rng: random.Random, sides: list[Any]) -> Expression | None:
    return None if rng.random() < 0.35 else _condition(rng, sides)


def _condition(rng: random.Random, sides: list[Any], depth: int = 0) -> Expression:
    if depth < 2 and rng.random() < 0.25:
        combine = rng.choice([m.either, m.both])
        return combine(_condition(rng, sides, depth + 1), _condition(rng, sides, depth + 1))
    one, other = rng.choice(sides), rng.choice(sides)
    found = [
        m.is_even(one("n")),
        m.is_null(one(rng.choice(["n", "k2", "p"]))),
        m.binary(one("n"), rng.choice(["<", ">=", "="]), rng.choice([m.literal(2), other("n")])),
        m.binary(one("k2"), rng.choice(["=", "<>"]), rng.choice([m.literal("x"), other("k2")])),
    ]
    if m.source in sides:
        found += [m.binary(m.source("op"), rng.choice(["=", "<>"]), m.literal(rng.choice("DIUN")))] * 2
    return rng.choice(found)
