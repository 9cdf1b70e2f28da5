"""merge_into on Hive 2.3: random cases against a model in plain Python, as Hive's reader sees the tables."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from judges.hive import Hive23
from metastore_client.client import MetastoreClient
from mutation_api.changes import MergeCounts, MergeInto, first_by, merge_into
from mutation_api.client.builder import MutatorClientBuilder
from mutation_api.client.mutator_client import MutatorClient
from mutation_api.errors import (
    ClientError,
    DuplicateKeyError,
    MutationError,
    RecordLayoutError,
    RecordValueError,
)
from tests.integration.live_table import LAYOUTS, LiveTable

pytestmark = pytest.mark.slow

ROUNDS = 5
"""Transactions; each merges into every table, so there are 20 cases."""

COLUMNS = "id bigint, name string, amount decimal(8,2), tags map<string,int>"
NAMES = ("id", "name", "amount", "tags", "p")
ALL = ("op", *NAMES)
SOURCE_TYPES = {
    "op": "string",
    "ID": "bigint",
    "name": "string",
    "Amount": "decimal(9,3)",
    "tags": "map<string,int>",
    "p": "string",
}

Row = dict[str, Any]
Holds = Callable[[Row | None, Row | None], Any]


@dataclass(frozen=True)
class Rule:
    """A clause twice: for merge_into (method names, condition) and for the model (predicate, action)."""

    when: str
    condition: str | None
    holds: Holds
    then: str
    assignments: dict[str, str] = field(default_factory=dict)
    assign: Callable[[Row | None, Row | None], Row] = lambda s, t: {}

    def add_to(self, merge: MergeInto) -> None:
        """Add the clause."""
        when = getattr(merge, self.when)(self.condition)
        getattr(when, self.then)(*([self.assignments] if self.assignments else []))


def _always(s: Row | None, t: Row | None) -> bool:
    return True


def _less(a: Any, b: Any) -> bool:
    return a is not None and b is not None and a < b


RULES = {
    "whenMatched": [
        Rule("whenMatched", "source.op = 'D'", lambda s, t: s["op"] == "D", "delete"),
        Rule(
            "whenMatched",
            "source.amount > target.amount",
            lambda s, t: _less(t["amount"], s["amount"]),
            "updateAll",
        ),
        Rule("whenMatched", None, _always, "updateAll"),
        Rule(
            "whenMatched",
            "source.op <> 'N'",
            lambda s, t: s["op"] not in (None, "N"),
            "update",
            {"Amount": "source.amount + target.id", "p": "source.p"},
            lambda s, t: {"amount": _sum(s["amount"], t["id"]), "p": s["p"]},
        ),
    ],
    "whenNotMatched": [
        Rule("whenNotMatched", "source.op = 'I'", lambda s, t: s["op"] == "I", "insertAll"),
        Rule("whenNotMatched", None, _always, "insertAll"),
        Rule(
            "whenNotMatched",
            "source.op = 'N'",
            lambda s, t: s["op"] == "N",
            "insert",
            {"id": "source.id", "p": "'q'"},
            lambda s, t: {"id": s["id"], "p": "q"},
        ),
    ],
    "whenNotMatchedBySource": [
        Rule("whenNotMatchedBySource", "target.p = 'a'", lambda s, t: t["p"] == "a", "delete"),
        Rule(
            "whenNotMatchedBySource",
            "target.id % 2 = 0",
            lambda s, t: t["id"] is not None and t["id"] % 2 == 0,
            "update",
            {"name": "concat(target.name, '!')"},
            lambda s, t: {"name": None if t["name"] is None else t["name"] + "!"},
        ),
    ],
}
ON = (["id"], ["ID", "name"], ["p", "id"])


def _sum(a: Decimal | None, b: int | None) -> Decimal | None:
    return None if a is None or b is None else a + b


def rounded(row: Row) -> Row:
    """The row as decimal(8,2) keeps it."""
    amount = row["amount"]
    return row if amount is None else {**row, "amount": amount.quantize(Decimal("0.01"), "ROUND_HALF_UP")}


def model(
    rows: list[Row], source: list[Row], on: list[str], null_safe: bool, rules: list[Rule]
) -> tuple[list[Row], MergeCounts] | None:
    """What the table holds after the merge, and the counts; None if several source rows act on one key."""
    counts = dict.fromkeys(vars(MergeCounts()), 0)
    keys = [name.lower() for name in on]

    def key(row: Row) -> tuple[Any, ...] | None:
        values = tuple(row[k] for k in keys)
        return values if null_safe or None not in values else None

    def first(when: str, s: Row | None, t: Row | None) -> Rule | None:
        return next((r for r in rules if r.when == when and r.holds(s, t)), None)

    unmatched = list(source)
    merged = []
    for t in rows:
        pairs = [s for s in source if key(s) is not None and key(s) == key(t)]
        unmatched = [s for s in unmatched if not any(s is each for each in pairs)]
        when = "whenMatched" if pairs else "whenNotMatchedBySource"
        acting = [(s, r) for s in pairs or [None] if (r := first(when, s, t))]
        plain_delete = [(r.then, r.condition) for r in rules if r.when == when] == [("delete", None)]
        if len(acting) > 1 and not plain_delete:
            return None
        if not acting:
            merged.append(t)
            continue
        s, rule = acting[0]
        if rule.then == "delete":
            counts["deleted"] += 1
            continue
        assigned = {n: s[n] for n in NAMES} if rule.then == "updateAll" else rule.assign(s, t)
        new = rounded({**t, **assigned})
        placed = ("id", "p")
        kind = "unchanged" if new == t else "moved" if any(new[n] != t[n] for n in placed) else "updated"
        counts[kind] += 1
        merged.append(new)
    inserted = set()
    for s in unmatched:
        if rule := first("whenNotMatched", s, None):
            values = s if rule.then == "insertAll" else rule.assign(s, None)
            new = rounded({n: values.get(n) for n in NAMES})
            if key(new) is not None:
                if key(new) in inserted:
                    return None
                inserted.add(key(new))
            counts["inserted"] += 1
            merged.append(new)
    return merged, MergeCounts(**counts)


@dataclass
class Merged:
    """A table, what it should hold, and how to merge into it."""

    live: LiveTable
    rows: list[Row]

    @property
    def is_partitioned(self) -> bool:
        return bool(self.live.info.partition_keys)

    def check(self) -> None:
        """Hive's reader finds the rows of the model."""
        found = []
        for row in self.live.rows():
            values = dict(zip([c.name for c in self.live.info.columns], row.values, strict=True))
            if self.is_partitioned:
                text = row.partition.removeprefix("p=")
                values["p"] = None if text == "__HIVE_DEFAULT_PARTITION__" else text
            found.append(_as_text(values))
        assert sorted(found) == sorted(map(_as_text, self.rows)), self.live.full_name


def _as_text(row: Row) -> str:
    amount = None if row["amount"] is None else Decimal(row["amount"])
    tags = row["tags"]
    tags = tags if tags is None or isinstance(tags, dict) else dict(tags)
    return repr((row["id"], row["name"], None if amount is None else f"{amount:.2f}", tags, row["p"]))


def random_source(rng: random.Random, count: int) -> list[Row]:
    """Rows with NULLs in all columns; most keys occur once."""
    keys = [rng.choice([None, *range(12)]) for _ in range(count)]
    if rng.random() < 0.7:
        keys = list(dict.fromkeys(keys))
    return [
        {
            "op": rng.choice(["D", "I", "U", "N", None]),
            "id": key,
            "name": rng.choice([None, "x", "y"]),
            "amount": rng.choice([None, Decimal("1.005"), Decimal("2.500"), Decimal("70.000")]),
            "tags": rng.choice([None, {"k": 1}, {"k": 1, "l": 2}]),
            "p": rng.choice([None, "a", "b c"]),
        }
        for key in keys
    ]


def frame(spark: SparkSession, rows: list[Row]) -> DataFrame:
    """A local relation, whose size Spark knows, unlike that of rows from Python."""
    values = ", ".join(f"({', '.join(map(_literal, row.values()))})" for row in rows or [dict.fromkeys(ALL)])
    casts = [f"CAST({name} AS {type_}) {name}" for name, type_ in SOURCE_TYPES.items()]
    found = spark.sql(f"SELECT {', '.join(casts)} FROM VALUES {values} AS s({', '.join(SOURCE_TYPES)})")
    return found if rows else found.where("false")


def _literal(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case dict():
            return f"map({', '.join(f'{key!r}, {item}' for key, item in value.items())})"
        case Decimal():
            return f"{value}BD"
        case _:
            return repr(value)


@pytest.fixture(scope="module")
def merged_tables(
    hive: Hive23, live_metastore: MetastoreClient, live_database: str
) -> Iterator[tuple[MutatorClient, list[Merged]]]:
    """Both layouts, with partitions and without, empty at first; and a client for all."""
    tables = []
    builder = MutatorClientBuilder().metastore(hive.uri)
    for layout, is_partitioned in itertools.product(LAYOUTS, (True, False)):
        live = LiveTable.create(
            hive,
            live_metastore,
            live_database,
            columns=COLUMNS if is_partitioned else f"{COLUMNS}, p string",
            keys="p string" if is_partitioned else "",
            layout=layout,
        )
        builder.add_sink_table(live_database, live.info.name, create_partitions=True)
        tables.append(Merged(live, []))
    with builder.build() as client:
        yield client, tables


@pytest.mark.long
def test_random_merges(merged_tables: tuple[MutatorClient, list[Merged]], spark: SparkSession) -> None:
    """Rows, counts of merge and dry run, and whether duplicates are refused, are those of the model."""
    client, tables = merged_tables
    rng = random.Random(5)
    refused = 0
    for round_ in range(ROUNDS):
        with client.new_transaction() as transaction:
            for table in tables:
                source = random_source(rng, 0 if rng.random() < 0.05 else rng.randrange(4, 12))
                on, null_safe = rng.choice(ON), rng.random() < 0.3
                rules = [RULES["whenNotMatched"][1]] if not round_ else _random_rules(rng)
                given = frame(spark, source)
                if not any("source.op" in (rule.condition or "") for rule in rules):
                    given = given.drop("op")  # nothing reads it, so it would be an extra column
                expected = model(table.rows, source, on, null_safe, rules)
                merge = merge_into(
                    transaction, table.live.full_name, source=given, on=on, null_safe=null_safe
                )
                for rule in rules:
                    rule.add_to(merge)
                what = (round_, table.live.full_name, on, null_safe, rules, source, table.rows)
                if expected is None:
                    refused += 1
                    with pytest.raises(DuplicateKeyError):
                        merge.merge()
                    continue
                if round_ % 2:
                    assert merge.dry_run().total == expected[1], what
                assert merge.merge().total == expected[1], what
                table.rows = expected[0]
        for table in tables:
            table.check()
    assert 0 < refused < ROUNDS * len(tables) / 2


def _random_rules(rng: random.Random) -> list[Rule]:
    rules = [rule for group in RULES.values() for rule in rng.sample(group, rng.randrange(0, 3))]
    return rules or [RULES["whenMatched"][2]]


# -- refusals, and the cases of Hive's own suite -----------------------------------------------------------


@pytest.fixture(scope="module")
def numbers(
    hive: Hive23, live_metastore: MetastoreClient, live_database: str
) -> Iterator[tuple[MutatorClient, LiveTable]]:
    """A flat table of two integers."""
    live = LiveTable.create(
        hive,
        live_metastore,
        live_database,
        columns="a int, b int",
        keys="",
        layout="default",
        bucket_columns=("a",),
    )
    with live.client() as client:
        yield client, live


def pairs(spark: SparkSession, *rows: tuple[int | None, int | None], names: str = "a, b") -> DataFrame:
    values = ", ".join(f"({_literal(a)}, {_literal(b)})" for a, b in rows)
    return spark.sql(f"SELECT * FROM VALUES {values} AS s({names})")


def test_refusals_and_the_cases_of_hive(
    numbers: tuple[MutatorClient, LiveTable], spark: SparkSession
) -> None:
    """Clauses as in Hive's suite; what is refused says why, word for word, and changes nothing."""
    client, live = numbers
    name = live.full_name

    def merge(source: DataFrame, on: Any = ("a",), **options: Any) -> MergeInto:
        return merge_into(transaction, name, source=source, on=on, **options)

    with client.new_transaction() as transaction:
        first = pairs(spark, (2, 1), (4, 3), (5, 6), (7, 8), (7, 9))
        order = first_by(sf.col("source.b"))
        assert merge(first, on_duplicate=order).whenNotMatched().insertAll().merge().total.inserted == 4
    assert live.values() == [(2, 1), (4, 3), (5, 6), (7, 8)]
    before = live.state()
    source = pairs(spark, (2, 2), (4, 44), (5, 5), (11, 11))
    doubled = pairs(spark, (2, 3), (2, 2))
    big = spark.sql("SELECT 2 a, 3000000000L b")
    more = source.withColumn("c", sf.lit(1))
    cases: list[tuple[Callable[[], MergeInto], type[MutationError], str]] = [
        (
            lambda: merge(doubled).whenMatched().updateAll(),
            DuplicateKeyError,
            "1 key has several source rows that would act, so the outcome would be chance: (a=2) in 2 "
            'rows: {"a":2,"b":2}, {"a":2,"b":3}. Nothing was written. Leave one source row for each key, or '
            "say which one counts: on_duplicate=first_by(…)",
        ),
        (
            lambda: merge(big).whenMatched().updateAll(),
            RecordValueError,
            "row {\"a\":2}: column 'b' (int): value 3000000000 is not a whole "
            "number from -2147483648 to 2147483647",
        ),
        (
            lambda: merge(source.withColumn("b", sf.array("b"))).whenMatched().updateAll(),
            RecordLayoutError,
            "column 'b' (int) cannot hold a array<int>; cast it in the source",
        ),
        (
            lambda: merge(source.drop("b"), missing_columns="error").whenMatched().updateAll(),
            RecordLayoutError,
            "the source lacks the columns b, which whenMatched().updateAll needs",
        ),
        (
            lambda: merge(more).whenNotMatched().insertAll(),
            RecordLayoutError,
            "the source has columns that the table does not have and no condition reads: c; the "
            "table's columns are a, b",
        ),
        (
            lambda: merge(source, ["c"]).whenMatched().delete(),
            RecordLayoutError,
            "the table has no key column c; its columns are a, b",
        ),
        (
            lambda: merge(source.drop("a")).whenMatched().delete(),
            RecordLayoutError,
            "the source has no key column a; its columns are b",
        ),
        (
            lambda: merge(source).whenMatched("rand() < source.b").delete(),
            RecordLayoutError,
            "the condition of whenMatched(rand() < source.b).delete 'rand() < source.b' gives another value "
            "each time it is evaluated; a task that is tried again would write other rows. Put it into "
            "the source",
        ),
        (
            lambda: merge(source).whenMatched().update({"x": "source.b"}),
            RecordLayoutError,
            "whenMatched().update assigns columns that the table does not have: x; its columns are a, b",
        ),
        (lambda: merge(source), RecordLayoutError, "the merge has no clause; add whenMatched() …"),
    ]
    with client.new_transaction() as transaction:
        for begin, error, message in cases:
            with pytest.raises(error) as caught:
                begin().merge()
            assert str(caught.value) == f"table {name}: {message}"
        assert live.state() == before
        plain = merge(doubled).whenMatched().delete().dry_run()
        assert plain.total == MergeCounts(deleted=1)
        on = "source.a = target.a AND source.b <> 44"
        assert merge(source, on).whenMatched().delete().dry_run().total == MergeCounts(deleted=2)
        by_hive = (
            merge(source)
            .whenMatched("source.a < 3")
            .update({"b": "0"})
            .whenMatched("source.a < 5")
            .delete()
            .whenNotMatched()
            .insertAll()
        )
        assert by_hive.merge().total == MergeCounts(inserted=1, updated=1, deleted=1)
    assert live.values() == [(11, 11), (2, 0), (5, 6), (7, 8)]


def test_a_key_is_not_inserted_as_another(
    hive: Hive23, live_metastore: MetastoreClient, live_database: str, spark: SparkSession
) -> None:
    """Cut to fit its column it would be a second row of its key; nor is an unknown table merged into."""
    live = LiveTable.create(
        hive,
        live_metastore,
        live_database,
        columns="k varchar(2), b int",
        keys="",
        layout="default",
        bucket_columns=("k",),
    )
    name = live.full_name
    with live.client() as client:
        with client.new_transaction() as transaction:
            merge_into(
                transaction, name, source=spark.sql("SELECT 'ab' k, 1 b"), on=["k"]
            ).whenNotMatched().insertAll().merge()
        before = live.state()
        source = spark.sql("SELECT * FROM VALUES ('ab', 2), ('abc', 3) AS s(k, b)")
        with client.new_transaction() as transaction:
            merge = merge_into(transaction, name, source=source, on=["k"]).whenNotMatched().insertAll()
            with pytest.raises(RecordValueError) as caught:
                merge.merge()
            assert str(caught.value) == (
                f"table {name}: keys to insert would be stored as others, which other rows may have: "
                "k='abc' as 'ab'. Nothing was written. Cast or trim them in the source, so that they match"
            )
            with pytest.raises(ClientError) as unknown:
                merge_into(transaction, "d.nowhere", source=source, on=["k"]).whenMatched().delete().merge()
            assert str(unknown.value) == (
                "table d.nowhere is not part of the transaction; add it to the MutatorClientBuilder. It has "
                f"{name}"
            )
            assert live.state() == before
