"""Random conditions of the local engine's grammar: Spark finds the same rows, with ANSI rules and without."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from mutation_api.errors import LocalEngineError, RecordLayoutError
from mutation_api.merge.clauses import SOURCE, TARGET
from mutation_api.merge.local_rules import resolved_condition
from mutation_api.merge.spark_expressions import ExpressionAnalyser, with_sides
from mutation_api.spark.versions import unlogged_errors
from mutation_api.table.evaluation import evaluate

pytestmark = pytest.mark.slow

ROWS = 60
CONDITIONS = 120

TYPES = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "decimal(6,2)": pa.decimal128(6, 2),
    "decimal(38,18)": pa.decimal128(38, 18),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "string": pa.string(),
}
NAMES = {
    # names that are words of SQL, too
    "tinyint": "n",
    "smallint": "order",
    "int": "user",
    "bigint": "values",
    "decimal(6,2)": "table",
    "decimal(38,18)": "current_date",
    "boolean": "select",
    "date": "date",
    "string": "left",
}
TEXTS = ["", "D", "d", "Z", "é", "\U0001f600", "￿", " D", "a b", "--", "/*", "%", "null", "AND"]
NUMBERS = [0, 1, -1, 5, 100, 127, -128, 300, 32767, 2**31 - 1, -(2**31), 10**12]
FRACTIONS = ["0.0", "1.5", "-1.50", "0.01", "9999.99", "100.00", "12.3", "-0.5"]
DAYS = ["0001-01-01", "1582-10-10", "1970-01-01", "2024-02-29", "9999-12-31"]


def value(dice: random.Random, kind: str) -> Any:
    """A value of a column."""
    if dice.random() < 0.15:
        return None
    match kind:
        case "boolean":
            return dice.random() < 0.5
        case "date":
            return datetime.date.fromisoformat(dice.choice(DAYS))
        case "string":
            return dice.choice(TEXTS)
        case "decimal(6,2)" | "decimal(38,18)":
            return Decimal(dice.choice(FRACTIONS))
        case _:
            bits = TYPES[kind].bit_width
            return dice.choice([n for n in NUMBERS if -(2 ** (bits - 1)) <= n < 2 ** (bits - 1)])


def comparison(dice: random.Random) -> str:
    """A comparison of the grammar, mostly with a literal that suits the column."""
    kind = dice.choice([*TYPES])
    side, name = dice.choice(["", "source.", "target.", "SOURCE."]), NAMES[kind]
    if dice.random() < 0.15:
        return f"{side}{name} IS {dice.choice(['', 'NOT '])}NULL"
    kind = kind if dice.random() < 0.9 else dice.choice([*TYPES])
    operator = dice.choice(
        ["=", "<>", "!="] if kind == "boolean" else ["=", "<>", "!=", "<", "<=", ">", ">="]
    )
    match kind:
        case "boolean":
            literal = dice.choice(["TRUE", "false"])
        case "date":
            literal = f"'{dice.choice(DAYS)}'"
        case "string":
            literal = f"'{dice.choice(TEXTS)}'"
        case "decimal(6,2)" | "decimal(38,18)":
            literal = dice.choice([*FRACTIONS, *map(str, NUMBERS)])
        case _:
            literal = str(dice.choice(NUMBERS))
    blank = dice.choice(["", " ", "  "])
    return f"{side}{name}{blank}{operator}{blank}{literal}"


@pytest.fixture(params=["true", "false"])
def ansi(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    """Both kinds of rules."""
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    yield
    spark.conf.unset("spark.sql.ansi.enabled")


@pytest.mark.usefixtures("ansi")
def test_spark_finds_the_same(spark: SparkSession) -> None:
    """The three truth values of each condition for each row. Most conditions are read here."""
    dice = random.Random(7)
    columns = {NAMES[kind]: arrow for kind, arrow in TYPES.items()}
    sides = {
        side: pa.array(
            [{NAMES[kind]: value(dice, kind) for kind in TYPES} for _ in range(ROWS)],
            pa.struct(list(columns.items())),
        )
        for side in (SOURCE, TARGET)
    }
    rows = pa.table(sides)
    read: dict[str, list[bool | None]] = {}
    while len(read) < CONDITIONS:
        text = " AND ".join(comparison(dice) for _ in range(dice.choice([1, 1, 2, 3])))
        try:
            expression, _ = resolved_condition(text, columns, columns)
        except LocalEngineError:
            continue
        read[text] = evaluate(expression, rows).to_pylist()
    texts = [with_sides(spark, text, dict.fromkeys(columns, SOURCE)) for text in read]
    found = spark.createDataFrame(rows).selectExpr(*(f"{text} AS c{n}" for n, text in enumerate(texts)))
    by_spark = found.toArrow()
    for number, (text, expected) in enumerate(read.items()):
        assert by_spark.column(f"c{number}").to_pylist() == expected, text


@pytest.mark.parametrize(
    ("text", "sides"),
    [
        ("nope = 'x'", (SOURCE, TARGET)),
        ("old = 1", (SOURCE,)),
        ("op IS NULL", (TARGET,)),
        ("target.op = 'D'", (SOURCE, TARGET)),
        ("source.current_date = 'x'", (SOURCE, TARGET)),
    ],
)
def test_spark_does_not_know_the_column_either(
    spark: SparkSession, text: str, sides: tuple[str, ...]
) -> None:
    """The same error with the same columns, whichever engine looks."""
    source, target = {"id": pa.int32(), "op": pa.string()}, {"id": pa.int32(), "old": pa.int32()}
    ddl = StructType.fromDDL("id int, op string"), StructType.fromDDL("id int, old int")
    with pytest.raises(RecordLayoutError) as here:
        resolved_condition(text, source, target, sides, "table d.t: the condition")
    names = {side: each.names for side, each in ((SOURCE, ddl[0]), (TARGET, ddl[1])) if side in sides}
    written = with_sides(spark, text, {name: side for side in reversed(sides) for name in names[side]})
    with pytest.raises(RecordLayoutError) as there:
        ExpressionAnalyser(spark, "d.t", *ddl).condition(written, sides, "the condition")
    ours = str(here.value).rpartition(": column ")[0].replace(repr(text), repr(written))
    assert str(there.value).startswith(f"{ours}: [UNRESOLVED_COLUMN")


@pytest.mark.long
def test_names_that_spark_knows_without_a_column(spark: SparkSession) -> None:
    """No function or word of SQL is refused here as an unknown column but known to Spark."""
    names = {row[0] for row in spark.sql("SHOW FUNCTIONS").collect()}
    names |= {row[0].lower() for row in spark.sql("SELECT keyword FROM sql_keywords()").collect()}
    frame = spark.createDataFrame([], "zz int").alias(SOURCE)
    refused = []
    for name in sorted(filter(str.isidentifier, names)):
        try:
            resolved_condition(f"{name} IS NULL", {"zz": pa.int32()}, {})
        except RecordLayoutError:
            refused.append(name)
        except LocalEngineError:
            continue
    assert len(refused) > 500
    for name in refused:
        with unlogged_errors(), pytest.raises((AnalysisException, ParseException)):
            _ = frame.selectExpr(f"{name} IS NULL").schema
